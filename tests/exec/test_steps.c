/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a running program: feeding, stepping, fetching, and several programs in a context.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_op.h"
#include "context/context.h"
#include "exec/program.h"

struct line {
    ckpt_tensor w, b, unused;
    enum ckpt_dtype dtype; /* of the parameters */
    int64_t rows;          /* of the auxiliary output, to make programs of different sizes */
};

static ckpt_tensor predict(ckpt_tape *t, int64_t batch, void *user)
{
    const struct line *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 3});
    ckpt_tensor y = ckpt_linear(t, x, m->w, m->b);
    ckpt_output(t, "y", y);
    return y;
}

static ckpt_tensor train(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor y = predict(t, batch, user);
    ckpt_tensor target = ckpt_input(t, "target", CKPT_F32, 2, (int64_t[]){batch, 2});
    ckpt_output_gradient(t, "dw", ((struct line *)user)->w);
    ckpt_output_gradient(t, "dunused", ((struct line *)user)->unused);
    return ckpt_mse(t, y, target, CKPT_NONE);
}

static ckpt *open_line(struct line *m, enum ckpt_dtype dtype, const struct ckpt_options *opt)
{
    ckpt *c;
    m->dtype = dtype;
    assert_int_equal(ckpt_open(&c, opt), 0);
    m->w = ckpt_param(c, "w", dtype, 2, (int64_t[]){2, 3}, CKPT_NORMAL(1), true);
    m->b = ckpt_param(c, "b", dtype, 1, (int64_t[]){2}, CKPT_ZEROS, true);
    m->unused = ckpt_param(c, "unused", dtype, 1, (int64_t[]){5}, CKPT_ONES, true);
    return c;
}

static const float batch_x[4][3] = {{1, 2, 3}, {-1, 0.5f, 2}, {0, 0, 1}, {3, -2, 1}};
static const float batch_target[4][2] = {{1, 0}, {0, 1}, {2, 2}, {-1, 3}};

static void feed_line(ckpt_program *p)
{
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_feed(p, "target", batch_target, sizeof batch_target), 0);
}

/* The gradient by hand: dW = 2/(B 2) sum (y - target) x^T. */
static void test_gradient_by_hand(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= 4; micro *= 2) {
        struct line m = {0};
        struct ckpt_options o = CKPT_OPTIONS_INIT;
        struct ckpt_adamw a = CKPT_ADAMW_INIT;
        ckpt_program *p;
        float w[6], dw[6], y[8], unused[5];
        o.micro_batch = micro;
        ckpt *c = open_line(&m, CKPT_F32, &o);
        assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, w, 6), 0);
        assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), 0);
        feed_line(p);
        assert_int_equal(ckpt_step(p, NULL), 0);
        assert_int_equal(ckpt_fetch(p, "dw", dw, sizeof dw), 0);
        assert_int_equal(ckpt_fetch(p, "y", y, sizeof y), 0);
        assert_int_equal(ckpt_fetch(p, "dunused", unused, sizeof unused), 0);
        for (int n = 0; n < 2; n++) {
            for (int k = 0; k < 3; k++) {
                double sum = 0;
                for (int b = 0; b < 4; b++)
                    sum += 2. / 8 * (y[b * 2 + n] - batch_target[b][n]) * batch_x[b][k];
                assert_true(fabs(sum - dw[n * 3 + k]) < 1e-5);
            }
        }
        for (int i = 0; i < 5; i++)
            assert_true(unused[i] == 0.f);
        ckpt_close(c);
    }
}

static void test_feed_errors(void **state)
{
    (void)state;
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    float loss, y[8];
    ckpt *c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), 0);
    assert_int_equal(ckpt_step(p, &loss), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "never fed"));
    assert_int_equal(ckpt_feed(p, "nothing", batch_x, sizeof batch_x), CKPT_ENAME);
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x - 4), CKPT_EINVAL);
    assert_int_equal(ckpt_fetch(p, "y", y, sizeof y), CKPT_EINVAL); /* before any step */
    feed_line(p);
    assert_int_equal(ckpt_step(p, &loss), 0);
    assert_int_equal(ckpt_fetch(p, "y", y, sizeof y - 4), CKPT_EINVAL);
    assert_int_equal(ckpt_fetch(p, "z", y, sizeof y), CKPT_ENAME);
    struct ckpt_desc d;
    assert_int_equal(ckpt_program_desc(p, "y", &d), 0);
    assert_true(d.ndim == 2 && d.shape[0] == 4 && d.shape[1] == 2);
    ckpt_close(c);
}

/* Training first or predicting first: both programs see the same weights, in either compile order.
 */
static void test_two_programs(void **state)
{
    (void)state;
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *before, *p, *after;
    float y[8], z[8];
    a.lr = 0.05f;
    a.ema_decay = 0.5f;
    ckpt *c = open_line(&m, CKPT_BF16, NULL);
    float w[6], master[6];
    for (int i = 0; i < 6; i++)
        w[i] = 0.1f + 0.001f * (float)i; /* none is a bf16 value */
    assert_int_equal(ckpt_param_set(c, m.w, CKPT_VALUE, w, 6), 0);
    assert_int_equal(ckpt_compile(c, predict, &m, NULL, 4, &before), CKPT_ESHAPE);
    assert_non_null(strstr(ckpt_error(c), "test_steps.c:")); /* fp32 x with bf16 w */
    ckpt_close(c);

    c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_param_set(c, m.w, CKPT_VALUE, w, 6), 0);
    assert_int_equal(ckpt_compile(c, predict, &m, NULL, 4, &before), 0);
    assert_int_equal(ckpt_feed(before, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_step(before, NULL), 0);
    assert_int_equal(ckpt_fetch(before, "y", y, sizeof y), 0);
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), 0);
    assert_int_equal(ckpt_step(before, NULL), 0); /* its arena moved: it still runs */
    assert_int_equal(ckpt_fetch(before, "y", z, sizeof z), 0);
    assert_memory_equal(y, z, sizeof y);
    feed_line(p);
    for (int s = 0; s < 20; s++)
        assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_compile(c, predict, &m, NULL, 4, &after), 0);
    assert_int_equal(ckpt_feed(after, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_step(before, NULL), 0);
    assert_int_equal(ckpt_step(after, NULL), 0);
    assert_int_equal(ckpt_fetch(before, "y", y, sizeof y), 0);
    assert_int_equal(ckpt_fetch(after, "y", z, sizeof z), 0);
    assert_memory_equal(y, z, sizeof y);
    assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, master, 6), 0);
    assert_memory_not_equal(master, w, sizeof w);
    assert_int_equal(ckpt_param_get(c, m.w, CKPT_EMA, master, 6), 0);
    assert_int_equal(ckpt_param_get(c, m.w, CKPT_EMA, master, 5), CKPT_EINVAL);
    ckpt_close(c);
}

static int no_memory(struct device *d, int64_t bytes)
{
    (void)d;
    (void)bytes;
    return CKPT_ENOMEM;
}

static void begin_nothing(struct device *d, bool part)
{
    (void)d;
    (void)part;
}

static int end_without_memory(struct device *d, struct device_step **step)
{
    (void)d;
    (void)step;
    return CKPT_ENOMEM;
}

/* Checks that the initial values of training are unchanged. */
static void expect_fresh(ckpt *c, const struct line *m)
{
    const ckpt_tensor params[] = {m->w, m->b};
    const int64_t numel[] = {6, 2};
    float values[6];
    for (int i = 0; i < 2; i++)
        for (int slot = CKPT_EXP_AVG; slot <= CKPT_EXP_AVG_SQ; slot++) {
            assert_int_equal(ckpt_param_get(c, params[i], (enum ckpt_slot)slot, values, numel[i]),
                             0);
            for (int64_t k = 0; k < numel[i]; k++)
                assert_true(values[k] == 0.f);
        }
    assert_int_equal(ckpt_param_get(c, m->unused, CKPT_VALUE, values, 5), 0);
    for (int k = 0; k < 5; k++)
        assert_true(values[k] == 1.f);
}

/* A context with a program that ran one step, and its output. */
static ckpt *open_with_step(struct line *m, ckpt_program **p, float y[8])
{
    ckpt *c = open_line(m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, predict, m, NULL, 4, p), 0);
    assert_int_equal(ckpt_feed(*p, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_step(*p, NULL), 0);
    assert_int_equal(ckpt_fetch(*p, "y", y, 8 * sizeof *y), 0);
    return c;
}

/* Checks that the next step has the same output. */
static void expect_same_step(ckpt_program *p, const float y[8])
{
    float z[8] = {0};
    assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_fetch(p, "y", z, sizeof z), 0);
    assert_memory_equal(y, z, sizeof z);
}

/* A compile fails after its parameters got their memory, which they keep: programs compiled before
 * and after it must not overwrite them. */
static void check_failed_compile(const struct device_ops *fails)
{
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *before, *p;
    float y[8];
    ckpt *c = open_with_step(&m, &before, y);
    const struct device_ops *real = c->memory.device->ops;
    struct device_ops ops = *real;
    ops.map = fails->map ? fails->map : ops.map;
    ops.begin = fails->begin;
    ops.end = fails->end;
    c->memory.device->ops = &ops;
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), CKPT_ENOMEM);
    c->memory.device->ops = real;
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), 0);
    expect_same_step(before, y);
    expect_fresh(c, &m);
    ckpt_close(c);
}

static int no_events(struct device *d, int32_t n)
{
    (void)d;
    (void)n;
    return CKPT_ENOMEM;
}

/* A compile moves a program and finds no memory for its instructions.  The old ones would write to
 * parameters, so each step fails until there is memory, and then succeeds. */
static void test_without_instructions(void **state)
{
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *before, *p;
    float y[8];
    (void)state;
    ckpt *c = open_with_step(&m, &before, y);
    const struct device_ops *real = c->memory.device->ops;
    struct device_ops ops = *real;
    ops.events = no_events;
    c->memory.device->ops = &ops;
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), CKPT_ENOMEM);
    assert_int_equal(ckpt_step(before, NULL), CKPT_ENOMEM);
    assert_non_null(strstr(ckpt_error(c), "no memory for the instructions"));
    c->memory.device->ops = real;
    expect_same_step(before, y);
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), 0);
    expect_fresh(c, &m);
    ckpt_close(c);
}

static void test_after_a_failed_compile(void **state)
{
    (void)state;
    check_failed_compile(&(struct device_ops){.map = no_memory});
    check_failed_compile(&(struct device_ops){.begin = begin_nothing, .end = end_without_memory});
}

static ckpt_tensor overflow(ckpt_tape *t, int64_t batch, void *user)
{
    const struct line *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 3});
    ckpt_label(t, "head");
    ckpt_tensor y = ckpt_cast(t, ckpt_mul(t, x, x), m->dtype);
    return ckpt_mse(t, ckpt_linear(t, y, m->w, m->b), ckpt_slice(t, x, 1, 0, 2), CKPT_NONE);
}

/* Whether an op of the backward pass writes a parameter: its gradient uses the value's memory. */
static bool has_gradients_in_values(const ckpt_program *p)
{
    for (int32_t i = 0; i < p->graph->n_body; i++)
        for (int32_t j = 0; j < p->graph->ops[i].n_writes; j++)
            if (p->graph->storages[p->graph->refs[p->graph->ops[i].writes + j]].persistent)
                return true;
    return false;
}

/* A non-finite step names the op, and weights and moments do not change. */
static void check_nan(enum ckpt_dtype dtype)
{
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    float x[4][3], w[6], v[6], loss;
    a.lr = 0.1f;
    a.grad_dtype = dtype;
    ckpt *c = open_line(&m, dtype, NULL);
    assert_int_equal(ckpt_compile(c, overflow, &m, ckpt_adamw(c, &a), 4, &p), 0);
    assert_int_equal(has_gradients_in_values(p), dtype == CKPT_BF16);
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_step(p, &loss), 0);
    assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, w, 6), 0);
    memcpy(x, batch_x, sizeof x);
    x[2][1] = 1e30f; /* its square overflows */
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_step(p, &loss), CKPT_ENAN);
    assert_non_null(strstr(ckpt_error(c), "step 2"));
    assert_non_null(
        strstr(ckpt_error(c), dtype == CKPT_BF16 ? "mul+cast in head" : "mul in head"));
    assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, v, 6), 0);
    assert_memory_equal(w, v, sizeof w);
    x[2][1] = NAN;
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_step(p, &loss), CKPT_ENAN);
    assert_non_null(strstr(ckpt_error(c), "input 'x'"));
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_step(p, &loss), 0); /* and it goes on */
    ckpt_close(c);
}

static void test_nan_keeps_weights(void **state)
{
    (void)state;
    check_nan(CKPT_F32);
    check_nan(CKPT_BF16);
}

/* Two steps are under way and the first is not finite: the second changes nothing either, and is
 * not counted; later steps run as if neither had been submitted. */
static void check_under_way(enum ckpt_dtype dtype)
{
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    float x[4][3], w[2][6], v[6], loss;
    a.lr = 0.1f;
    a.grad_dtype = dtype;
    for (int mishap = 0; mishap < 2; mishap++) {
        ckpt *c = open_line(&m, dtype, NULL);
        assert_int_equal(ckpt_compile(c, overflow, &m, ckpt_adamw(c, &a), 4, &p), 0);
        assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
        assert_int_equal(ckpt_step(p, &loss), 0);
        if (mishap) {
            assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, w[1], 6), 0);
            memcpy(x, batch_x, sizeof x);
            x[2][1] = 1e30f;
            assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
            assert_int_equal(ckpt_submit(p), 0);
            assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
            assert_int_equal(ckpt_submit(p), 0);
            assert_int_equal(ckpt_wait(p, &loss), CKPT_ENAN);
            assert_non_null(strstr(ckpt_error(c), "step 2"));
            assert_int_equal(ckpt_wait(p, &loss), CKPT_EINVAL); /* it does not count */
            assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, v, 6), 0);
            assert_memory_equal(w[1], v, sizeof v);
            assert_int_equal(ckpt_updates(c), 1);
            assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
        }
        assert_int_equal(ckpt_step(p, &loss), 0);
        assert_int_equal(ckpt_updates(c), 2);
        assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, w[mishap], 6), 0);
        ckpt_close(c);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
}

static void test_nan_stops_what_is_under_way(void **state)
{
    (void)state;
    check_under_way(CKPT_F32);
    check_under_way(CKPT_BF16);
}

static int fail_kernel(const struct ckpt_kernel_args *a)
{
    (void)a;
    return CKPT_EDEVICE;
}

static int copy_shape(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return 0;
}

/* Its last op, at a higher index than another program has ops, fails. */
static ckpt_tensor fail_late(ckpt_tape *t, int64_t batch, void *user)
{
    static const struct ckpt_op_def def = {
        .size = sizeof def, .name = "failing", .shape = copy_shape, .cpu = fail_kernel};
    ckpt_tensor y = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 3}), out;
    (void)user;
    for (int i = 0; i < 40; i++)
        y = ckpt_affine(t, y, 2.f, 1.f);
    ckpt_record(t, &def, 1, &y, 1, &out, NULL, 0);
    ckpt_output(t, "z", out);
    return out;
}

static int at_work; /* of slow_kernel */

static int slow_kernel(const struct ckpt_kernel_args *a)
{
    (void)a;
    usleep(50000);
    __atomic_store_n(&at_work, 0, __ATOMIC_SEQ_CST);
    return 0;
}

static ckpt_tensor slow(ckpt_tape *t, int64_t batch, void *user)
{
    static const struct ckpt_op_def def = {
        .size = sizeof def, .name = "slow", .shape = copy_shape, .cpu = slow_kernel};
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 3}), out;
    (void)user;
    ckpt_record(t, &def, 1, &x, 1, &out, NULL, 0);
    ckpt_output(t, "z", out);
    return out;
}

static ckpt_tensor predict_idle(ckpt_tape *t, int64_t batch, void *user)
{
    assert_int_equal(__atomic_load_n(&at_work, __ATOMIC_SEQ_CST), 0);
    return predict(t, batch, user);
}

/* A compile tries kernels, so it waits for a step of another program that is under way. */
static void test_compile_under_way(void **state)
{
    struct line m = {0};
    ckpt_program *before, *p;
    (void)state;
    ckpt *c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, slow, &m, NULL, 4, &before), 0);
    assert_int_equal(ckpt_feed(before, "x", batch_x, sizeof batch_x), 0);
    at_work = 1;
    assert_int_equal(ckpt_submit(before), 0);
    assert_int_equal(ckpt_compile(c, predict_idle, &m, NULL, 4, &p), 0);
    assert_int_equal(ckpt_wait(before, NULL), 0);
    ckpt_close(c);
}

/* A kernel fails while steps of two programs are under way: the first wait reports it, without an
 * op name from the wrong tape, and the other step does not count either. */
static void test_failure_under_two_programs(void **state)
{
    struct line m = {0};
    ckpt_program *whole, *failing;
    (void)state;
    ckpt *c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, predict, &m, NULL, 4, &whole), 0);
    assert_int_equal(ckpt_compile(c, fail_late, &m, NULL, 4, &failing), 0);
    assert_int_equal(ckpt_feed(whole, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_feed(failing, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_submit(whole), 0);
    assert_int_equal(ckpt_submit(failing), 0);
    /* The one in front may have ended before. */
    assert_int_equal(ckpt_wait(failing, NULL), CKPT_EDEVICE);
    assert_non_null(strstr(ckpt_error(c), "step 1: a kernel failed"));
    assert_int_equal(ckpt_wait(whole, NULL), CKPT_EDEVICE);
    assert_non_null(strstr(ckpt_error(c), "load those saved last"));
    ckpt_close(c);
    c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, fail_late, &m, NULL, 4, &failing), 0);
    assert_int_equal(ckpt_feed(failing, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_step(failing, NULL), CKPT_EDEVICE);
    assert_non_null(strstr(ckpt_error(c), "step 1: failing (test_steps.c:"));
    ckpt_close(c);
}

/* The loss overflows while every gradient is finite: the update must not be applied either. */
static ckpt_tensor far_away(ckpt_tape *t, int64_t batch, void *user)
{
    const struct line *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 3});
    return ckpt_mse(t, ckpt_linear(t, x, m->w, m->b),
                    ckpt_input(t, "target", CKPT_F32, 2, (int64_t[]){batch, 2}), CKPT_NONE);
}

static void test_infinite_loss_keeps_weights(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= 4; micro *= 4) {
        struct line m = {0};
        struct ckpt_options o = CKPT_OPTIONS_INIT;
        struct ckpt_adamw a = CKPT_ADAMW_INIT;
        ckpt_program *p;
        /* (6e19)^2 / 8 is beyond fp32; the bias gradient, 6e19 / 4, and its square are not. */
        float target[4][2] = {{6e19f}}, w[6], v[6], loss;
        float x[4][3] = {{1e-3f}};
        o.micro_batch = micro;
        ckpt *c = open_line(&m, CKPT_F32, &o);
        assert_int_equal(ckpt_compile(c, far_away, &m, ckpt_adamw(c, &a), 4, &p), 0);
        assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
        assert_int_equal(ckpt_feed(p, "target", target, sizeof target), 0);
        assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, w, 6), 0);
        assert_int_equal(ckpt_step(p, &loss), CKPT_ENAN);
        assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, v, 6), 0);
        assert_memory_equal(w, v, sizeof w);
        ckpt_close(c);
    }
}

/* A refused call changes nothing.  A rank other than the first records its steps again, which needs
 * that none is under way. */
static void test_random_step_under_way(void **state)
{
    struct line m = {0};
    ckpt_program *p;
    (void)state;
    ckpt *c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, predict, &m, NULL, 4, &p), 0);
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_submit(p), 0);
    c->ranks.rank = 1;
    assert_int_equal(ckpt_set_random_step(p, 7), CKPT_EINVAL);
    assert_int_equal(p->random_offset, 0);
    assert_int_equal(ckpt_wait(p, NULL), 0);
    assert_int_equal(ckpt_set_random_step(p, 7), 0);
    assert_int_equal(p->random_offset, 6);
    c->ranks.rank = 0;
    ckpt_close(c);
}

/* The end time of a step does not depend on when it is waited for. */
static void test_ended(void **state)
{
    struct line m = {0};
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p;
    double begun = clock_seconds(), waited = 0;
    (void)state;
    ckpt *c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, predict, &m, NULL, 4, &p), 0);
    ckpt_program_info(p, &info);
    assert_true(info.ended == 0);
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
    for (useconds_t pause = 1000; pause < 8000000 && info.ended >= waited; pause *= 2) {
        assert_int_equal(ckpt_submit(p), 0);
        assert_int_equal(ckpt_submit(p), 0);
        usleep(pause);
        waited = clock_seconds();
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ckpt_wait(p, NULL), 0);
            ckpt_program_info(p, &info);
            assert_true(info.ended > begun);
            begun = info.ended;
        }
    }
    assert_true(info.ended < waited);
    ckpt_close(c);
}

static void test_plan_only(void **state)
{
    (void)state;
    struct line m = {0};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p;
    o.plan_only = true;
    ckpt *c = open_line(&m, CKPT_F32, &o);
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), 0);
    ckpt_program_info(p, &info);
    assert_true(info.plan_only && info.planned_peak > 0 && info.arena_bytes == 0);
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), CKPT_EINVAL);
    assert_int_equal(ckpt_step(p, NULL), CKPT_EINVAL);
    ckpt_close(c);
    o.vram = INT64_C(1) << 50; /* a plan for a larger machine is not clipped to this one */
    c = open_line(&m, CKPT_F32, &o);
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), 0);
    ckpt_program_info(p, &info);
    assert_true(info.budget == o.vram);
    ckpt_close(c);
    o.plan_only = false; /* a run is */
    c = open_line(&m, CKPT_F32, &o);
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), 0);
    ckpt_program_info(p, &info);
    assert_true(info.budget < o.vram);
    ckpt_close(c);
}

static void test_bad_parameters(void **state)
{
    (void)state;
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    ckpt *c = open_line(&m, CKPT_F32, NULL);
    ckpt_param(c, "w", CKPT_F32, 1, (int64_t[]){2}, CKPT_ZEROS, true);
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "'w'"));
    assert_null(p);
    ckpt_close(c);
    c = open_line(&m, CKPT_F32, NULL);
    ckpt_param(c, "empty", CKPT_F32, 2, (int64_t[]){2, 0}, CKPT_ZEROS, true);
    assert_int_equal(ckpt_compile(c, train, &m, ckpt_adamw(c, &a), 4, &p), CKPT_ESHAPE);
    ckpt_close(c);
}

static ckpt_tensor trained_angles(ckpt_tape *t, int64_t batch, void *user)
{
    const struct line *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 4});
    ckpt_tensor table = ckpt_reshape(t, ckpt_slice(t, m->w, 0, 0, 1), 3, (int64_t[]){1, 1, 3});
    table = ckpt_reshape(
        t,
        ckpt_concat(t, 2, 2,
                    (ckpt_tensor[]){ckpt_slice(t, table, 2, 0, 2), ckpt_slice(t, table, 2, 1, 3)}),
        3, (int64_t[]){1, 2, 2});
    ckpt_tensor y = ckpt_rope(t, ckpt_reshape(t, x, 3, (int64_t[]){batch, 1, 4}), table, 1);
    return ckpt_reshape(t, ckpt_mean(t, y, 7), 0, NULL);
}

/* An operand without a gradient is an error; it is not silently left untrained. */
static void test_untrainable_operand(void **state)
{
    (void)state;
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    ckpt *c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, trained_angles, &m, ckpt_adamw(c, &a), 4, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "rope"));
    assert_non_null(strstr(ckpt_error(c), "test_steps.c:"));
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_by_hand),
        cmocka_unit_test(test_feed_errors),
        cmocka_unit_test(test_two_programs),
        cmocka_unit_test(test_nan_keeps_weights),
        cmocka_unit_test(test_nan_stops_what_is_under_way),
        cmocka_unit_test(test_after_a_failed_compile),
        cmocka_unit_test(test_without_instructions),
        cmocka_unit_test(test_compile_under_way),
        cmocka_unit_test(test_failure_under_two_programs),
        cmocka_unit_test(test_infinite_loss_keeps_weights),
        cmocka_unit_test(test_random_step_under_way),
        cmocka_unit_test(test_ended),
        cmocka_unit_test(test_plan_only),
        cmocka_unit_test(test_bad_parameters),
        cmocka_unit_test(test_untrainable_operand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

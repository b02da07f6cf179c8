/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients as part of a model: values, penalties on them against central differences, budgets,
 * stop_gradient, and refused uses.  "make check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_op.h"
#include "ckpt_tools.h"
#include "dist/rank_threads.h"
#include "plan/one_search.h"
#include "small.h"

enum { BATCH = 3, SIDE = 6, HIDDEN = 8, STEPS = 4 };

enum critic {
    OF_LINEAR,
    OF_CONV,
    OF_SLICES,
    OF_MATMUL,
    OF_NORM,
    OF_GROUPS,
    OF_ATTENTION,
    OF_BENT, /* an op of its own, whose gradient has none */
    CRITICS = OF_BENT
};

struct penalty {
    enum critic critic;
    enum ckpt_dtype dtype;
    int64_t micro; /* 0: the batch */
    ckpt_tensor w[4];
};

static void make_weights(ckpt *c, struct penalty *m)
{
    static const int64_t shapes[4][4] = {
        {HIDDEN, SIDE * SIDE}, {HIDDEN}, {1, HIDDEN}, {HIDDEN, 3, 3, 1}};
    static const int ndim[] = {2, 1, 2, 4};
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        m->w[i] = ckpt_param(c, name, m->dtype, ndim[i], shapes[i], CKPT_NORMAL(0.3f), true);
    }
}

static ckpt *open_with(struct penalty *m, int64_t vram)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    o.vram = vram;
    o.micro_batch = m->micro;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    make_weights(c, m);
    return c;
}

/* The identity, as an op whose gradient is another op, which has no gradient itself. */
static int bent_shape(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return 0;
}

static int bent_cpu(const struct ckpt_kernel_args *a)
{
    const int64_t bytes = desc_numel(&a->in[0].desc) * ckpt_dtype_size(a->in[0].desc.dtype);
    memcpy(a->out[0].data, a->in[0].data, (size_t)bytes);
    return 0;
}

static const struct ckpt_op_def bent_dx = {
    .size = sizeof(struct ckpt_op_def), .name = "bent_dx", .shape = bent_shape, .cpu = bent_cpu};

static void bent_grad(struct ckpt_grad *g)
{
    ckpt_record(g->tape, &bent_dx, 1, g->dout, 1, g->din, NULL, 0);
}

static const struct ckpt_op_def bent = {.size = sizeof(struct ckpt_op_def),
                                        .name = "bent",
                                        .shape = bent_shape,
                                        .grad = bent_grad,
                                        .cpu = bent_cpu};

static ckpt_tensor convolve(ckpt_tape *t, const struct penalty *m, ckpt_tensor x, int64_t n)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    for (int i = 0; i < 2; i++)
        spec.before[i] = spec.after[i] = 1;
    x = ckpt_reshape(t, x, 4, (int64_t[]){n, SIDE, SIDE, 1});
    return ckpt_conv(t, x, m->w[3], CKPT_NONE, &spec);
}

/* Convolution, group and batch norms, SiLU, ReLU, max pooling with overlapping windows. */
static ckpt_tensor by_groups(ckpt_tape *t, const struct penalty *m, ckpt_tensor x, int64_t n)
{
    struct ckpt_pool_spec spec = CKPT_POOL_INIT;
    spec.stride[0] = spec.stride[1] = 2;
    ckpt_tensor h = ckpt_group_norm_silu(t, convolve(t, m, x, n), m->w[1],
                                         ckpt_affine(t, m->w[1], 0.5f, 0), 2, 1e-5f, true);
    h = ckpt_max_pool(t, h, (int64_t[]){3, 3}, &spec);
    h = ckpt_batch_norm(t, h, m->w[1], CKPT_NONE, CKPT_NONE, CKPT_NONE, 0, 1e-2f);
    h = ckpt_add(t, ckpt_relu(t, h), ckpt_silu(t, h));
    return ckpt_reshape(t, ckpt_mean(t, h, 6u), 2, (int64_t[]){n, HIDDEN});
}

/* Attention over the positions of a picture as tokens. */
static ckpt_tensor by_attention(ckpt_tape *t, const struct penalty *m, ckpt_tensor x, int64_t n)
{
    const int64_t heads[] = {n, SIDE * SIDE, 2, HIDDEN / 2}, tokens[] = {n, SIDE * SIDE, HIDDEN};
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    ckpt_tensor h = ckpt_reshape(t, convolve(t, m, x, n), 3, tokens);
    h = ckpt_reshape(t, ckpt_rms_norm(t, h, m->w[1], 1e-5f), 4, heads);
    spec.causal = true;
    h = ckpt_attention(t, h, h, ckpt_gelu_tanh(t, h), CKPT_NONE, &spec);
    h = ckpt_reshape(t, h, 3, tokens);
    return ckpt_reshape(t, ckpt_mean(t, h, 2u), 2, (int64_t[]){n, HIDDEN});
}

/* The critic's output [n, 1]; uses parameters w0 to w3, or those that the critic has. */
static ckpt_tensor criticise(ckpt_tape *t, const struct penalty *m, ckpt_tensor x, int64_t n)
{
    const int64_t flat[] = {n, SIDE * SIDE}, picture[] = {n, SIDE, SIDE, 1};
    ckpt_tensor h = ckpt_reshape(t, x, 2, flat), part[3];
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    switch (m->critic) {
    case OF_CONV:
        spec.before[0] = spec.after[1] = spec.stride[0] = 2;
        h = ckpt_conv(t, ckpt_reshape(t, x, 4, picture), m->w[3], CKPT_NONE, &spec);
        h = ckpt_tanh(t, h);
        h = ckpt_add(t, ckpt_mean(t, h, 6u), ckpt_reshape(t, m->w[1], 4, (int64_t[]){1, 1, 1, 8}));
        h = ckpt_sin(t, ckpt_reshape(t, h, 2, (int64_t[]){n, HIDDEN}));
        break;
    case OF_SLICES:
        h = ckpt_sin(t, ckpt_linear(t, h, m->w[0], m->w[1]));
        for (int i = 0; i < 3; i++)
            part[i] = ckpt_slice(t, h, 1, 2 * i, 2 * i + 4);
        h = ckpt_concat(t, 1, 2, (ckpt_tensor[]){ckpt_mul(t, part[0], part[1]), part[2]});
        break;
    case OF_MATMUL:
        h = ckpt_matmul(t, h, m->w[0], false, true);
        h = ckpt_softmax(t, h, 1);
        h = ckpt_mul(t, h, ckpt_exp(t, ckpt_cast(t, m->w[1], CKPT_F32)));
        break;
    case OF_NORM:
        h = ckpt_linear(t, h, m->w[0], m->w[1]);
        h = ckpt_layer_norm(t, h, m->w[1], ckpt_affine(t, m->w[1], -1, 0), 1e-5f);
        h = ckpt_gelu_tanh(t, ckpt_layer_norm(t, h, CKPT_NONE, CKPT_NONE, 1e-2f));
        break;
    case OF_GROUPS:
        h = by_groups(t, m, x, n);
        break;
    case OF_ATTENTION:
        h = by_attention(t, m, x, n);
        break;
    case OF_BENT:
        ckpt_record(t, &bent, 1, &h, 1, part, NULL, 0);
        h = ckpt_linear(t, part[0], m->w[0], m->w[1]);
        break;
    default:
        h = ckpt_tanh(t, ckpt_linear(t, h, m->w[0], m->w[1]));
        h = ckpt_add(t, h, ckpt_mul(t, h, h)); /* used three times */
    }
    return ckpt_linear(t, ckpt_cast(t, h, m->dtype), m->w[2], CKPT_NONE);
}

/* mean((|dy/dx| - 1)^2) + mean(y), plus a small term of all parameters. */
static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct penalty *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, SIDE * SIDE}), dx;
    ckpt_tensor y = criticise(t, m, ckpt_cast(t, x, m->dtype), n), loss = CKPT_NONE;
    ckpt_gradients(t, y, 1, &x, &dx);
    ckpt_output(t, "dx", dx);
    dx = ckpt_sqrt(t, ckpt_affine(t, ckpt_sum(t, ckpt_mul(t, dx, dx), 2u), 1, 1e-3f));
    dx = ckpt_affine(t, dx, 1, -1);
    loss = ckpt_add(t, ckpt_mean(t, ckpt_mul(t, dx, dx), 3u),
                    ckpt_mean(t, ckpt_cast(t, y, CKPT_F32), 3u));
    for (int i = 0; i < 4; i++) {
        ckpt_tensor w = ckpt_cast(t, m->w[i], CKPT_F32);
        ckpt_tensor sum = ckpt_sum(t, ckpt_mul(t, w, w), i == 1 ? 1u : i == 3 ? 15u : 3u);
        loss = ckpt_add(t, ckpt_reshape(t, loss, 0, NULL), ckpt_reshape(t, sum, 0, NULL));
    }
    return loss;
}

static int feed(ckpt_program *p, void *user)
{
    float x[BATCH * SIDE * SIDE];
    (void)user;
    ckpt_fill_normal(3, 0, 1, x, BATCH * SIDE * SIDE);
    return ckpt_feed(p, "x", x, sizeof x);
}

/* Second derivatives are checked by central differences of the loss. */
static void test_penalty(void **state)
{
    (void)state;
    for (int k = 0; k < CRITICS; k++) {
        struct ckpt_gradcheck check = CKPT_GRADCHECK_INIT;
        struct penalty m = {.critic = (enum critic)k, .dtype = CKPT_F32};
        ckpt *c = open_with(&m, 0);
        check.batch = BATCH;
        check.feed = feed;
        check.samples = 8;
        if (ckpt_gradcheck(c, record, &m, &check))
            fail_msg("critic %d: %s", k, ckpt_error(c));
        ckpt_close(c);
    }
}

/* First derivatives are checked by another program with y(x + h e) - y(x - h e), summed over the
 * batch. */
static ckpt_tensor record_sum(ckpt_tape *t, int64_t n, void *user)
{
    const struct penalty *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, SIDE * SIDE});
    ckpt_output(t, "y", ckpt_sum(t, criticise(t, m, x, n), 3u));
    return ckpt_sum(t, x, 3u);
}

static double sum_at(ckpt_program *p, int at, float by)
{
    float x[BATCH * SIDE * SIDE], y;
    ckpt_fill_normal(3, 0, 1, x, BATCH * SIDE * SIDE);
    x[at] += by;
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_fetch(p, "y", &y, 4), 0);
    return y;
}

static void test_values(void **state)
{
    (void)state;
    for (int k = 0; k < CRITICS; k++) {
        struct penalty m = {.critic = (enum critic)k, .dtype = CKPT_F32};
        ckpt *c = open_with(&m, 0);
        ckpt_program *p, *sum;
        float dx[BATCH * SIDE * SIDE];
        if (ckpt_compile(c, record, &m, NULL, BATCH, &p) ||
            ckpt_compile(c, record_sum, &m, NULL, BATCH, &sum) || feed(p, NULL) ||
            ckpt_step(p, NULL) || ckpt_fetch(p, "dx", dx, sizeof dx))
            fail_msg("critic %d: %s", k, ckpt_error(c));
        for (int i = 0; i < BATCH * SIDE * SIDE; i += 7) {
            double slope = (sum_at(sum, i, 0.01f) - sum_at(sum, i, -0.01f)) / 0.02;
            if (fabs(slope - (double)dx[i]) > 2e-3)
                fail_msg("critic %d, element %d: %g, not %g", k, i, (double)dx[i], slope);
        }
        ckpt_close(c);
    }
}

static void train(struct penalty *m, int64_t vram, float *loss, int64_t *least)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *c = open_with(m, vram);
    ckpt_program *p;
    adamw.lr = 1e-2f;
    if (ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    for (int s = 0; s < STEPS; s++)
        if (feed(p, NULL) || ckpt_step(p, &loss[s]))
            fail_msg("%s", ckpt_error(c));
    ckpt_program_info(p, &info);
    *least = info.min_budget;
    ckpt_close(c);
}

static void test_budgets(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * CRITICS; k++) { /* fp32 in micro-steps, bf16 in one */
        struct penalty m = {.critic = (enum critic)(k / 2),
                            .dtype = k % 2 ? CKPT_BF16 : CKPT_F32,
                            .micro = k % 2 ? 0 : 1};
        float free_loss[STEPS], loss[STEPS];
        int64_t least, again;
        train(&m, 0, free_loss, &least);
        train(&m, small_on_gpu() ? 0 : least, loss, &again);
        assert_memory_equal(free_loss, loss, sizeof loss);
        assert_true(loss[STEPS - 1] < loss[0]);
    }
}

/* ---- several ranks --------------------------------------------------------------------------- */

struct member {
    struct rank_thread thread;
    struct penalty m;
    int zero;
    float loss[STEPS];
};

static void *run_member(void *member)
{
    struct member *r = member;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *c = rank_open(&r->thread, (struct ckpt_options)CKPT_OPTIONS_INIT, r->zero, 0);
    ckpt_program *p;
    if (!c)
        return NULL;
    make_weights(c, &r->m);
    adamw.lr = 1e-2f;
    r->thread.rc = ckpt_compile(c, record, &r->m, ckpt_adamw(c, &adamw), BATCH, &p);
    for (int s = 0; s < STEPS && !r->thread.rc; s++) {
        r->thread.rc = feed(p, NULL);
        if (!r->thread.rc)
            r->thread.rc = ckpt_step(p, &r->loss[s]);
    }
    ckpt_close(c);
    return NULL;
}

/* Sharding does not change the bits. */
static void test_ranks(void **state)
{
    (void)state;
    if (small_on_gpu())
        skip();
    for (int k = 0; k < 3; k++) {
        const enum critic critics[] = {OF_NORM, OF_GROUPS, OF_ATTENTION};
        float first[STEPS];
        for (int zero = 0; zero <= 3; zero++) {
            struct member r[2] = {{.m = {.critic = critics[k], .dtype = CKPT_BF16}, .zero = zero}};
            r[1] = r[0];
            run_ranks(r, sizeof *r, 2, 0, run_member);
            if (!zero)
                memcpy(first, r[0].loss, sizeof first);
            assert_memory_equal(first, r[0].loss, sizeof first);
            assert_true(first[STEPS - 1] < first[0]);
        }
    }
}

/* ---- stop_gradient, and values without a gradient -------------------------------------------- */

/* x stop(x) of a parameter has the gradient x, not 2 x.  Values that y does not depend on get 0. */
static ckpt_tensor record_stopped(ckpt_tape *t, int64_t n, void *user)
{
    const struct penalty *m = user;
    ckpt_tensor w = m->w[1], y = ckpt_mul(t, w, ckpt_stop_gradient(t, w));
    ckpt_tensor of[] = {w, m->w[2]}, d[2];
    (void)n;
    ckpt_gradients(t, y, 2, of, d);
    ckpt_output(t, "d", d[0]);
    ckpt_output(t, "zero", d[1]);
    ckpt_output(t, "w", w);
    ckpt_output_gradient(t, "dw", w);
    return ckpt_sum(t, ckpt_add(t, y, ckpt_stop_gradient(t, d[0])), 1u);
}

static void test_stopped(void **state)
{
    struct penalty m = {.dtype = CKPT_F32};
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    ckpt *c = open_with(&m, 0);
    float w[HIDDEN], d[HIDDEN], dw[HIDDEN], zero[HIDDEN], none[HIDDEN] = {0};
    ckpt_program *p;
    (void)state;
    if (ckpt_compile(c, record_stopped, &m, ckpt_sgd(c, &sgd), 1, &p) || ckpt_step(p, NULL) ||
        ckpt_fetch(p, "w", w, sizeof w) || ckpt_fetch(p, "d", d, sizeof d) ||
        ckpt_fetch(p, "dw", dw, sizeof dw) || ckpt_fetch(p, "zero", zero, sizeof zero))
        fail_msg("%s", ckpt_error(c));
    assert_memory_equal(d, w, sizeof w);
    assert_memory_equal(dw, w, sizeof w);
    assert_memory_equal(zero, none, sizeof zero);
    ckpt_close(c);
}

static ckpt_tensor record_integers(ckpt_tape *t, int64_t n, void *user)
{
    const struct penalty *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_I32, 1, &n), dx;
    ckpt_gradients(t, m->w[1], 1, &x, &dx);
    return ckpt_sum(t, m->w[1], 1u);
}

static void expect_refusal(ckpt_recorder what, struct penalty *m, const char *words)
{
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    ckpt *c = open_with(m, 0);
    ckpt_program *p;
    assert_int_equal(ckpt_compile(c, what, m, ckpt_sgd(c, &sgd), BATCH, &p), CKPT_EINVAL);
    if (!strstr(ckpt_error(c), words))
        fail_msg("said '%s', not '%s'", ckpt_error(c), words);
    ckpt_close(c);
}

static void test_refused(void **state)
{
    struct penalty m = {.critic = OF_BENT, .dtype = CKPT_F32};
    (void)state;
    expect_refusal(record, &m, "bent_dx, which has no gradient rule");
    expect_refusal(record_integers, &m, "gradients: x 0 is of integers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_budgets), cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

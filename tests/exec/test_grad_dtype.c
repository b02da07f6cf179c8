/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 gradients: which gradients are bf16, how they are rounded, and which stay fp32. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "plan/one_search.h"
#include "tiny.h"

enum { BATCH = 4, WIDTH = 16, TWICE = WIDTH * WIDTH, STEPS = 10 };

/* A weight that two products use, and one that a single product uses. */
struct pair {
    ckpt_tensor twice, once;
};

struct outcome {
    float loss, twice[TWICE], once[WIDTH];
    struct ckpt_program_info info;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct pair *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH});
    ckpt_tensor h = ckpt_linear(t, ckpt_cast(t, x, CKPT_BF16), m->twice, CKPT_NONE);
    h = ckpt_linear(t, ckpt_gelu_tanh(t, h), m->twice, CKPT_NONE);
    ckpt_tensor y = ckpt_linear(t, h, m->once, CKPT_NONE);
    ckpt_output_gradient(t, "twice", m->twice);
    ckpt_output_gradient(t, "once", m->once);
    return ckpt_mse(t, y, ckpt_input(t, "target", CKPT_F32, 2, (int64_t[]){batch, 1}), CKPT_NONE);
}

static void step_pair(enum ckpt_dtype dtype, int64_t micro, struct outcome *o)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct pair m;
    float x[BATCH][WIDTH], target[BATCH];
    ckpt_program *p;
    ckpt *c;
    options.device = "cpu"; /* a GPU may add a bf16 result in another order */
    options.micro_batch = micro;
    options.verify = true;
    a.grad_dtype = dtype;
    for (int i = 0; i < BATCH * WIDTH; i++)
        x[i / WIDTH][i % WIDTH] = sinf((float)i);
    for (int i = 0; i < BATCH; i++)
        target[i] = 3.f + cosf((float)i);
    assert_int_equal(ckpt_open(&c, &options), 0);
    m.twice = ckpt_param(c, "twice", CKPT_BF16, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
    m.once = ckpt_param(c, "once", CKPT_BF16, 2, (int64_t[]){1, WIDTH}, CKPT_XAVIER, true);
    assert_int_equal(ckpt_compile(c, record, &m, ckpt_adamw(c, &a), BATCH, &p), 0);
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_feed(p, "target", target, sizeof target), 0);
    assert_int_equal(ckpt_step(p, &o->loss), 0);
    assert_int_equal(ckpt_fetch(p, "twice", o->twice, sizeof o->twice), 0);
    assert_int_equal(ckpt_fetch(p, "once", o->once, sizeof o->once), 0);
    o->info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, &o->info);
    ckpt_close(c);
}

/* A gradient without a sum is rounded once, and delivered as fp32; a sum of two uses is not
 * rounded. */
static void test_one_use(void **state)
{
    (void)state;
    struct outcome wide, narrow;
    uint16_t half[WIDTH];
    float rounded[WIDTH];
    step_pair(CKPT_F32, 0, &wide);
    step_pair(CKPT_BF16, 0, &narrow);
    assert_memory_equal(wide.twice, narrow.twice, sizeof wide.twice);
    assert_memory_not_equal(wide.once, narrow.once, sizeof wide.once);
    ckpt_to_bf16(wide.once, half, WIDTH);
    ckpt_from_bf16(half, rounded, WIDTH);
    assert_memory_equal(rounded, narrow.once, sizeof rounded);
}

/* Micro-steps are summed in fp32. */
static void test_micro_steps(void **state)
{
    (void)state;
    struct outcome wide, narrow;
    step_pair(CKPT_F32, 2, &wide);
    step_pair(CKPT_BF16, 2, &narrow);
    assert_memory_equal(wide.twice, narrow.twice, sizeof wide.twice);
    assert_memory_equal(wide.once, narrow.once, sizeof wide.once);
    assert_true(wide.info.grad_norm == narrow.info.grad_norm);
    assert_int_equal(wide.info.gradient_bytes, narrow.info.gradient_bytes);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)a[i] * a[i];
    }
    return sqrt(difference / size);
}

static void train_tiny(enum ckpt_dtype dtype, enum ckpt_dtype grad_dtype, int steps,
                       struct tiny_result *r)
{
    const struct tiny m = {.dtype = dtype, .batch = 2, .length = 12, .width = 32, .heads = 2};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    char message[1024];
    o.verify = true;
    a.lr = 1e-3f;
    a.eps = 1e-3f; /* so that an update depends smoothly on the gradient */
    a.clip_norm = 0.5f;
    a.ema_decay = 0.9f;
    a.grad_dtype = grad_dtype;
    if (tiny_train(m, &o, &a, steps, r, message))
        fail_msg("%s", message);
}

/* Gradients, norms and masters differ no more than a single rounding of the gradients explains. */
static void test_parity(void **state)
{
    (void)state;
    struct tiny_result wide, narrow;
    train_tiny(CKPT_BF16, CKPT_F32, 1, &wide);
    train_tiny(CKPT_BF16, CKPT_BF16, 1, &narrow);
    assert_true(wide.loss[0] == narrow.loss[0]);
    assert_true(fabs(wide.norm[0] - narrow.norm[0]) < 1e-3 * wide.norm[0]);
    double error = distance(wide.gradients, narrow.gradients, wide.numel);
    assert_true(error > 0 && error < 1. / 256);
    assert_true(10 * narrow.info.gradient_bytes < 6 * wide.info.gradient_bytes);
    tiny_result_free(&wide);
    tiny_result_free(&narrow);
    train_tiny(CKPT_BF16, CKPT_F32, STEPS, &wide);
    train_tiny(CKPT_BF16, CKPT_BF16, STEPS, &narrow);
    error = distance(wide.values, narrow.values, wide.numel);
    assert_true(error > 0 && error < 1e-3);
    assert_true(distance(wide.ema, narrow.ema, wide.numel) < 1e-3);
    tiny_result_free(&wide);
    tiny_result_free(&narrow);
}

/* Gradients of fp32 parameters are never rounded. */
static void test_fp32_model(void **state)
{
    (void)state;
    struct tiny_result wide, narrow;
    train_tiny(CKPT_F32, CKPT_F32, 2, &wide);
    train_tiny(CKPT_F32, CKPT_BF16, 2, &narrow);
    assert_true(tiny_same(&wide, &narrow));
    assert_int_equal(wide.info.gradient_bytes, narrow.info.gradient_bytes);
    tiny_result_free(&wide);
    tiny_result_free(&narrow);
}

static void test_other_dtype(void **state)
{
    (void)state;
    const struct tiny m = {.dtype = CKPT_F32, .batch = 2, .length = 12, .width = 32, .heads = 2};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct tiny_result r;
    char message[1024];
    a.grad_dtype = CKPT_I32;
    assert_int_equal(tiny_train(m, &o, &a, 1, &r, message), CKPT_EINVAL);
    assert_non_null(strstr(message, "grad_dtype"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_use),     cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_parity),      cmocka_unit_test(test_fp32_model),
        cmocka_unit_test(test_other_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

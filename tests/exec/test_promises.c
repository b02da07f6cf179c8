/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guarantees, on a small transformer: the budget is never exceeded and never changes a bit of
 * the result; an infeasible budget is refused with one that suffices; and more memory never gives a
 * slower plan.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "plan/one_search.h"
#include "tiny.h"

enum { STEPS = 4, BUDGETS = 10 };

static const struct tiny shape = {.batch = 4, .length = 48, .width = 24, .heads = 2};

static struct ckpt_options options(int64_t vram, int64_t micro)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.vram = vram;
    o.micro_batch = micro;
    o.verify = true;
    return o;
}

static void train_or_fail(const struct tiny *m, int64_t vram, int64_t micro,
                          enum ckpt_dtype grad_dtype, struct tiny_result *r)
{
    char message[1024];
    struct ckpt_adamw a = tiny_adamw();
    a.grad_dtype = grad_dtype;
    struct ckpt_options o = options(vram, micro);
    if (tiny_train(*m, &o, &a, STEPS, r, message))
        fail_msg("--vram %lld: %s", (long long)vram, message);
}

static void check_wall(const struct tiny_result *r, int64_t vram)
{
    assert_true(r->info.planned_peak <= vram);
    assert_int_equal(r->info.arena_bytes, r->info.planned_peak);
    assert_true(r->info.min_budget <= vram);
}

/* Compares losses, norms, gradients and weights under every budget with those without a budget. */
static void sweep(enum ckpt_dtype dtype, int64_t micro, enum ckpt_dtype grad_dtype)
{
    struct tiny m = shape;
    m.dtype = dtype;
    struct tiny_result free_run, r;
    train_or_fail(&m, 0, micro, grad_dtype, &free_run);
    int64_t low = free_run.info.min_budget, high = free_run.info.planned_peak;
    assert_true(low < high * 9 / 10); /* there is something to choose */
    double slowest = INFINITY;
    int recomputed = 0;
    for (int i = 0; i < BUDGETS; i++) {
        int64_t vram = low + (high - low) * i / (BUDGETS - 1);
        train_or_fail(&m, vram, micro, grad_dtype, &r);
        check_wall(&r, vram);
        assert_true(tiny_same(&free_run, &r));
        assert_true(r.info.step_seconds <= slowest);
        slowest = r.info.step_seconds;
        recomputed += r.info.recomputed_ops > 0;
        tiny_result_free(&r);
    }
    assert_true(recomputed >= BUDGETS / 2);
    tiny_result_free(&free_run);
}

static void test_fp32(void **state)
{
    (void)state;
    sweep(CKPT_F32, 0, CKPT_F32);
}

static void test_bf16(void **state)
{
    (void)state;
    sweep(CKPT_BF16, 0, CKPT_F32);
}

static void test_fp32_micro_steps(void **state)
{
    (void)state;
    sweep(CKPT_F32, 2, CKPT_F32);
}

static void test_bf16_micro_steps(void **state)
{
    (void)state;
    sweep(CKPT_BF16, 1, CKPT_F32);
}

static void test_bf16_gradients(void **state)
{
    (void)state;
    sweep(CKPT_BF16, 0, CKPT_BF16);
}

/* --micro-batch auto: the whole batch if there is room, otherwise a smaller size; the results are
 * then the same as with that size given. */
static void test_micro_batch_auto(void **state)
{
    (void)state;
    struct tiny m = shape;
    struct tiny_result whole, least, same;
    train_or_fail(&m, 0, CKPT_AUTO, CKPT_F32, &whole);
    assert_int_equal(whole.info.micro_batch, m.batch);
    int64_t low = whole.info.min_budget;
    char message[1024];
    struct ckpt_adamw a = tiny_adamw();
    struct ckpt_options o = options(low - 1, 0);
    assert_int_equal(tiny_train(m, &o, &a, 1, &least, message), CKPT_EBUDGET);
    train_or_fail(&m, low - 1, CKPT_AUTO, CKPT_F32, &least);
    assert_true(least.info.micro_batch < m.batch);
    train_or_fail(&m, low - 1, least.info.micro_batch, CKPT_F32, &same);
    assert_true(tiny_same(&least, &same));
    o = options(1, CKPT_AUTO);
    tiny_result_free(&same);
    assert_int_equal(tiny_train(m, &o, &a, 1, &same, message), CKPT_EBUDGET);
    tiny_result_free(&whole);
    tiny_result_free(&least);
}

static void test_refusal(void **state)
{
    (void)state;
    struct tiny m = shape;
    struct tiny_result r;
    char message[1024], number[32];
    struct ckpt_adamw a = tiny_adamw();
    train_or_fail(&m, 0, 0, CKPT_F32, &r);
    int64_t low = r.info.min_budget;
    tiny_result_free(&r);
    struct ckpt_options o = options(low - 1, 0);
    assert_int_equal(tiny_train(m, &o, &a, 1, &r, message), CKPT_EBUDGET);
    snprintf(number, sizeof number, "%lld", (long long)low);
    assert_non_null(strstr(message, number));    /* the smallest budget */
    assert_non_null(strstr(message, "tiny.c:")); /* the op at the peak */
    o = options(1, 0);
    assert_int_equal(tiny_train(m, &o, &a, 1, &r, message), CKPT_EBUDGET);
    train_or_fail(&m, low, 0, CKPT_F32, &r);
    tiny_result_free(&r);
}

static float largest_difference(const float *a, const float *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)a[i] * a[i];
    }
    return (float)sqrt(difference / size);
}

/* Micro-steps change only the order of sums. */
static void test_micro_batch(void **state)
{
    (void)state;
    struct tiny m = shape;
    struct tiny_result whole, parts;
    char message[1024];
    struct ckpt_adamw a = tiny_adamw();
    struct ckpt_options one = options(0, 0), four = options(0, 1);
    assert_int_equal(tiny_train(m, &one, &a, 1, &whole, message), 0);
    assert_int_equal(tiny_train(m, &four, &a, 1, &parts, message), 0);
    assert_true(fabsf(whole.loss[0] - parts.loss[0]) < 1e-6f * whole.loss[0]);
    assert_true(largest_difference(whole.gradients, parts.gradients, whole.numel) < 1e-6f);
    assert_true(parts.info.planned_peak < whole.info.planned_peak);
    tiny_result_free(&whole);
    tiny_result_free(&parts);
    struct ckpt_options three = options(0, 3);
    assert_int_equal(tiny_train(m, &three, &a, 1, &whole, message), CKPT_EINVAL);
    assert_non_null(strstr(message, "does not divide"));
}

/* The number of kernel threads changes nothing. */
static void test_threads(void **state)
{
    (void)state;
    struct tiny m = shape;
    struct tiny_result one, many;
    char message[1024];
    struct ckpt_adamw a = tiny_adamw();
    struct ckpt_options o = options(0, 0);
    o.threads = 1;
    assert_int_equal(tiny_train(m, &o, &a, STEPS, &one, message), 0);
    o.threads = 3;
    assert_int_equal(tiny_train(m, &o, &a, STEPS, &many, message), 0);
    assert_true(tiny_same(&one, &many));
    tiny_result_free(&one);
    tiny_result_free(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_fp32_micro_steps),
        cmocka_unit_test(test_bf16_micro_steps),
        cmocka_unit_test(test_micro_batch_auto),
        cmocka_unit_test(test_bf16_gradients),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_micro_batch),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

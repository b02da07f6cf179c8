/* SPDX-License-Identifier: Apache-2.0 */
/* Whole steps by several ranks: every stage gives the same bits, and the results of one rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "dist/crew_checks.h"
#include "unit/test_directory.h"

/* Allowed difference between the weights of several ranks and of one, in the norm: products of
 * other sizes are summed in other orders (5.3e-6 measured with AVX-512). */
#define SUMS 1e-5

/* Stage 2, which keeps the copies that 3 may free, runs with three ranks; four ranks are in
 * test_hosts.c. */
static void check_stages(int ranks, struct crew base, const struct crew_result *alone)
{
    struct crew_result first, other;
    base.ranks = ranks;
    base.zero = 0;
    crew_expect_end(&base, &first);
    assert_true(crew_same(&first, ranks, &first, ranks));
    if (alone && crew_distance(&first, alone) > SUMS)
        fail_msg("%d ranks differ from one by %g", ranks, crew_distance(&first, alone));
    for (int zero = 1; zero <= 3; zero++) {
        if (zero == 2 && ranks != 3)
            continue;
        base.zero = zero;
        crew_expect_end(&base, &other);
        if (!crew_same(&first, ranks, &other, ranks))
            fail_msg("%d ranks: stage %d gives other bits than stage 0", ranks, zero);
        crew_free(&other);
    }
    crew_free(&first);
}

static void check_against_one(struct crew base, int least, int most)
{
    struct crew_result alone;
    base.ranks = 1;
    crew_expect_end(&base, &alone);
    for (int ranks = least; ranks <= most; ranks++)
        check_stages(ranks, base, &alone);
    crew_free(&alone);
}

static void test_stages(void **state)
{
    (void)state;
    check_against_one(crew_small(1, 0, 0), 2, 3);
}

static void test_micro_steps(void **state)
{
    struct crew crew = crew_small(2, 3, CKPT_AUTO);
    struct crew_result r;
    (void)state;
    check_against_one(crew_small(1, 0, 1), 3, 3);
    crew.steps = 1;
    crew_expect_end(&crew, &r);
    assert_true(crew_same(&r, 2, &r, 2));
    crew_free(&r);
}

static void test_without_clipping(void **state)
{
    struct crew crew = crew_small(1, 0, 0);
    (void)state;
    crew.adamw.clip_norm = 0;
    check_against_one(crew, 2, 2);
}

static void test_bf16(void **state)
{
    struct crew crew = crew_small(1, 0, 0);
    (void)state;
    crew.model.dtype = CKPT_BF16;
    check_stages(2, crew, NULL);
    crew.adamw.grad_dtype = CKPT_BF16;
    check_stages(2, crew, NULL);
}

/* The same layers use 8 bits, and every stage rounds the common values alike.  Two ranks give the
 * results of one rank with two micro-steps, with the same products. */
static void test_fp8(void **state)
{
    struct crew crew = crew_small(1, 0, 2);
    struct crew_result alone, two;
    (void)state;
    crew.model =
        (struct tiny){.dtype = CKPT_BF16, .batch = 4, .length = 64, .width = 128, .heads = 4};
    crew.options.matmul = "fp8";
    crew.steps = 2;
    crew_expect_end(&crew, &alone);
    check_stages(2, crew, &alone);
    crew.ranks = 2;
    crew_expect_end(&crew, &two);
    assert_non_null(strstr(two.table, "25 of 27 linear layers"));
    crew_free(&two);
    crew_free(&alone);
}

static ckpt_optimizer *adapt(ckpt *c, const struct ckpt_adamw *adamw, const char *format)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    lora.pattern = "*.weight";
    assert_true(ckpt_lora(c, &lora) > 0 && ckpt_quantize_frozen(c, "*.weight", format) > 0);
    return ckpt_adamw(c, adamw);
}

static ckpt_optimizer *adapted(ckpt *c, const struct ckpt_adamw *adamw)
{
    return adapt(c, adamw, "nf4");
}

static ckpt_optimizer *adapted_otherwise(ckpt *c, const struct ckpt_adamw *adamw)
{
    return adapt(c, adamw, "int8");
}

/* Every rank has all codes, and shares of adapters.  Ranks with different codes are reported. */
static void test_codes(void **state)
{
    struct crew crew = crew_small(1, 0, 2), other;
    struct crew_result alone, r;
    (void)state;
    crew.model =
        (struct tiny){.dtype = CKPT_BF16, .batch = 4, .length = 16, .width = 64, .heads = 4};
    crew.model.no_gradients = true; /* of weights that have none */
    crew.optimizer = adapted;
    crew.steps = 3;
    crew_expect_end(&crew, &alone);
    check_stages(2, crew, &alone);
    crew_free(&alone);
    crew.ranks = 2;
    crew.zero = 3;
    crew_expect_end(&crew, &r);
    assert_non_null(strstr(r.table, "frozen weights in nf4"));
    crew_free(&r);
    other = crew;
    other.optimizer = adapted_otherwise;
    crew.other = &other;
    crew.faulty = 1;
    crew_train(&crew, &r);
    assert_true(r.rc[0] && strstr(r.message[0], "frozen weights"));
    crew_free(&r);
}

/* The same storages have codes at every stage, and also on one rank with two micro-steps. */
static void test_int8(void **state)
{
    struct crew crew = crew_small(1, 0, 2);
    struct crew_result alone, two;
    (void)state;
    crew.model =
        (struct tiny){.dtype = CKPT_BF16, .batch = 4, .length = 64, .width = 128, .heads = 4};
    crew.options.activations = "8bit";
    crew.steps = 2;
    crew_expect_end(&crew, &alone);
    check_stages(2, crew, &alone);
    crew.ranks = 2;
    crew_expect_end(&crew, &two);
    assert_non_null(strstr(two.table, "--activations 8bit"));
    crew_free(&two);
    crew_free(&alone);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Under the smallest budget, buckets are gathered again; no bit changes. */
static void test_small_budget(void **state)
{
    struct crew crew = crew_small(3, 0, 0);
    struct crew_result whole, kept, dropped;
    (void)state;
    crew.in_full = true;
    crew_expect_end(&crew, &whole);
    crew.zero = 2;
    crew_expect_end(&crew, &kept);
    crew.zero = 3;
    crew_expect_end(&crew, &dropped);
    int64_t smallest = dropped.info[0].min_budget;
    assert_true(smallest > 0);
    crew_free(&dropped);
    crew.options.vram = smallest;
    crew_expect_end(&crew, &dropped);
    assert_true(kept.gathers > 0 && dropped.gathers > kept.gathers);
    assert_int_equal(whole.gathers, 0);
    assert_true(smallest < kept.info[0].min_budget);
    assert_true(kept.info[0].min_budget < whole.info[0].min_budget);
    assert_true(crew_same(&whole, 3, &dropped, 3));
    assert_true(crew_same(&whole, 3, &kept, 3));
    crew_free(&whole);
    crew_free(&kept);
    crew_free(&dropped);
}

/* Gathered buckets of a step, under a budget at this many thousandths of the way from the smallest
 * of stage 3 to that of stage 2. */
static int32_t gathers_at(int64_t parts, int64_t smallest, int64_t kept, double *seconds)
{
    struct crew crew = crew_small(2, 3, 0);
    struct crew_result r;
    crew.steps = 1;
    crew.options.vram = smallest + (kept - smallest) * parts / 1000;
    crew_expect_end(&crew, &r);
    int32_t gathers = r.gathers;
    *seconds = r.info[0].step_seconds;
    crew_free(&r);
    return gathers;
}

/* With enough memory all copies are kept: the plan equals stage 2.  With less it keeps some
 * buckets, and with the smallest budget it gathers all buckets a second time but those that the
 * turn from forward to backward needs at once. */
static void test_kept_or_dropped(void **state)
{
    struct crew crew = crew_small(2, 2, 0);
    struct crew_result kept, any;
    double least, some;
    (void)state;
    crew.steps = 1;
    crew.in_full = true;
    crew_expect_end(&crew, &kept);
    crew.zero = 3;
    crew_expect_end(&crew, &any);
    assert_true(any.order == kept.order && any.gathers == kept.n_buckets);
    assert_int_equal(any.info[0].planned_peak, kept.info[0].planned_peak);
    int64_t smallest = any.info[0].min_budget, whole = kept.info[0].min_budget;
    int32_t most = gathers_at(0, smallest, whole, &least);
    int32_t mixed = gathers_at(800, smallest, whole, &some);
    assert_true(most >= 2 * kept.n_buckets - 1);
    assert_true(mixed < most && mixed > kept.n_buckets);
    assert_true(least >= some && some >= any.info[0].step_seconds);
    /* With --zero 3 it gathers all a second time, whatever the memory. */
    crew.options.zero = 3;
    crew_free(&any);
    crew_expect_end(&crew, &any);
    assert_int_equal(any.gathers, 2 * kept.n_buckets);
    assert_true(crew_same(&kept, 2, &any, 2));
    crew_free(&kept);
    crew_free(&any);
}

/* The bytes that live until the update, exactly: gradients, and the loss. */
static void expect_left(int zero, int64_t micro)
{
    struct crew crew = crew_small(3, zero, micro);
    struct crew_result r;
    crew.steps = 1;
    crew.in_full = true;
    crew_expect_end(&crew, &r);
    assert_true(r.info[0].min_budget > 0);
    int64_t gradients = micro ? r.gradients : zero ? r.shares : r.buckets;
    assert_true(r.shares < r.buckets && r.buckets < r.gradients);
    if (r.left != gradients + CKPT_ALIGN)
        fail_msg("stage %d: %lld bytes wait for the update, not %lld", zero, (long long)r.left,
                 (long long)(gradients + CKPT_ALIGN));
    /* Full gradients need not exist at the same time, nor full values. */
    assert_true(zero == 0 || zero == 2 || (r.least < r.gradients) == !micro);
    crew_free(&r);
}

static void test_gradients_in_shares(void **state)
{
    struct crew crew = crew_small(3, 3, 0);
    struct crew_result r;
    (void)state;
    expect_left(0, 0);
    expect_left(1, 0);
    expect_left(2, 0);
    expect_left(3, 0);
    expect_left(3, 1);
    crew.model.dtype = CKPT_BF16;
    crew.adamw.grad_dtype = CKPT_BF16;
    crew.steps = 1;
    crew_expect_end(&crew, &r);
    assert_true(r.left < r.shares && r.left == r.narrow_shares + CKPT_ALIGN);
    crew_free(&r);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* One rank reads a file that several ranks wrote. */
static void check_file(const struct crew *crew, const struct crew_result *written)
{
    struct tiny model = crew->model;
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    ckpt *c;
    int64_t at = 0;
    float *values = malloc((size_t)written->numel * sizeof *values);
    assert_non_null(values);
    assert_int_equal(ckpt_open(&c, &crew->options), 0);
    tiny_create(&model, c);
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), 0);
    for (int i = 0; i < model.n; i++) {
        ckpt_param_info(c, model.param[i], &info);
        assert_int_equal(ckpt_param_get(c, model.param[i], CKPT_VALUE, values + at, info.numel), 0);
        at += info.numel;
    }
    assert_memory_equal(values, written->values[0], (size_t)at * sizeof *values);
    ckpt_close(c);
    free(values);
}

/* Written by three ranks, read by two with shares, by two with full copies, and by one. */
static void test_save_and_load(void **state)
{
    struct crew crew = crew_small(3, 3, 0);
    struct crew_result written, shares, whole, alone;
    (void)state;
    crew.save = path;
    crew_expect_end(&crew, &written);
    check_file(&crew, &written);
    crew.save = NULL;
    crew.load = path;
    crew.steps = 1;
    crew.ranks = crew.zero = 2;
    crew_expect_end(&crew, &shares);
    crew.zero = 0;
    crew_expect_end(&crew, &whole);
    crew.ranks = 1;
    crew_expect_end(&crew, &alone);
    assert_true(crew_same(&shares, 2, &whole, 2));
    assert_true(crew_distance(&whole, &alone) <= 1e-6);
    crew_free(&written);
    crew_free(&shares);
    crew_free(&whole);
    crew_free(&alone);
}

/* The last steps, by any ranks, from a state that others wrote after the first steps. */
static void resume(struct crew crew, int ranks, int zero, const struct crew_result *first,
                   struct crew_result *r)
{
    crew.ranks = ranks;
    crew.zero = zero;
    crew.load_state = path;
    crew_expect_end(&crew, r);
    for (int i = 0; i < ranks; i++)
        for (int s = 0; s < CREW_STEPS / 2; s++) {
            r->loss[i][s] = first->loss[0][s];
            r->norm[i][s] = first->norm[0][s];
        }
}

/* Resumes from the file, with the bits of the uninterrupted run. */
static void expect_resumed(struct crew crew, int zero, const struct crew_result *whole,
                           const struct crew_result *first)
{
    struct crew_result rest;
    resume(crew, crew.ranks, zero, first, &rest);
    assert_true(crew_same(whole, crew.ranks, &rest, crew.ranks));
    crew_free(&rest);
}

/* Another number of ranks gives the results of an uninterrupted run with that number, but for the
 * order of sums. */
static void expect_near(struct crew crew, int ranks, const struct crew_result *whole,
                        const struct crew_result *first)
{
    struct crew_result rest;
    resume(crew, ranks, ranks > 1 ? 2 : 0, first, &rest);
    if (crew_distance(whole, &rest) > 1e-6)
        fail_msg("%d ranks go on for %d: off by %g", ranks, crew.ranks,
                 crew_distance(whole, &rest));
    crew_free(&rest);
}

static void train_first(struct crew crew, struct crew_result *whole, struct crew_result *first)
{
    crew_expect_end(&crew, whole);
    crew.steps = CREW_STEPS / 2;
    crew.save_state = path;
    crew_expect_end(&crew, first);
}

static void test_resume(void **state)
{
    struct crew crew = crew_small(3, 3, 0);
    struct crew_result whole, first;
    (void)state;
    train_first(crew, &whole, &first);
    expect_resumed(crew, 0, &whole, &first);
    expect_resumed(crew, 3, &whole, &first);
    expect_near(crew, 2, &whole, &first);
    expect_near(crew, 1, &whole, &first);
    crew_free(&whole);
    crew_free(&first);
    crew.ranks = 1;
    crew.zero = 0;
    train_first(crew, &whole, &first);
    expect_near(crew, 2, &whole, &first);
    crew_free(&whole);
    crew_free(&first);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* In the fourth step.  Before the first step there are calls for hosts, agreement, budgets, the
 * plan in five parts, and agreement on values; a step of stage 2 gathers, scatters and sums. */
static void test_faults_in_a_step(void **state)
{
    struct crew crew = crew_small(3, 2, 0);
    (void)state;
    int calls_of_a_step = 2 * (TINY_BLOCKS + 1) + 1;
    crew.faulty = 1;
    for (int k = COMM_FAULT_DROP; k <= COMM_FAULT_CORRUPT; k++)
        crew_expect_fault(crew, (enum comm_fault_kind)k, 9 + 3 * calls_of_a_step + 2, 0, 4, 5);
}

static void expect_other(struct crew crew, const struct crew *other, const char *what)
{
    char words[96];
    snprintf(words, sizeof words, "rank 1 started with another %s than rank 0", what);
    crew.other = other;
    crew_expect_code(&crew, CKPT_ECOMM, (const char *[]){words, NULL});
}

static void test_ranks_that_differ(void **state)
{
    struct crew crew = crew_small(3, 2, 0), other;
    (void)state;
    crew.faulty = 1;
    other = crew;
    other.adamw.clip_norm = 0.25f;
    expect_other(crew, &other, "optimizer");
    other = crew;
    other.model.width *= 2;
    expect_other(crew, &other, "model");
    char batch[32];
    other = crew;
    other.model.batch *= 2;
    snprintf(batch, sizeof batch, "batch (%lld)", (long long)(other.model.batch / other.ranks));
    expect_other(crew, &other, batch);
    other = crew;
    other.options.seed++;
    expect_other(crew, &other, "--seed");
    other = crew;
    other.zero = 3;
    expect_other(crew, &other, "--zero");
    crew.nan_step = 3;
    crew_expect_code(&crew, CKPT_ENAN,
                     (const char *[]){"step 3", "the input 'x' on rank 1;", NULL});
}

/* The smallest budget of any rank holds for all, and the plan table names that rank. */
static void test_budgets_that_differ(void **state)
{
    struct crew crew = crew_small(3, 3, 0), one;
    struct crew_result alike, other;
    (void)state;
    crew.steps = 1;
    crew.in_full = true;
    crew_expect_end(&crew, &alike);
    crew.options.vram = alike.info[0].min_budget;
    crew_free(&alike);
    crew_expect_end(&crew, &alike);
    assert_null(strstr(alike.table, "smallest of"));
    crew.faulty = 1;
    one = crew;
    crew.other = &one;
    crew.options.vram *= 2;
    crew_expect_end(&crew, &other);
    assert_non_null(strstr(other.table, "planned with  --vram of rank 1, the smallest of 3 ranks"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(other.info[i].budget, one.options.vram);
        assert_int_equal(other.info[i].planned_peak, alike.info[0].planned_peak);
    }
    assert_true(crew_same(&alike, 3, &other, 3));
    crew_free(&other);
    one.options.vram--;
    crew_expect_code(&crew, CKPT_EBUDGET, (const char *[]){"no plan fits", "needs at least", NULL});
    crew_free(&alike);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_without_clipping),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_int8),
        cmocka_unit_test(test_small_budget),
        cmocka_unit_test(test_kept_or_dropped),
        cmocka_unit_test(test_gradients_in_shares),
        cmocka_unit_test_setup_teardown(test_save_and_load, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_resume, make_fresh_dir, remove_dir),
        cmocka_unit_test(test_faults_in_a_step),
        cmocka_unit_test(test_ranks_that_differ),
        cmocka_unit_test(test_budgets_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

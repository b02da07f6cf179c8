/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Means over unequal parts: a sum of means over different elements of a batch has the same loss,
 * norm and weights however the batch is split into micro-steps and ranks, up to the last bits, and
 * the same bits under every budget.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "dist/rank_threads.h"
#include "exec/program.h"

enum { BATCH = 8, PLACES = 16, WIDTH = 8, HIDDEN = 24, CLASSES = 10, STEPS = 3, MAX_RANKS = 4 };
enum { WEIGHTS = HIDDEN * WIDTH + CLASSES * HIDDEN };

/* What is trained, and how its batch is split. */
struct split {
    struct rank_thread as;
    bool linear, weighs, second, hand;  /* the loss: see record(); hand: means in single ops */
    bool draws;                         /* its last terms are random, also a mask */
    bool ahead;                         /* two steps are in flight, and labels are fed once */
    const struct ckpt_options *options; /* NULL: none */
    int targets;                        /* of the batch: ALL, or only so many */
    enum ckpt_dtype dtype;
    int zero, ranks;
    int64_t micro, vram, min_budget;
    bool in_full; /* min_budget is searched for */
    ckpt_tensor w[2];
    float loss[STEPS], norm[STEPS], weight[WEIGHTS];
};

enum { ALL = -1 };

static const float class_weight[CLASSES] = {1, 2, .5f, 1, 3, 1, 1, .25f, 1, 2};

static ckpt_tensor cross_entropy(const struct split *m, ckpt_tape *t, ckpt_tensor h, ckpt_tensor y)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    if (m->weighs)
        spec.weight = ckpt_constant(t, "classes", CKPT_F32, 1, (int64_t[]){CLASSES}, class_weight);
    spec.chunk = PLACES;
    return m->linear ? ckpt_linear_cross_entropy(t, h, m->w[1], CKPT_NONE, y, &spec)
                     : ckpt_cross_entropy(t, ckpt_linear(t, h, m->w[1], CKPT_NONE), y, &spec);
}

static ckpt_tensor scalar(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_reshape(t, x, 0, NULL);
}

/* The mean of x under a mask: the sum over at least one element. */
static ckpt_tensor mean_by_hand(ckpt_tape *t, ckpt_tensor x, ckpt_tensor mask)
{
    ckpt_tensor one = ckpt_cast(t, mask, CKPT_F32);
    ckpt_tensor sum = ckpt_sum(t, ckpt_mul(t, ckpt_cast(t, x, CKPT_F32), one), CKPT_ALL_AXES);
    ckpt_tensor count = ckpt_affine(t, ckpt_sum(t, one, CKPT_ALL_AXES), HIDDEN, 0);
    ckpt_tensor least = ckpt_full(t, 1, CKPT_F32, 0, NULL);
    return scalar(t, ckpt_div(t, sum, ckpt_maximum(t, count, least)));
}

/* The weighted mean of x: a product of means. */
static ckpt_tensor weighted_by_hand(ckpt_tape *t, ckpt_tensor x, ckpt_tensor weight)
{
    ckpt_tensor sum = ckpt_mean(t, ckpt_mul(t, ckpt_cast(t, x, CKPT_F32), weight), CKPT_ALL_AXES);
    ckpt_tensor by = ckpt_pow_scalar(t, ckpt_mean(t, weight, CKPT_ALL_AXES), -1);
    return scalar(t, ckpt_mul(t, by, sum));
}

/* A mean under a random mask, and one of products with noise. */
static ckpt_tensor random_means(const struct split *m, ckpt_tape *t, ckpt_tensor square, int64_t n)
{
    const int64_t places[] = {n, PLACES, 1};
    ckpt_tensor mask = ckpt_bernoulli(t, .4f, CKPT_F32, 3, places);
    ckpt_tensor a = (m->hand ? mean_by_hand : ckpt_masked_mean)(t, square, mask);
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 3, places);
    ckpt_tensor b = ckpt_mean(t, ckpt_mul(t, ckpt_dropout(t, square, .2f), noise), CKPT_ALL_AXES);
    return ckpt_add(t, a, scalar(t, b));
}

/* Cross entropy, and with `second` 0.01 times a mean of the hidden layer under another mask and 0.1
 * times a weighted one. */
static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct split *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){n, PLACES, WIDTH});
    ckpt_tensor y = ckpt_input(t, "y", CKPT_I32, 2, (int64_t[]){n, PLACES});
    ckpt_tensor rows = ckpt_input(t, "rows", CKPT_I32, 3, (int64_t[]){n, PLACES, 1});
    ckpt_tensor weight = ckpt_input(t, "weight", CKPT_F32, 3, (int64_t[]){n, 1, 1});
    ckpt_tensor h =
        ckpt_gelu_tanh(t, ckpt_linear(t, ckpt_cast(t, x, m->dtype), m->w[0], CKPT_NONE));
    ckpt_tensor loss = cross_entropy(m, t, h, y), square = ckpt_mul(t, h, h);
    ckpt_tensor zero = ckpt_full(t, 0, CKPT_I32, 0, NULL);
    if (m->draws)
        loss = ckpt_add(t, loss, random_means(m, t, square, n));
    if (!m->second)
        return loss;
    ckpt_tensor other = ckpt_and(t, ckpt_ne(t, rows, zero), ckpt_gt(t, rows, zero));
    ckpt_tensor a = (m->hand ? mean_by_hand : ckpt_masked_mean)(t, square, other);
    ckpt_tensor b = (m->hand ? weighted_by_hand : ckpt_masked_mean)(t, square, weight);
    loss = ckpt_add(t, loss, ckpt_affine(t, a, .01f, 0));
    return ckpt_add(t, loss, ckpt_affine(t, b, .1f, 0));
}

/* Sample 0 has a target at every place, the others have few; sample 5 has none. */
static int32_t target_of(const struct split *m, int step, int i, int k)
{
    const int place = i * PLACES + k;
    const bool counts = m->targets == ALL ? i == 0 || (i != 5 && k < 1 + i % 2)
                                          : place % 37 == 3 && place / 37 < m->targets;
    return counts ? (place * 7 + step) % CLASSES : -100;
}

static int feed(const struct split *m, ckpt_program *p, int step)
{
    static _Thread_local float x[BATCH][PLACES][WIDTH], weight[BATCH];
    static _Thread_local int32_t y[BATCH][PLACES], rows[BATCH][PLACES];
    const int64_t n = BATCH / m->ranks, first = m->as.rank * n;
    ckpt_fill_normal(5, (uint64_t)step, 1, x[0][0], BATCH * PLACES * WIDTH);
    for (int i = 0; i < BATCH; i++) {
        weight[i] = i % 3 ? 0 : .3f + (float)i;
        for (int k = 0; k < PLACES; k++) {
            y[i][k] = target_of(m, step, i, k);
            rows[i][k] = (i * 5 + k * 3 + step) % 7 < i % 4 ? 1 : k % 2 ? 0 : -1;
        }
    }
    int rc = ckpt_feed(p, "x", x[first], n * (int64_t)sizeof x[0]);
    if (!m->ahead || !step)
        rc = rc ? rc : ckpt_feed(p, "y", y[first], n * (int64_t)sizeof y[0]);
    rc = rc || !m->second ? rc : ckpt_feed(p, "rows", rows[first], n * (int64_t)sizeof rows[0]);
    return rc || !m->second ? rc : ckpt_feed(p, "weight", weight + first, n * 4);
}

static int steps(struct split *m, ckpt *c)
{
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p;
    sgd.lr = .5f;
    int rc = ckpt_compile(c, record, m, ckpt_sgd(c, &sgd), BATCH / m->ranks, &p);
    for (int s = 0; s < STEPS + m->ahead && !rc; s++) {
        const int last = s - m->ahead; /* the step that is waited for */
        rc = s < STEPS ? feed(m, p, s) : 0;
        rc = rc || s == STEPS ? rc : ckpt_submit(p);
        rc = rc || last < 0 ? rc : ckpt_wait(p, &m->loss[last]);
        rc = rc ? rc : ckpt_program_info(p, &info);
        if (last >= 0)
            m->norm[last] = (float)info.grad_norm;
    }
    m->min_budget = info.min_budget;
    rc = rc ? rc : ckpt_param_get(c, m->w[0], CKPT_VALUE, m->weight, HIDDEN * WIDTH);
    return rc ? rc
              : ckpt_param_get(c, m->w[1], CKPT_VALUE, m->weight + HIDDEN * WIDTH,
                               CLASSES * HIDDEN);
}

static void *train(void *arg)
{
    struct split *m = arg;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    if (m->options)
        o = *m->options;
    o.micro_batch = m->micro;
    o.vram = m->vram;
    ckpt *c = rank_open(&m->as, o, m->zero, 0);
    if (!c)
        return NULL;
    ckpt_plan_in_full(c, m->in_full);
    m->w[0] = ckpt_param(c, "w0", m->dtype, 2, (int64_t[]){HIDDEN, WIDTH}, CKPT_XAVIER, true);
    m->w[1] = ckpt_param(c, "w1", m->dtype, 2, (int64_t[]){CLASSES, HIDDEN}, CKPT_XAVIER, true);
    m->as.rc = steps(m, c);
    if (m->as.rc)
        print_message("rank %d: %s\n", m->as.rank, ckpt_error(c));
    ckpt_close(c);
    return NULL;
}

static struct split run(struct split m, int ranks, int64_t micro)
{
    static struct split all[MAX_RANKS];
    m.ranks = ranks;
    m.micro = micro;
    for (int r = 0; r < ranks; r++)
        all[r] = m;
    run_ranks(all, sizeof all[0], ranks, 0, train);
    return all[0];
}

static void expect_close(const char *what, double got, double want, double scale, double rounding)
{
    if (!(fabs(got - want) <= rounding * scale))
        fail_msg("%s is %.9g, not %.9g", what, got, want);
}

static void compare(const struct split *got, const struct split *want, double rounding)
{
    char what[80];
    for (int s = 0; s < STEPS; s++) {
        snprintf(what, sizeof what, "loss %d, micro %lld, ranks %d", s, (long long)got->micro,
                 got->ranks);
        expect_close(what, got->loss[s], want->loss[s], fabs(want->loss[s]), rounding);
        memcpy(what, "norm", 4);
        expect_close(what, got->norm[s], want->norm[s], fabs(want->norm[s]), rounding);
    }
    for (int i = 0; i < WEIGHTS; i++)
        expect_close("a weight", got->weight[i], want->weight[i], 1, rounding);
}

/* Micro-steps 1, 2, 4 and 8 of 1, 2 and 4 ranks. */
static void check_splits(struct split m, double rounding)
{
    const struct split whole = run(m, 1, BATCH);
    for (int ranks = 1; ranks <= MAX_RANKS; ranks *= 2)
        for (int64_t micro = BATCH / ranks; micro; micro /= 2) {
            m.zero = (int)(micro + ranks) % 4;
            const struct split got = run(m, ranks, micro);
            compare(&got, &whole, rounding);
        }
}

static void test_losses(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        check_splits(
            (struct split){.linear = i & 1, .weighs = i & 2, .second = i & 4, .targets = ALL},
            2e-6);
    check_splits((struct split){.second = true, .hand = true, .targets = ALL}, 2e-6);
    check_splits((struct split){.second = true, .targets = ALL, .dtype = CKPT_BF16}, 2e-2);
}

/* Two targets in the whole batch, so most parts have none; then no target at all. */
static void test_few_targets(void **state)
{
    (void)state;
    check_splits((struct split){.targets = 2, .second = true}, 2e-6);
    check_splits((struct split){.targets = 2, .linear = true}, 2e-6);
    check_splits((struct split){.targets = 0}, 0);
    const struct split by_call = run((struct split){.second = true, .targets = ALL}, 1, BATCH);
    const struct split by_hand =
        run((struct split){.second = true, .hand = true, .targets = ALL}, 1, 2);
    compare(&by_hand, &by_call, 2e-6);
    const struct split none = run((struct split){.targets = 0}, 1, 1);
    for (int s = 0; s < STEPS; s++)
        assert_true(none.loss[s] == 0 && none.norm[s] == 0);
}

/* Noise, dropout and a random mask after other means. */
static void test_random(void **state)
{
    (void)state;
    check_splits((struct split){.draws = true, .targets = ALL}, 2e-6);
    check_splits((struct split){.draws = true, .weighs = true, .targets = ALL}, 2e-6);
    check_splits((struct split){.draws = true, .second = true, .targets = ALL}, 2e-6);
    check_splits((struct split){.draws = true, .hand = true, .targets = ALL}, 2e-6);
}

/* Host and NVMe tiers under the smallest budgets; two steps in flight. */
static void test_options(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ckpt_options o = CKPT_OPTIONS_INIT;
        o.host = i ? 80 << 20 : 1 << 20;
        o.nvme = i ? "/tmp:1M" : NULL;
        struct split m = {
            .second = true, .targets = ALL, .options = &o, .ahead = i, .in_full = true};
        const struct split whole = run(m, 1, BATCH);
        for (m.micro = 1; m.micro < BATCH; m.micro *= 2) {
            m.vram = 0;
            const struct split free = run(m, 1, m.micro);
            m.vram = free.min_budget;
            assert_true(m.vram > 0);
            const struct split small = run(m, 1, m.micro);
            compare(&free, &whole, 2e-6);
            assert_memory_equal(free.loss, small.loss, sizeof free.loss);
            assert_memory_equal(free.weight, small.weight, sizeof free.weight);
        }
    }
    check_splits((struct split){.second = true, .targets = ALL, .ahead = true}, 2e-6);
}

static void test_budgets(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= BATCH; micro *= 2) {
        struct split m = {
            .second = true, .linear = micro % 4 == 1, .targets = ALL, .in_full = true};
        const struct split free = run(m, 1, micro);
        assert_true(free.min_budget > 0);
        for (int k = 0; k < 2; k++) {
            m.vram = free.min_budget + k * 1024;
            const struct split got = run(m, 1, micro);
            assert_memory_equal(got.loss, free.loss, sizeof free.loss);
            assert_memory_equal(got.norm, free.norm, sizeof free.norm);
            assert_memory_equal(got.weight, free.weight, sizeof free.weight);
        }
    }
}

/* The size that --micro-batch auto takes under a small budget gives the loss of the whole batch. */
static void test_auto(void **state)
{
    (void)state;
    for (int hand = 0; hand < 2; hand++) {
        struct split m = {.second = true, .hand = hand, .targets = ALL, .in_full = true};
        const struct split whole = run(m, 1, BATCH);
        m.vram = run(m, 1, 1).min_budget;
        assert_true(m.vram > 0 && m.vram < whole.min_budget);
        const struct split got = run(m, 1, CKPT_AUTO);
        compare(&got, &whole, 2e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses),  cmocka_unit_test(test_few_targets),
        cmocka_unit_test(test_random),  cmocka_unit_test(test_options),
        cmocka_unit_test(test_budgets), cmocka_unit_test(test_auto)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State in bf16: stochastic rounding by its definition (what bf16 has stays, the expectation is
 * exact, NaN and infinity stay), where its random words come from, and the update against a replay
 * in double with the same words, bit by bit, for every kind and instruction set; shares of buckets
 * against whole parameters; and why not to nearest.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attr.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"
#include "core/random.h"
#include "unit/philox.h"
#include "optim/host_update.h"
#include "optim/optim.h"
#include "unit/typical_update.h"

enum { MOST = 2 * OPTIM_CHUNK + 77, NOISES = 1 << 16 };

/* ---- rounding -------------------------------------------------------------------------------- */

static void test_bf16_stays(void **state)
{
    static const uint32_t noise[] = {0, 1, 0x7fff, 0x8000, 0xffff};
    (void)state;
    for (uint32_t half = 0; half < NOISES; half++)
        for (size_t k = 0; k < sizeof noise / sizeof *noise; k++) {
            float x = bf16_load((uint16_t)half), y = update_round(x, noise[k]);
            assert_memory_equal(&x, &y, sizeof x);
        }
}

static void test_not_finite(void **state)
{
    static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7f800001, 0x7fffffff,
                                   0xffffffff, 0x7fc00000, 0xff8abcde};
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (uint32_t noise = 0; noise < NOISES; noise++) {
            float x = float_of_bits(odd[i]);
            uint16_t half = bf16_round(update_round(x, noise));
            assert_int_equal(isnan(bf16_load(half)), isnan(x));
            assert_true(isnan(x) || bf16_load(half) == x);
        }
}

/* Over all 2^16 noises: the neighbours alone, and their mean is x.  In double that is exact. */
static void check_expectation(float x)
{
    const uint32_t bits = float_bits(x);
    const float below = float_of_bits(bits & 0xffff0000u);
    const float above = float_of_bits((bits & 0xffff0000u) + 0x10000u);
    double sum = 0;
    for (uint32_t noise = 0; noise < NOISES; noise++) {
        float y = update_round(x, noise);
        assert_true(y == below || y == above);
        sum += (double)y;
    }
    if (isfinite(above))
        assert_true(sum / NOISES == (double)x);
}

static void test_expectation(void **state)
{
    static const float some[] = {
        1.f, 1.0001f, -1.0001f,   3.14159265f,    -2.7e-20f, 1e-40f,         -1e-45f,
        0.f, -0.f,    1.9999999f, 0x1.fffffep-1f, 3e38f,     0x1.fffffep127f};
    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        check_expectation(some[i]);
    for (uint32_t i = 0; i < 40; i++)
        check_expectation(float_of_bits((i * 2654435761u) & ~(UINT32_C(1) << 30)));
}

/* ---- sums of micro-steps --------------------------------------------------------------------- */

/* Adds x to n elements of sum, as op `place` of the tape in a micro-step. */
static void add_narrow(uint16_t *sum, const void *x, enum ckpt_dtype dtype, int64_t n,
                       int32_t micro, int32_t place)
{
    struct ckpt_view view[] = {
        {sum, {.dtype = CKPT_BF16, .ndim = 1, .shape = {n}, .stride = {1}}},
        {(void *)(uintptr_t)x, {.dtype = dtype, .ndim = 1, .shape = {n}, .stride = {1}}}};
    const struct ckpt_run run = {.seed = 9, .opt_step = 4, .micro = micro};
    assert_int_equal(cpu_accumulate_narrow(&(struct ckpt_kernel_args){.n_in = 2,
                                                                      .n_out = 1,
                                                                      .in = view,
                                                                      .out = view,
                                                                      .accumulate = micro > 0,
                                                                      .number = place,
                                                                      .run = &run}),
                     0);
}

/* Addends far below half a gap of the sum: to nearest it would stay 1.  Of N sums whose expectation
 * is 1.25, each of a few gaps, the mean is within five of its deviations. */
static void test_narrow_sums(void **state)
{
    enum { N = 20001, STEPS = 257 };
    static uint16_t sum[N], other[N];
    static float x[N];
    const double gap = 0x1p-7;
    double mean = 0;
    (void)state;
    for (int micro = 0; micro < STEPS; micro++) {
        for (int i = 0; i < N; i++)
            x[i] = micro ? 0x1p-10f : 1.f;
        add_narrow(sum, x, CKPT_F32, N, micro, 3);
        add_narrow(other, x, CKPT_F32, N, micro, micro < 100 ? 3 : 4);
    }
    for (int i = 0; i < N; i++)
        mean += (double)bf16_load(sum[i]) / N;
    /* each addition rounds up with probability 1/8: variance of 7/64 gaps^2 */
    assert_true(fabs(mean - 1.25) < 5 * gap * sqrt(256 * 7.0 / 64 / N));
    assert_memory_not_equal(sum, other, sizeof sum);
}

/* The first sets the sum, whatever was there; sums that bf16 has are exact. */
static void test_exact_sums(void **state)
{
    enum { LONGEST = 1031 };
    static uint16_t sum[LONGEST + 1], half[LONGEST];
    static float x[LONGEST];
    (void)state;
    for (int n = 1; n <= LONGEST; n = 3 * n + 1) {
        memset(sum, 0xff, sizeof sum);
        for (int i = 0; i < n; i++)
            half[i] = bf16_round((float)(i % 17)), x[i] = (float)(i % 13);
        add_narrow(sum, half, CKPT_BF16, n, 0, 1);
        add_narrow(sum, x, CKPT_F32, n, 1, 1);
        for (int i = 0; i < n; i++)
            assert_true(bf16_load(sum[i]) == (float)(i % 17 + i % 13));
        assert_int_equal(sum[n], 0xffff);
    }
}

/* Uniform, and independent of each other two by two: of 2^20 words, within five deviations. */
static void test_noise(void **state)
{
    enum { N = 1 << 20, BINS = 16 };
    static uint32_t word[N];
    static int64_t count[3][BINS][BINS];
    const struct random_stream s = {.seed = 12, .step = 5};
    (void)state;
    random_words(&s, 0, word, N);
    for (int i = 0; i < N; i++) {
        const uint32_t bin[3] = {update_noise(word[i], NOISE_VALUE) >> 12,
                                 update_noise(word[i], NOISE_MEAN) >> 12,
                                 update_noise(word[i], NOISE_SQUARE) >> 12};
        for (int k = 0; k < 3; k++)
            count[k][bin[k]][bin[(k + 1) % 3]]++;
    }
    const double mean = (double)N / (BINS * BINS);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < BINS * BINS; i++)
            assert_true(fabs((double)count[k][i / BINS][i % BINS] - mean) < 5 * sqrt(mean));
}

/* A word by its definition. */
static uint32_t word_of(const struct random_stream *s, int64_t i)
{
    const uint64_t block = (uint64_t)i / 4;
    const uint32_t key[] = {(uint32_t)s->seed, (uint32_t)(s->seed >> 32)};
    const uint32_t counter[] = {(uint32_t)block,
                                (uint32_t)(block >> 32 & 0xff) << 24 | UINT32_C(2) << 20 |
                                    (uint32_t)(s->step >> 32),
                                (uint32_t)s->step, s->stream};
    uint32_t out[4];
    philox4x32(counter, key, out);
    return out[i % 4];
}

static void test_words(void **state)
{
    static const int64_t firsts[] = {0, 1, 2, 3, 4, 255, 256, 259, INT64_C(1) << 36};
    const struct random_stream s = {
        .seed = UINT64_C(0x123456789abcdef0), .step = (UINT64_C(1) << 33) + 7, .stream = 3};
    uint32_t word[600];
    (void)state;
    for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++)
        for (int n = 0; n <= 600; n += 1 + n % 97) {
            memset(word, 0, sizeof word);
            random_words(&s, firsts[k], word, n);
            for (int i = 0; i < 600; i++)
                assert_int_equal(word[i], i < n ? word_of(&s, firsts[k] + i) : 0);
        }
}

/* ---- the update ------------------------------------------------------------------------------ */

struct operands {
    uint16_t w[MOST], m[MOST], v[MOST], half[MOST];
    float ema[MOST], g[MOST];
};

static struct operands ours, theirs;

static float draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

static void fill(struct operands *o, uint64_t seed)
{
    for (int i = 0; i < MOST; i++) {
        o->w[i] = bf16_round(draw(&seed));
        o->m[i] = bf16_round(draw(&seed) * 0.1f);
        o->v[i] = bf16_round(fabsf(draw(&seed)) * 1e-3f);
        o->ema[i] = draw(&seed);
        o->g[i] = draw(&seed);
        o->half[i] = bf16_round(draw(&seed));
    }
}

/* In double and rounded once after each operation: that is the fp32 result of IEEE 754 (Figueroa
 * 1995). */
static float once(double x)
{
    volatile float f = (float)x;
    return f;
}

/* By arithmetic rather than by bits: the way from the neighbour towards 0, in 2^-16 of a gap. */
static uint16_t round_by_definition(float x, uint32_t noise)
{
    const uint16_t below = (uint16_t)(float_bits(x) >> 16);
    const double gap = (double)bf16_load((uint16_t)(below + 1)) - (double)bf16_load(below);
    const double part = ((double)x - (double)bf16_load(below)) / gap * NOISES;
    return (uint16_t)(below + (part + (double)noise >= NOISES));
}

#define D(x) ((double)(x))
static void define(const struct update_constants *c, const struct host_update *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        const uint32_t word = word_of(&p->noise, p->first + i);
        const float w = bf16_load(p->value[i]);
        float g = p->half ? bf16_load(((const uint16_t *)p->gradient)[i])
                          : ((const float *)p->gradient)[i];
        g = once(D(g) * D(c->clip));
        float m =
            once(D(once(D(c->beta1) * D(bf16_load(p->half_m[i])))) + D(once(D(c->new1) * D(g))));
        float v = once(D(once(D(c->beta2) * D(bf16_load(p->half_v[i])))) +
                       D(once(D(once(D(c->new2) * D(g))) * D(g))));
        float root = once(D(once(sqrt(D(once(D(v) * D(c->unbias2)))))) + D(c->eps));
        float change = once(D(once(D(m) * D(c->unbias1))) / D(root));
        change = once(D(change) + D(once(D(c->weight_decay) * D(w))));
        p->value[i] = round_by_definition(once(D(w) - D(once(D(c->lr) * D(change)))), word >> 16);
        p->half_m[i] = round_by_definition(m, word & 0xffff);
        p->half_v[i] = round_by_definition(v, (word >> 16) ^ (word & 0xffff));
        if (p->ema)
            p->ema[i] = once(D(once(D(c->ema) * D(p->ema[i]))) +
                             D(once(D(c->new_ema) * D(bf16_load(p->value[i])))));
    }
}

static struct host_update call_of(struct operands *o, bool half, int64_t shift, int64_t n)
{
    return (struct host_update){
        .narrow = true,
        .value = o->w + shift,
        .half_m = o->m + shift,
        .half_v = o->v + shift,
        .ema = half ? o->ema + shift : NULL,
        .gradient = half ? (const void *)(o->half + shift) : o->g + shift,
        .half = half,
        .n = n,
        .noise = {.seed = 77, .step = 3},
        .first = 64 * shift,
    };
}

static void test_sets(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 8, 17, 31, 255, 256, 257, 600, 1031, 20011};
    (void)state;
    for (enum host_update_set set = 0; set < HOST_UPDATE_SETS; set++) {
        if (!host_update_name(set))
            continue;
        for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
            fill(&ours, i);
            theirs = ours;
            struct host_update a = call_of(&ours, i % 2, (int64_t)i % 3, sizes[i / 2]);
            struct host_update b = call_of(&theirs, i % 2, (int64_t)i % 3, sizes[i / 2]);
            host_update_with(set, &typical, &a);
            define(&typical, &b);
            assert_memory_equal(&ours, &theirs, sizeof ours);
        }
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        fill(&ours, 5);
        theirs = ours;
        struct host_update a = call_of(&ours, half, 0, MOST), b = call_of(&theirs, half, 0, MOST);
        host_update(&typical, &a);
        host_update_with(HOST_UPDATE_PLAIN, &typical, &b);
        assert_memory_equal(&ours, &theirs, sizeof ours);
    }
}

/* A weight that leaves the range of bf16 by rounding is reported. */
static void test_broken(void **state)
{
    struct update_constants c = {.clip = 1.f, .limit = INFINITY, .lr = 1.f, .kind = UPDATE_SGD};
    uint16_t w[64];
    float g[64];
    bool broken = false;
    (void)state;
    for (int i = 0; i < 64; i++) {
        w[i] = 0x7f7f;      /* the largest */
        g[i] = -0x1.8p119f; /* three quarters of the way to what follows */
    }
    host_update(&c, &(struct host_update){
                        .narrow = true, .value = w, .gradient = g, .n = 64, .broken = &broken});
    assert_true(broken);
}

/* ---- as an op -------------------------------------------------------------------------------- */

static struct ckpt_view view(void *data, enum ckpt_dtype dtype, int64_t n)
{
    return (struct ckpt_view){data,
                              {.dtype = dtype, .ndim = data ? 1 : -1, .shape = {n}, .stride = {1}}};
}

enum { A = 300, B = 41, OFFSET = 320, WHOLE = 384, SHARE = WHOLE / 2 };

/* Elements [at, at + n) of a bucket with A elements, and from OFFSET on B; n[k] of operand k. */
static void run_op(struct operands *o, const struct rounding *r, const int64_t *at,
                   const int64_t *n, int params, bool finite)
{
    const float clip[CLIP_VALUES] = {[CLIP_NORM] = finite ? 3.f : NAN,
                                     [CLIP_FACTOR] = 0.5f,
                                     [CLIP_UNBIAS1] = 5.f,
                                     [CLIP_UNBIAS2] = 500.f};
    struct ckpt_adamw settings = CKPT_ADAMW_INIT;
    struct ckpt_run run = {.lr = 1e-3f, .seed = 9, .opt_step = 4};
    struct ckpt_view in[2 * (UPDATE_STATES + 1) + 1], out[2 * UPDATE_STATES];
    struct narrow_update_attr attr = {.update = optim_adamw_attr(&settings), .rounding = *r};
    const int n_out = params * UPDATE_STATES;
    attr.update.narrow = 1;
    attr.update.ema_decay = 0.9f;
    for (int k = 0; k < params; k++) {
        struct ckpt_view *s = in + k * UPDATE_STATES;
        s[UPDATE_VALUE] = view(o->w + at[k], CKPT_BF16, n[k]);
        s[UPDATE_MASTER] = view(NULL, CKPT_F32, 0);
        s[UPDATE_EXP_AVG] = view(o->m + at[k], CKPT_BF16, n[k]);
        s[UPDATE_EXP_AVG_SQ] = view(o->v + at[k], CKPT_BF16, n[k]);
        s[UPDATE_EMA] = view(o->ema + at[k], CKPT_F32, n[k]);
        in[n_out + k] =
            view(k ? (void *)(o->half + at[k]) : o->g + at[k], k ? CKPT_BF16 : CKPT_F32, n[k]);
    }
    in[n_out + params] = view((void *)(uintptr_t)clip, CKPT_F32, CLIP_VALUES);
    memcpy(out, in, (size_t)n_out * sizeof *out);
    struct ckpt_kernel_args args = {.in = in,
                                    .out = out,
                                    .n_in = n_out + params + 1,
                                    .n_out = n_out,
                                    .attr = &attr,
                                    .run = &run};
    assert_int_equal(cpu_update(&args), 0);
}

static void same_bucket(void)
{
    static const int from[] = {0, OFFSET}, n[] = {A, B};
    for (int k = 0; k < 2; k++) {
        size_t half = (size_t)n[k] * 2, whole = (size_t)n[k] * 4;
        assert_memory_equal(ours.w + from[k], theirs.w + from[k], half);
        assert_memory_equal(ours.m + from[k], theirs.m + from[k], half);
        assert_memory_equal(ours.v + from[k], theirs.v + from[k], half);
        assert_memory_equal(ours.ema + from[k], theirs.ema + from[k], whole);
    }
}

/* Two parameters, a bucket of them, and its shares: their place changes no bit. */
static void test_shares(void **state)
{
    const struct rounding_part a = {.name = 11}, b = {.name = 22};
    struct rounding two = {.begin = {0, 1, 2}, .part = {a, b}};
    struct rounding bucket = {.begin = {0, 2}, .part = {a, {22, OFFSET}}};
    (void)state;
    fill(&ours, 3);
    for (int i = 0; i < MOST; i++)
        ours.half[i] = bf16_round(ours.g[i]), ours.g[i] = bf16_load(ours.half[i]);
    theirs = ours;
    run_op(&ours, &two, (int64_t[]){0, OFFSET}, (int64_t[]){A, B}, 2, true);
    run_op(&theirs, &bucket, (int64_t[]){0}, (int64_t[]){WHOLE}, 1, true);
    same_bucket();
    fill(&theirs, 3);
    for (int i = 0; i < MOST; i++)
        theirs.g[i] = bf16_load(bf16_round(theirs.g[i]));
    for (int rank = 0; rank < 2; rank++) {
        const int64_t at = rank * SHARE;
        struct rounding share = {.begin = {0, 2}, .part = {{11, -at}, {22, OFFSET - at}}};
        run_op(&theirs, &share, &at, (int64_t[]){SHARE}, 1, true);
    }
    same_bucket();
}

/* If the norm is not finite nothing is written. */
static void test_not_updated(void **state)
{
    const struct rounding r = {.begin = {0, 1}, .part = {{.name = 11}}};
    (void)state;
    fill(&ours, 3);
    theirs = ours;
    run_op(&ours, &r, (int64_t[]){0}, (int64_t[]){A}, 1, false);
    assert_memory_equal(&ours, &theirs, sizeof ours);
}

/* ---- why ------------------------------------------------------------------------------------- */

static double mean_of(const uint16_t *w, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)bf16_load(w[i]);
    return sum / (double)n;
}

/* 1 minus 2^-14 a hundred times: half a gap below 1 is 2^-9, so to nearest it stays 1. */
static void test_small_updates(void **state)
{
    enum { N = 1 << 14, STEPS = 100 };
    struct update_constants c = {
        .clip = 1.f, .limit = INFINITY, .lr = 0x1p-14f, .kind = UPDATE_SGD};
    const double expected = 1. - STEPS * 0x1p-14;
    (void)state;
    for (int i = 0; i < N; i++) {
        ours.w[i] = theirs.w[i] = bf16_round(1.f);
        ours.g[i] = 1.f;
    }
    for (int s = 0; s < STEPS; s++) {
        host_update(&c, &(struct host_update){.narrow = true,
                                              .value = ours.w,
                                              .gradient = ours.g,
                                              .n = N,
                                              .noise = {.seed = 4, .step = (uint64_t)s}});
        for (int i = 0; i < N; i++)
            theirs.w[i] = bf16_round(bf16_load(theirs.w[i]) - 0x1p-14f);
    }
    assert_true(mean_of(theirs.w, N) == 1.);
    /* A step adds at most a quarter of the square of a gap, 2^-8, to the variance: five deviations
     * of the mean. */
    double deviation = 0x1p-9 * sqrt((double)STEPS / N);
    assert_true(fabs(mean_of(ours.w, N) - expected) < 5 * deviation);
    assert_true(5 * deviation < 1. - expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_stays),   cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_expectation),  cmocka_unit_test(test_narrow_sums),
        cmocka_unit_test(test_exact_sums),   cmocka_unit_test(test_noise),
        cmocka_unit_test(test_words),        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_broken),
        cmocka_unit_test(test_shares),       cmocka_unit_test(test_not_updated),
        cmocka_unit_test(test_small_updates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

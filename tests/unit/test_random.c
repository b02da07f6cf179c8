/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers: Philox against published and independently computed answers, the values drawn
 * from it against the C library's mathematics, their moments and independence, and the promise that
 * a value depends on nothing but (seed, step, stream, index).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "core/bits.h"
#include "context/context.h"
#include "kernels/cpu/kernels.h"
#include "core/random.h"
#include "unit/philox.h"

#define TURN 6.283185307179586476925

/* The first three are the known answers that come with Salmon et al. 2011; the last was computed
 * with a few lines of Python integers. */
static const struct {
    uint32_t counter[4], key[2], out[4];
} answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    {{1, 2, 3, 4}, {5, 6}, {0xc0c839bc, 0x889c87c5, 0x61986739, 0x2d4623d0}},
};

static void test_philox(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        uint32_t out[4];
        philox4x32(answers[i].counter, answers[i].key, out);
        assert_memory_equal(out, answers[i].out, sizeof out);
    }
}

/* The block that holds values 4 block .. 4 block + 3; kind 0 is uniform, 1 normal. */
static void draw_block(const struct random_stream *s, int kind, uint64_t block, uint32_t out[4])
{
    uint32_t counter[4] = {(uint32_t)block,
                           (uint32_t)((block >> 32) << 24 | (uint64_t)kind << 20 | s->step >> 32),
                           (uint32_t)s->step, s->stream};
    uint32_t key[2] = {(uint32_t)s->seed, (uint32_t)(s->seed >> 32)};
    philox4x32(counter, key, out);
}

static const struct random_stream streams[] = {
    {42, 0, 0},
    {0, 1, 7},
    {0x123456789abcdef0u, 0xabcde12345678u, 0xfedcba98u},
};

/* Far along a stream too, where the block number needs more than 32 bits. */
static const int64_t places[] = {0, 1, 4092, ((int64_t)1 << 34) - 6, ((int64_t)1 << 41) + 3};

static void test_uniform_values(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof streams / sizeof *streams; s++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            float got[600];
            random_uniform(&streams[s], places[p], got, 600);
            for (int i = 0; i < 600; i++) {
                int64_t at = places[p] + i;
                uint32_t w[4];
                draw_block(&streams[s], 0, (uint64_t)at / 4, w);
                assert_true((double)got[i] == floor(w[at % 4] / 256.0) / 16777216.0);
            }
        }
}

/* Box and Muller's formula with the C library's functions. */
static double reference_normal(const struct random_stream *s, int64_t at)
{
    uint32_t w[4];
    draw_block(s, 1, (uint64_t)at / 4, w);
    const uint32_t *pair = w + at % 4 / 2 * 2;
    double r = sqrt(-2 * log((pair[0] + 0.5) / 4294967296.0));
    double angle = TURN * pair[1] / 4294967296.0;
    return r * (at % 2 ? sin(angle) : cos(angle));
}

static void test_normal_values(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof streams / sizeof *streams; s++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            float got[3000];
            random_normal(&streams[s], places[p], got, 3000);
            for (int i = 0; i < 3000; i++) {
                double want = reference_normal(&streams[s], places[p] + i);
                assert_true(fabs((double)got[i] - want) <= 6.1e-8 * fabs(want) + 1e-10);
            }
        }
}

/* The bits themselves: another compiler, instruction set or C library must not change them. */
static void test_normal_bits(void **state)
{
    (void)state;
    enum { N = 20000 };
    static float x[N];
    uint64_t hash = 0xcbf29ce484222325u;
    random_normal(&streams[0], 0, x, N);
    for (int i = 0; i < N; i++)
        hash = (hash ^ float_bits(x[i])) * 0x100000001b3u;
    assert_true(hash == 0x8bbe3cb7d772dfafu);
}

static void test_pieces(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float whole[2][N], piece[N];
    random_normal(&streams[1], 0, whole[0], N);
    random_uniform(&streams[1], 0, whole[1], N);
    for (int size = 1; size < N; size = size * 3 + 1)
        for (int kind = 0; kind < 2; kind++) {
            for (int at = 0; at < N; at += size) {
                int64_t n = N - at < size ? N - at : size;
                (kind ? random_uniform : random_normal)(&streams[1], at, piece + at, n);
            }
            assert_memory_equal(piece, whole[kind], sizeof piece);
        }
    ckpt_fill_normal(streams[1].seed, streams[1].step, streams[1].stream, piece, N);
    assert_memory_equal(piece, whole[0], sizeof piece);
    ckpt_fill_uniform(streams[1].seed, streams[1].step, streams[1].stream, piece, N);
    assert_memory_equal(piece, whole[1], sizeof piece);
}

/* Nothing is written outside [0, n). */
static void test_bounds(void **state)
{
    (void)state;
    float x[300];
    for (int n = 0; n <= 280; n += 7) {
        for (int i = 0; i < 300; i++)
            x[i] = 99;
        random_normal(&streams[0], 3, x + 10, n);
        for (int i = 0; i < 300; i++)
            assert_true((x[i] == 99) == (i < 10 || i >= 10 + n));
    }
}

#define MANY (1 << 20)

/* Mean of x^power, in units of its standard error around the expected value. */
static double deviation(const float *x, int power, double expected, double variance)
{
    double sum = 0;
    for (int i = 0; i < MANY; i++)
        sum += pow((double)x[i], power);
    return (sum / MANY - expected) / sqrt(variance / MANY);
}

static void test_moments(void **state)
{
    (void)state;
    float *x = malloc(MANY * sizeof *x);
    assert_non_null(x);
    ckpt_fill_normal(1, 2, 3, x, MANY);
    /* E x^2k = (2k - 1)!!; Var x^k = E x^2k - (E x^k)^2 */
    assert_true(fabs(deviation(x, 1, 0, 1)) < 4);
    assert_true(fabs(deviation(x, 2, 1, 2)) < 4);
    assert_true(fabs(deviation(x, 3, 0, 15)) < 4);
    assert_true(fabs(deviation(x, 4, 3, 96)) < 4);
    ckpt_fill_uniform(1, 2, 3, x, MANY);
    assert_true(fabs(deviation(x, 1, 1. / 2, 1. / 12)) < 4);
    assert_true(fabs(deviation(x, 2, 1. / 3, 4. / 45)) < 4);
    for (int i = 0; i < MANY; i++)
        assert_true(x[i] >= 0 && x[i] < 1);
    free(x);
}

/* Kolmogorov and Smirnov: the largest distance of the empirical from the true distribution. */
static void test_distribution(void **state)
{
    (void)state;
    enum { CELLS = 400 };
    float *x = malloc(MANY * sizeof *x);
    int count[CELLS] = {0}, below = 0;
    assert_non_null(x);
    ckpt_fill_normal(9, 8, 7, x, MANY);
    for (int i = 0; i < MANY; i++) {
        int cell = (int)floor((double)x[i] * 40) + CELLS / 2;
        count[cell < 0 ? 0 : cell >= CELLS ? CELLS - 1 : cell]++;
    }
    for (int i = 0; i + 1 < CELLS; i++) {
        double edge = (i + 1 - CELLS / 2) / 40.;
        below += count[i];
        assert_true(fabs(below / (double)MANY - erfc(-edge / sqrt(2)) / 2) < 2. / sqrt(MANY));
    }
    free(x);
}

static double correlation(const float *x, const float *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum / sqrt(n);
}

/* Neighbours in any coordinate are independent of each other. */
static void test_independence(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    static const struct random_stream near[] = {{43, 0, 0},
                                                {42, 1, 0},
                                                {42, 0, 1},
                                                {42 + ((uint64_t)1 << 32), 0, 0},
                                                {42, (uint64_t)1 << 32, 0}};
    static float x[N + 8], y[N];
    random_normal(&streams[0], 0, x, N + 8);
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        random_normal(&near[i], 0, y, N);
        assert_true(fabs(correlation(x, y, N)) < 4.5);
    }
    for (int lag = 1; lag <= 8; lag++)
        assert_true(fabs(correlation(x, x + lag, N)) < 4.5);
    random_uniform(&streams[0], 0, y, N); /* the same stream: another kind, other words */
    for (int i = 0; i < N; i++)
        y[i] = (y[i] - 0.5f) * 3.4641016f;
    assert_true(fabs(correlation(x, y, N)) < 4.5);
    for (int i = 0; i < N; i++) /* the radius would give itself away here */
        y[i] = y[i] * y[i] - 1;
    for (int i = 0; i < N; i++)
        x[i] = x[i] * x[i] - 1;
    assert_true(fabs(correlation(x, y, N)) < 4.5 * 1.3);
}

static void run_randn(enum ckpt_dtype dtype, int64_t rows, int32_t micro, void *dst)
{
    struct ckpt_run run = {.seed = 5, .step = 11, .micro = micro};
    struct ckpt_view y = {dst, {.dtype = dtype, .ndim = 2, .shape = {rows, 4999}}};
    desc_dense(&y.desc);
    struct ckpt_kernel_args args = {.n_out = 1, .out = &y, .number = 17, .run = &run};
    assert_int_equal(cpu_randn(&args), 0);
}

static void test_micro_batches(void **state)
{
    (void)state;
    enum { ROWS = 8, COLS = 4999 };
    static float whole[ROWS * COLS], parts[ROWS * COLS];
    static uint16_t rounded[ROWS * COLS], narrow[ROWS * COLS];
    run_randn(CKPT_F32, ROWS, 0, whole);
    for (int n = 1; n < ROWS; n *= 2) {
        for (int i = 0; i < ROWS / n; i++)
            run_randn(CKPT_F32, n, i, parts + i * n * COLS);
        assert_memory_equal(parts, whole, sizeof whole);
    }
    ckpt_fill_normal(5, 11, 1u << 31 | 17, parts, ROWS * COLS);
    assert_memory_equal(parts, whole, sizeof whole);
    ckpt_to_bf16(whole, rounded, ROWS * COLS);
    run_randn(CKPT_BF16, ROWS, 0, narrow);
    assert_memory_equal(narrow, rounded, sizeof narrow);
}

static void initialize(const char *name, struct ckpt_init init, uint64_t seed, float *dst)
{
    struct param p = {.name = (char *)name, .init = init};
    p.desc = (struct ckpt_desc){.dtype = CKPT_BF16, .ndim = 3, .shape = {16, 20, 30}};
    param_initialize(&p, seed, 0, 16 * 20 * 30, dst);
}

/* Any part equals the same part of the whole, whichever thread draws it: large enough for several
 * threads. */
static void check_parts(void)
{
    static const int64_t cuts[] = {0, 3, 1001, 1 << 20, 3 << 20};
    int64_t n = 3 << 20;
    struct ckpt_init inits[] = {CKPT_XAVIER, CKPT_NORMAL(0.02f), CKPT_UNIFORM(0.5f)};
    float *whole = malloc((size_t)n * sizeof *whole), *parts = malloc((size_t)n * sizeof *parts);
    assert_true(whole && parts);
    for (int k = 0; k < 3; k++) {
        struct param p = {.name = (char *)"w", .init = inits[k]};
        p.desc = (struct ckpt_desc){.ndim = 2, .shape = {3, 1 << 20}};
        param_initialize(&p, 7, 0, n, whole);
        for (int i = 0; i < 4; i++)
            param_initialize(&p, 7, cuts[i], cuts[i + 1] - cuts[i], parts + cuts[i]);
        assert_memory_equal(whole, parts, (size_t)n * sizeof *whole);
    }
    free(whole);
    free(parts);
}

static void test_initialize(void **state)
{
    (void)state;
    enum { N = 16 * 20 * 30 };
    static float x[N], y[N];
    check_parts();
    initialize("w", CKPT_NORMAL(0.02f), 1, x);
    initialize("w", CKPT_NORMAL(0.02f), 1, y);
    assert_memory_equal(x, y, sizeof x);
    assert_true(fabs(correlation(x, x, N) / sqrt(N) / 4e-4 - 1) < 0.06);
    initialize("v", CKPT_NORMAL(0.02f), 1, y);
    assert_true(fabs(correlation(x, y, N) / 4e-4) < 4.5);
    initialize("w", CKPT_NORMAL(0.02f), 2, y);
    assert_true(fabs(correlation(x, y, N) / 4e-4) < 4.5);
    initialize("w", CKPT_ONES, 1, x);
    initialize("w", CKPT_ZEROS, 1, y);
    for (int i = 0; i < N; i++)
        assert_true(x[i] == 1 && y[i] == 0);
}

/* Values fill the interval up to its ends: a wrong bound would show. */
static void check_interval(const float *x, int n, double bound)
{
    double low = 0, high = 0;
    for (int i = 0; i < n; i++) {
        low = fmin(low, (double)x[i]);
        high = fmax(high, (double)x[i]);
    }
    assert_true(low >= -bound && low < -0.995 * bound && high <= bound && high > 0.995 * bound);
}

static void test_initialize_uniform(void **state)
{
    (void)state;
    enum { N = 16 * 20 * 30 };
    static float x[N];
    initialize("w", CKPT_UNIFORM(0.25f), 1, x);
    check_interval(x, N, 0.25);
    initialize("w", CKPT_XAVIER, 1, x);
    check_interval(x, N, sqrt(6. / (16 + 600)));
}

/* The value of a bf16 pattern, with the infinities where the next power of two would be. */
static double value_of(uint16_t h)
{
    int exponent = h >> 7 & 0xff, mantissa = h & 0x7f;
    double v = exponent ? ldexp(128 + mantissa, exponent - 134) : ldexp(mantissa, -133);
    return h & 0x8000 ? -v : v;
}

/* The nearest of the two neighbours, the even one from half-way; x is finite. */
static uint16_t nearest(uint32_t bits, double x)
{
    uint16_t inner = (uint16_t)(bits >> 16), outer = (uint16_t)(inner + 1);
    double to_inner = fabs(x - value_of(inner)), to_outer = fabs(x - value_of(outer));
    if (to_inner == to_outer)
        return inner & 1 ? outer : inner;
    return to_inner < to_outer ? inner : outer;
}

/* Every bf16 with low halves on both sides of every edge, and some in between. */
static void test_to_bf16(void **state)
{
    (void)state;
    static const uint32_t low[] = {0,      1,      2,      0x1234, 0x7ffe, 0x7fff,
                                   0x8000, 0x8001, 0x8002, 0xabcd, 0xfffe, 0xffff};
    enum { LOW = sizeof low / sizeof *low };
    for (uint32_t high = 0; high < 0x10000; high++) {
        float x[LOW];
        uint16_t got[LOW];
        for (int i = 0; i < LOW; i++) {
            uint32_t bits = high << 16 | low[i];
            memcpy(&x[i], &bits, sizeof bits);
        }
        ckpt_to_bf16(x, got, LOW);
        for (int i = 0; i < LOW; i++)
            if (isnan(x[i]))
                assert_true((got[i] & 0x7fff) > 0x7f80);
            else if (isinf(x[i]))
                assert_int_equal(got[i], high);
            else
                assert_int_equal(got[i], nearest(high << 16 | low[i], (double)x[i]));
    }
}

static void test_from_bf16(void **state)
{
    (void)state;
    static uint16_t h[0x10000], back[0x10000];
    static float x[0x10000];
    for (int i = 0; i < 0x10000; i++)
        h[i] = (uint16_t)i;
    ckpt_from_bf16(h, x, 0x10000);
    ckpt_to_bf16(x, back, 0x10000);
    for (int i = 0; i < 0x10000; i++) {
        int exponent = i >> 7 & 0xff;
        if (exponent < 0xff)
            assert_true((double)x[i] == value_of(h[i]) && !signbit(x[i]) == !(i & 0x8000));
        else
            assert_true(i & 0x7f ? isnan(x[i]) : isinf(x[i]));
        assert_true(back[i] == h[i] || isnan(x[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),        cmocka_unit_test(test_uniform_values),
        cmocka_unit_test(test_normal_values), cmocka_unit_test(test_normal_bits),
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_moments),       cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_independence),  cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_initialize),    cmocka_unit_test(test_initialize_uniform),
        cmocka_unit_test(test_to_bf16),       cmocka_unit_test(test_from_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

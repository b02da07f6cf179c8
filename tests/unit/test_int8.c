/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit codes of bf16 values: scales, codes and what they stand for against a search in double;
 * the error of normal values; sizes that fill no block and no word; zeros, the smallest and the
 * largest values, infinity and NaN, which touch no other block; a wrong scale is seen; wrong calls.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "core/int8.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"
#include "int8.h"
#include "recorders.h"

enum { MOST = 128 * 70 + 3, GUARD = 16 };

static uint16_t x[MOST], y[MOST + GUARD];
static uint32_t words[MOST / 3 + GUARD];

static struct ckpt_desc row_of(enum ckpt_dtype dtype, int64_t n)
{
    struct ckpt_desc d = {.dtype = dtype, .ndim = 1, .shape = {n}};
    desc_dense(&d);
    return d;
}

/* Encodes x to words and decodes to y; no byte after either is written. */
static void go_round(int64_t n)
{
    const struct ckpt_view values = {x, row_of(CKPT_BF16, n)};
    const struct ckpt_view codes = {words, row_of(CKPT_I32, int8_words(n))};
    const struct ckpt_view back = {y, row_of(CKPT_BF16, n)};
    memset(words, 0xa5, sizeof words);
    memset(y, 0xa5, sizeof y);
    struct ckpt_kernel_args a = {.n_in = 1, .n_out = 1, .in = &values, .out = &codes};
    assert_int_equal(cpu_to_int8(&a), 0);
    a.in = &codes, a.out = &back;
    assert_int_equal(cpu_from_int8(&a), 0);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(y[n + i], 0xa5a5);
    assert_int_equal(words[int8_words(n)], 0xa5a5a5a5);
}

static const int8_t *codes_at(int64_t block)
{
    return (const int8_t *)words + block * INT8_BLOCK;
}

static float scale_at(int64_t n, int64_t block)
{
    const uint16_t *scale = (const uint16_t *)(const void *)codes_at(int8_blocks(n));
    return bf16_load(scale[block]);
}

static double largest(int64_t first, int64_t end)
{
    double most = 0;
    for (int64_t i = first; i < end; i++)
        most = fmax(most, fabs((double)bf16_load(x[i])));
    return most;
}

/* The number of values of a block with a wrong code; all if its scale is not a 127th of the
 * largest. */
static int count_wrong(int64_t n, int64_t block)
{
    const int64_t first = block * INT8_BLOCK, end = min_i64(n, first + INT8_BLOCK);
    const double scale = (double)scale_at(n, block), most = largest(first, end);
    int wrong = fabs(scale - most / 127) > most / 127 * 0x1p-8;
    for (int64_t i = first; i < end; i++) {
        const double value = (double)bf16_load(x[i]), code = codes_at(block)[i - first];
        wrong += scale > 0 && (fabs(value - code * scale) > scale * (0.5 + 0x1p-15));
        wrong += y[i] != bf16_round((float)(code * scale)) || fabs(code) > 127;
    }
    for (int64_t i = end; i < first + INT8_BLOCK; i++)
        wrong += codes_at(block)[i - first] != 0;
    return wrong;
}

static void fill(int64_t n, float scale)
{
    static float v[MOST];
    ckpt_fill_normal(5, (uint64_t)n, 1, v, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = bf16_round(v[i] * scale);
}

static void test_sizes(void **state)
{
    static const int64_t sizes[] = {1, 2, 127, 128, 129, 255, 256, 257, 1000, 128 * 64, MOST};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int e = -100; e <= 100; e += 50) {
            const int64_t n = sizes[k];
            fill(n, ldexpf(1.f, e));
            go_round(n);
            for (int64_t b = 0; b < int8_blocks(n); b++)
                assert_int_equal(count_wrong(n, b), 0);
        }
}

/* Every bf16 value as the largest one of a block. */
static void test_all_scales(void **state)
{
    (void)state;
    for (uint32_t most = 0x0800; most < INT8_LARGEST; most++) {
        fill(INT8_BLOCK, 0.25f);
        for (int i = 0; i < INT8_BLOCK; i++)
            x[i] = bf16_round(bf16_load(x[i]) * bf16_load((uint16_t)most));
        x[77] = (uint16_t)(most | (most & 1) << 15);
        go_round(INT8_BLOCK);
        assert_int_equal(count_wrong(INT8_BLOCK, 0), 0);
    }
}

static void test_error(void **state)
{
    double square = 0, norm = 0;
    (void)state;
    fill(128 * 70, 3.f);
    go_round(128 * 70);
    for (int i = 0; i < 128 * 70; i++) {
        const double v = (double)bf16_load(x[i]), away = v - (double)bf16_load(y[i]);
        square += away * away;
        norm += v * v;
    }
    print_message("relative error of normal values %.4f\n", sqrt(square / norm));
    assert_true(sqrt(square / norm) < 0.0067 && sqrt(square / norm) > 0.005);
}

/* Block 1 of 3 is set to one value, or contains it once; the other blocks do not change. */
static void expect_extreme(float value, bool everywhere, uint16_t expected)
{
    const int64_t n = 3 * INT8_BLOCK;
    fill(n, 1.f);
    for (int i = 0; i < INT8_BLOCK; i++)
        if (everywhere || i == 100)
            x[INT8_BLOCK + i] = bf16_round(value);
    go_round(n);
    assert_int_equal(count_wrong(n, 0) + count_wrong(n, 2), 0);
    for (int i = 0; i < INT8_BLOCK; i++)
        assert_int_equal(y[INT8_BLOCK + i], expected);
}

static void test_extremes(void **state)
{
    (void)state;
    expect_extreme(0.f, true, 0);
    expect_extreme(-0.f, true, 0);
    expect_extreme(1e-40f, true, 0);
    expect_extreme(0x1p-112f, true, 0);
    expect_extreme(INFINITY, false, INT8_NAN);
    expect_extreme(-INFINITY, true, INT8_NAN);
    expect_extreme(NAN, false, INT8_NAN);
    expect_extreme(127.f, true, bf16_round(127.f));
    expect_extreme(-0x1.fcp126f, true, bf16_round(-0x1.fcp126f)); /* 127 times a power of two */
    expect_extreme(0x1p127f, false, INT8_NAN);
    expect_extreme(0x1.fep127f, true, INT8_NAN);
}

/* The check above detects a scale that is another bf16, and a code that is off by one. */
static void test_fault(void **state)
{
    const int64_t n = 3 * INT8_BLOCK;
    (void)state;
    fill(n, 1.f);
    go_round(n);
    ((int8_t *)words)[INT8_BLOCK + 9] += 1;
    assert_int_not_equal(count_wrong(n, 1), 0);
    ((uint16_t *)(void *)((int8_t *)words + n))[2] += 2;
    assert_int_not_equal(count_wrong(n, 2), 0);
    assert_int_equal(count_wrong(n, 0), 0);
}

static void test_bytes(void **state)
{
    (void)state;
    assert_int_equal(int8_words(1), 33);
    assert_int_equal(int8_words(128), 33);
    assert_int_equal(int8_words(129), 65);
    assert_int_equal(int8_words(1 << 20) * 4, (1 << 20) + (1 << 14));
}

static ckpt_tape *new_tape(const struct params *none)
{
    struct tape_env env = {.calls = &ops_calls, .params = none, .threads = 1};
    ckpt_tape *t;
    assert_int_equal(tape_new(&t, &env, 1, 1), 0);
    return t;
}

static void test_wrong_calls(void **state)
{
    const struct params none = {.n = 0};
    ckpt_tape *t = new_tape(&none);
    (void)state;
    int8_encode(t, ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){1, 256}));
    print_message("%s\n", t->error.text);
    assert_non_null(strstr(t->error.text, "x must be bf16"));
    tape_free(t);
    t = new_tape(&none);
    int8_decode(t, int8_encode(t, ckpt_input(t, "x", CKPT_BF16, 2, (int64_t[]){1, 256})), 400);
    assert_non_null(strstr(t->error.text, "does not have the codes of 400 values"));
    tape_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_all_scales),
        cmocka_unit_test(test_error),       cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_fault),       cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_wrong_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

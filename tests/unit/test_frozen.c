/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frozen weights in codes: the table, codes and scales against those of make_frozen_reference.py;
 * what codes stand for has the same codes again, in fp32 and as bf16; blocks of nothing, of the
 * smallest and the largest numbers, with infinity and NaN; the error of weights and of products
 * beside fp32; the op's kernel for sizes that fill no chunk.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attr.h"
#include "ckpt_tools.h"
#include "core/bits.h"
#include "core/frozen.h"
#include "kernels/cpu/kernels.h"
#include "frozen_reference.h"

enum {
    N = 1 << 16,
    FORMATS = FROZEN_NF4 + 1, /* the first one has no codes */
    REFERENCE = sizeof reference_values / sizeof *reference_values
};

static int32_t words[N / 4 + N / FROZEN_BLOCK], again[N / 4 + N / FROZEN_BLOCK];
static float values[N], decoded[N];

static const float nf4[16] = NF4_VALUES;

/* ---- against the reference ------------------------------------------------------------------- */

static void test_table(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++)
        assert_int_equal(float_bits(nf4[i]), reference_nf4[i]);
}

static void test_reference(void **state)
{
    const uint16_t *scale = (const uint16_t *)(const void *)((const char *)words + REFERENCE);
    (void)state;
    for (int i = 0; i < REFERENCE; i++)
        values[i] = float_of_bits(reference_values[i]);
    frozen_encode(values, REFERENCE, FROZEN_INT8, words);
    assert_memory_equal(words, reference_int8_codes, REFERENCE);
    assert_memory_equal(scale, reference_scales, sizeof reference_scales);
    frozen_encode(values, REFERENCE, FROZEN_NF4, words);
    assert_memory_equal(words, reference_nf4_codes, REFERENCE / 2);
    assert_memory_equal((const char *)words + REFERENCE / 2, reference_scales,
                        sizeof reference_scales);
    frozen_decode(words, REFERENCE, FROZEN_NF4, 0, REFERENCE, decoded);
    for (int i = 0; i < REFERENCE; i++) {
        const int code = reference_nf4_codes[i / 2] >> (i % 2 ? 0 : 4) & 15;
        const float s = float_of_bits((uint32_t)reference_scales[i / FROZEN_BLOCK] << 16);
        assert_true(decoded[i] == nf4[code] * s);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    for (int i = FROZEN_PLAIN; i < FORMATS; i++)
        assert_int_equal(frozen_format_of(frozen_name(i)), i);
    assert_int_equal(frozen_format_of("int4"), -1);
    assert_int_equal(frozen_words(FROZEN_INT8, 4096), 1024 + 32);
    assert_int_equal(frozen_words(FROZEN_NF4, 4096), 512 + 32);
    assert_int_equal(frozen_words(FROZEN_NF4, 4096 + 64), 520 + 33); /* half a word at the end */
    for (int64_t n = FROZEN_MIN; n < 3 * FROZEN_MIN; n += FROZEN_BLOCK)
        for (int f = FROZEN_INT8; f < FORMATS; f++)
            assert_int_equal(frozen_format_of_words(n, frozen_words(f, n)), f);
    assert_false(frozen_takes(4096 - 64) || frozen_takes(4096 + 32) || frozen_takes(0));
    assert_int_equal(frozen_format_of_words(4096, 4096), FROZEN_PLAIN);
    assert_int_equal(frozen_format_of_words(64, frozen_words(FROZEN_NF4, 64)), FROZEN_PLAIN);
}

/* ---- what codes stand for -------------------------------------------------------------------- */

static void draw(float scale, uint32_t stream)
{
    ckpt_fill_normal(5, 0, stream, values, N);
    for (int i = 0; i < N; i++)
        values[i] *= scale * (i % 7 ? 1.f : expf((float)(i % 13) - 6.f));
}

static void check_again(int format, enum ckpt_dtype dtype)
{
    const size_t bytes = (size_t)frozen_words(format, N) * 4;
    frozen_encode(values, N, format, words);
    frozen_decode_as(words, N, format, dtype, decoded);
    for (int i = 0; i < N; i++)
        assert_true(dtype == CKPT_F32 || !(float_bits(decoded[i]) & 0xffff));
    frozen_encode(decoded, N, format, again);
    assert_memory_equal(words, again, bytes);
}

/* Also for values that no model has: up to the largest fp32, and down to where blocks become 0. */
static void test_codes_stay(void **state)
{
    static const float scales[] = {1e-30f, 1e-25f, 1e-5f, 0.02f, 1.f, 3e35f};
    (void)state;
    for (int format = FROZEN_INT8; format < FORMATS; format++)
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
            draw(scales[k], (uint32_t)k);
            for (int i = 0; i < N; i++)
                values[i] = fminf(fmaxf(values[i], -FLT_MAX), FLT_MAX);
            check_again(format, CKPT_F32);
            check_again(format, CKPT_BF16);
        }
}

/* Every code of both formats under one scale. */
static void test_all_codes(void **state)
{
    (void)state;
    for (int scale = 0x0e00; scale < 0x7f80; scale += 0x37) { /* 2^-99 and up */
        const float s = float_of_bits((uint32_t)scale << 16);
        for (int i = 0; i < N; i++)
            values[i] = i % FROZEN_BLOCK == 5 ? -s : (float)(i / 8 % 255 - 127) / 127.f * s;
        check_again(FROZEN_INT8, scale % 2 ? CKPT_F32 : CKPT_BF16);
        for (int i = 0; i < N; i++)
            values[i] = i % FROZEN_BLOCK == 60 ? s : nf4[i * 5 % 16] * s;
        check_again(FROZEN_NF4, scale % 2 ? CKPT_F32 : CKPT_BF16);
    }
}

/* ---- odd blocks ------------------------------------------------------------------------------ */

static void code_block(int format, float first, float other)
{
    for (int i = 0; i < FROZEN_MIN; i++)
        values[i] = i == 0 ? first : i % 2 ? other : -other;
    frozen_encode(values, FROZEN_MIN, format, words);
    frozen_decode(words, FROZEN_MIN, format, 0, FROZEN_MIN, decoded);
}

static void test_odd_blocks(void **state)
{
    (void)state;
    for (int format = FROZEN_INT8; format < FORMATS; format++) {
        code_block(format, 0.f, 0.f);
        for (int i = 0; i < FROZEN_MIN; i++)
            assert_true(decoded[i] == 0.f);
        code_block(format, FLT_TRUE_MIN, 0x1p-101f);
        for (int i = 0; i < FROZEN_MIN; i++)
            assert_true(decoded[i] == 0.f);
        code_block(format, FLT_MAX, 0x1p-100f);
        assert_true(isfinite(decoded[0]) && fabsf(decoded[0] / FLT_MAX - 1.f) < 4e-3f);
        assert_true(decoded[1] == 0.f && fabsf(decoded[FROZEN_BLOCK + 1]) == 0x1p-100f);
        for (int k = 0; k < 2; k++) { /* nothing hides what is not a number, nor spreads it */
            code_block(format, k ? INFINITY : NAN, 0.5f);
            for (int i = 0; i < FROZEN_BLOCK; i++)
                assert_true(isnan(decoded[i]));
            assert_true(fabsf(decoded[FROZEN_BLOCK]) == 0.5f);
        }
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Relative to the root mean square of the values. */
static double relative_error(const float *is, const float *wanted, int64_t n)
{
    double square = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)is[i] - (double)wanted[i];
        square += d * d;
        norm += (double)wanted[i] * (double)wanted[i];
    }
    return sqrt(square / norm);
}

/* For N(0, 1) weights, and for y = x W^T over this many of them: errors of weights are independent.
 * */
static double product_error(const float *w, int64_t cols)
{
    enum { ROWS = 8 };
    static float x[ROWS * 4096], y[2][ROWS * N / 64];
    const int64_t outs = N / cols;
    ckpt_fill_normal(6, 0, 9, x, ROWS * cols);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t o = 0; o < outs; o++) {
            double exact = 0, sum = 0;
            for (int64_t i = 0; i < cols; i++) {
                exact += (double)x[r * cols + i] * (double)values[o * cols + i];
                sum += (double)x[r * cols + i] * (double)w[o * cols + i];
            }
            y[0][r * outs + o] = (float)exact;
            y[1][r * outs + o] = (float)sum;
        }
    return relative_error(y[1], y[0], ROWS * outs);
}

static void test_errors(void **state)
{
    static const double most[FORMATS] = {[FROZEN_INT8] = 0.007, [FROZEN_NF4] = 0.095};
    (void)state;
    ckpt_fill_normal(5, 0, 1, values, N);
    for (int format = FROZEN_INT8; format < FORMATS; format++) {
        frozen_encode(values, N, format, words);
        frozen_decode_as(words, N, format, CKPT_BF16, decoded);
        const double weights = relative_error(decoded, values, N);
        const double narrow = product_error(decoded, 128), wide = product_error(decoded, 4096);
        print_message("%s: weights %.5f, products over 128 values %.5f, over 4096 %.5f\n",
                      frozen_name(format), weights, narrow, wide);
        assert_true(weights < most[format] && weights > most[format] / 2);
        assert_true(narrow < 1.2 * most[format] && wide < 1.3 * most[format]);
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static void check_kernel(int format, enum ckpt_dtype dtype, int64_t rows, int64_t cols)
{
    const struct dequantize_attr attr = {format, (int32_t)dtype, rows, cols};
    const int64_t n = rows * cols;
    static uint16_t half[N];
    struct ckpt_view in = {.data = words}, out = {.data = values};
    in.desc = (struct ckpt_desc){
        .dtype = CKPT_I32, .ndim = 1, .shape = {frozen_words(format, n)}, .stride = {1}};
    out.desc = (struct ckpt_desc){.dtype = dtype, .ndim = 2, .shape = {rows, cols}};
    desc_dense(&out.desc);
    draw(0.02f, 4);
    frozen_encode(values, n, format, words);
    frozen_decode_as(words, n, format, dtype, decoded);
    struct ckpt_kernel_args a = {
        .n_in = 1, .n_out = 1, .in = &in, .out = &out, .attr = &attr, .threads = 1};
    assert_int_equal(cpu_dequantize(&a), 0);
    if (dtype == CKPT_BF16) {
        memcpy(half, values, (size_t)n * 2);
        ckpt_from_bf16(half, values, n);
    }
    assert_memory_equal(values, decoded, (size_t)n * 4);
}

static void test_kernel(void **state)
{
    static const int64_t shapes[][2] = {{64, 64}, {65, 64}, {1, 4160}, {4160, 1}, {96, 640}};
    (void)state;
    for (int format = FROZEN_INT8; format < FORMATS; format++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            check_kernel(format, CKPT_BF16, shapes[k][0], shapes[k][1]);
            check_kernel(format, CKPT_F32, shapes[k][0], shapes[k][1]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),     cmocka_unit_test(test_reference),
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_codes_stay),
        cmocka_unit_test(test_all_codes), cmocka_unit_test(test_odd_blocks),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit formats and copies with a scale per tensor, shared by the tests of both kinds of scale. */
#ifndef CKPT_TESTS_FP8_COPIES_H
#define CKPT_TESTS_FP8_COPIES_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "core/fp8.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/gemm.h"
#include "shapes/linear.h"
#include "fp8.h"
#include "fp8_reference.h"

static const struct format {
    enum ckpt_dtype dtype;
    const uint32_t *values, *first;
    uint8_t largest;
} formats[] = {
    {CKPT_F8E4M3, e4m3_values, e4m3_first, 0x7e},
    {CKPT_F8E5M2, e5m2_values, e5m2_first, 0x7b},
};

enum { FORMATS = sizeof formats / sizeof *formats };

static float value_of(const struct format *f, uint8_t code)
{
    float x;
    cpu_load(&x, &code, f->dtype, 1);
    return x;
}

static uint8_t code_of(const struct format *f, float x)
{
    uint8_t code;
    cpu_store(&code, &x, f->dtype, 1);
    return code;
}

struct copies {
    int64_t rows, cols, pitch;
    float scale;
    uint8_t *by_rows, *by_columns;
};

static struct copies copy(const float *x, int64_t rows, int64_t cols, enum ckpt_dtype from,
                          enum ckpt_dtype to, int which)
{
    const struct to_fp8_attr attr = {
        .dtype = to, .copies = which, .fill = rows % 3 ? FP8_LINE : FP8_SIDE};
    struct copies c = {.rows = rows, .cols = cols, .pitch = fp8_pitch(rows, &attr)};
    uint16_t *half = malloc((size_t)(rows * cols) * 2);
    uint32_t most;
    struct ckpt_view in[] = {
        {.data = half, .desc = {.dtype = from, .ndim = 2, .shape = {rows, cols}}}, {.data = &most}};
    struct ckpt_view out[3] = {{.data = &c.scale}};
    int n = 1;
    ckpt_to_bf16(x, half, rows * cols);
    if (from == CKPT_F32)
        in[0].data = (void *)(uintptr_t)x;
    c.by_rows = malloc((size_t)(rows * cols));
    c.by_columns = malloc((size_t)(c.pitch * cols));
    memset(c.by_columns, 0xff, (size_t)(c.pitch * cols));
    if (which & FP8_ROWS)
        out[n++].data = c.by_rows;
    if (which & FP8_COLUMNS)
        out[n++].data = c.by_columns;
    const struct to_fp8_largest_attr largest = {FP8_OPERAND};
    struct ckpt_kernel_args
        a = {.n_in = 2, .n_out = n, .in = in, .out = out, .attr = &attr, .threads = 1},
        before = {.n_in = 1, .n_out = 1, .in = in, .out = in + 1, .attr = &largest, .threads = 1};
    assert_int_equal(cpu_to_fp8_largest(&before), 0);
    assert_int_equal(cpu_to_fp8(&a), 0);
    free(half);
    return c;
}

static void free_copies(struct copies *c)
{
    free(c->by_rows);
    free(c->by_columns);
}

static float *normal(uint32_t stream, int64_t n, float scale)
{
    float *x = malloc((size_t)n * sizeof *x);
    ckpt_fill_normal(5, 0, stream, x, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = bf16_load(bf16_round(x[i] * scale));
    return x;
}

static double dequantised(const struct copies *c, const struct format *f, int64_t i, int64_t j)
{
    return (double)value_of(f, c->by_rows[i * c->cols + j]) * (double)c->scale;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit copies of a tensor, and products of them: values times their scale in fp32, which is exact,
 * and then as any other product.
 */
#include "core/fp8.h"
#include "cpu.h"
#include "fp8.h"
#include "kernels.h"
#include "linear.h"

enum { BLOCK_ROWS = 64, BLOCK_COLS = 128 };

/* ---- the largest magnitude ------------------------------------------------------------------- */

/* Magnitudes as bits order as the values do, and NaN is above all. */
CKPT_CLONES static uint32_t largest_fp8_input_bf16(const uint16_t *x, int64_t n)
{
    uint16_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint16_t a = x[i] & 0x7fff;
        most = a > most ? a : most;
    }
    return (uint32_t)most << 16;
}

CKPT_CLONES static uint32_t largest_fp8_input_f32(const uint32_t *x, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t a = x[i] & 0x7fffffff;
        most = a > most ? a : most;
    }
    return most;
}

static uint32_t largest(const struct ckpt_view *x, uint32_t *part)
{
    const int64_t n = desc_numel(&x->desc);
    const bool bf16 = x->desc.dtype == CKPT_BF16;
#pragma omp parallel for schedule(static) if (n > 32768)
    for (int64_t i = 0; i < FP8_PARTS; i++) {
        const int64_t begin = i * n / FP8_PARTS, end = (i + 1) * n / FP8_PARTS;
        part[i] = bf16 ? largest_fp8_input_bf16((const uint16_t *)x->data + begin, end - begin)
                       : largest_fp8_input_f32((const uint32_t *)x->data + begin, end - begin);
    }
    return largest_fp8_input_f32(part, FP8_PARTS);
}

int cpu_leave_largest(const struct ckpt_kernel_args *a, int n, int rc)
{
    uint32_t part[FP8_PARTS];
    if (!rc && a->n_out > n)
        *(uint32_t *)a->out[n].data = largest(&a->out[0], part);
    return rc;
}

/* ---- the copies ------------------------------------------------------------------------------ */

struct copying {
    const struct ckpt_view *x;
    int64_t rows, cols, pitch;
    float power; /* NaN where a value is infinite or NaN: so is every product with this tensor */
    enum ckpt_dtype dtype;
    uint8_t *by_rows, *by_columns; /* either may be NULL */
};

CKPT_CLONES static void multiply_fp8_input(float *x, float power, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= power;
}

/* Rows [row, row + n_rows) and columns [col, col + n_cols), and zeros behind the last row. */
static void copy_block(const struct copying *c, int64_t row, int64_t col, int64_t n_rows,
                       int64_t n_cols)
{
    const int64_t size = ckpt_dtype_size(c->x->desc.dtype);
    const int64_t end = row + n_rows == c->rows ? c->pitch - row : n_rows;
    uint8_t code[BLOCK_ROWS][BLOCK_COLS];
    float value[BLOCK_COLS];
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t at = (row + i) * c->cols + col;
        cpu_load(value, (const char *)c->x->data + at * size, c->x->desc.dtype, n_cols);
        multiply_fp8_input(value, c->power, n_cols);
        cpu_store(code[i], value, c->dtype, n_cols);
        if (c->by_rows)
            memcpy(c->by_rows + at, code[i], (size_t)n_cols);
    }
    for (int64_t j = 0; c->by_columns && j < n_cols; j++) {
        uint8_t *dst = c->by_columns + (col + j) * c->pitch + row;
        for (int64_t i = 0; i < n_rows; i++)
            dst[i] = code[i][j];
        memset(dst + n_rows, 0, (size_t)(end - n_rows));
    }
}

static void copy_all(const struct copying *c)
{
    const int64_t down = (c->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const int64_t across = (c->cols + BLOCK_COLS - 1) / BLOCK_COLS;
#pragma omp parallel for schedule(static) if (c->rows * c->cols > 32768)
    for (int64_t i = 0; i < down * across; i++) {
        const int64_t row = i / across * BLOCK_ROWS, col = i % across * BLOCK_COLS;
        copy_block(c, row, col, min_i64(BLOCK_ROWS, c->rows - row),
                   min_i64(BLOCK_COLS, c->cols - col));
    }
}

int cpu_to_fp8(const struct ckpt_kernel_args *a)
{
    const struct to_fp8_attr *attr = a->attr;
    const struct ckpt_desc *x = &a->in[0].desc;
    const enum ckpt_dtype dtype = (enum ckpt_dtype)attr->dtype;
    const bool known = a->n_in > 1 && a->in[1].data;
    const uint32_t most =
        known ? *(const uint32_t *)a->in[1].data : largest(&a->in[0], a->workspace);
    const int k = fp8_is_odd(most) ? 0 : fp8_exponent(most, fp8_top(dtype));
    struct copying c = {.x = &a->in[0],
                        .rows = linear_rows(x),
                        .cols = x->shape[x->ndim - 1],
                        .power = fp8_is_odd(most) ? NAN : float_of_bits(fp8_power_bits(k)),
                        .dtype = dtype};
    int n = 1;
    c.pitch = fp8_pitch(c.rows, attr);
    if (attr->copies & FP8_ROWS)
        c.by_rows = a->out[n++].data;
    if (attr->copies & FP8_COLUMNS)
        c.by_columns = a->out[n].data;
    *(float *)a->out[0].data = fp8_is_odd(most) ? NAN : float_of_bits(fp8_power_bits(-k));
    copy_all(&c);
    return CKPT_OK;
}

/* ---- products -------------------------------------------------------------------------------- */

static int run(const struct ckpt_kernel_args *a, struct gemm g)
{
    g.c = a->out[0].data;
    gemm_run(&g, a->workspace);
    return CKPT_OK;
}

int cpu_linear_fp8(const struct ckpt_kernel_args *a)
{
    struct gemm g = fp8_gemm(a->in + FP8_QX, a->out[0].desc.dtype);
    g.bias = a->in[FP8_BIAS].data;
    g.addend = a->in[FP8_ADDEND].data;
    return run(a, g);
}

int cpu_linear_fp8_dx(const struct ckpt_kernel_args *a)
{
    struct gemm g = fp8_gemm(a->in, a->out[0].desc.dtype);
    g.addend = a->in[4].data;
    return run(a, g);
}

int cpu_linear_fp8_dw(const struct ckpt_kernel_args *a)
{
    struct gemm g = fp8_gemm(a->in, a->out[0].desc.dtype);
    g.accumulate = a->accumulate;
    return run(a, g);
}

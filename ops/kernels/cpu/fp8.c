/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit copies of a tensor, and their products.  A product decodes values times scale to fp32,
 * which is exact, and then runs as any other product.
 */
#include "attr.h"
#include "core/fp8.h"
#include "cpu.h"
#include "rows.h"
#include "fp8.h"
#include "functions.h"
#include "kernels.h"
#include "shapes/linear.h"
#include "gemm.h"
#include "workspace.h"

enum {
    BLOCK = 128, /* columns, and rows, of a block of copies */
    BLOCK_ROWS = 64,
    PARTS = 512 /* partial maxima, divided among threads */
};

/* ---- largest magnitude ----------------------------------------------------------------------- */

/* Magnitudes compared as bits have the same order as their values, and NaN is above all. */
CKPT_CLONES static uint32_t largest_fp8_input_bf16(const uint16_t *x, int64_t n)
{
    uint16_t largest_bits = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint16_t a = x[i] & 0x7fff;
        largest_bits = a > largest_bits ? a : largest_bits;
    }
    return (uint32_t)largest_bits << 16;
}

CKPT_CLONES static uint32_t largest_in_row(const float *x, int64_t n)
{
    uint32_t largest_bits = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t a = float_bits(x[i]) & 0x7fffffff;
        largest_bits = a > largest_bits ? a : largest_bits;
    }
    return largest_bits;
}

/* Loads n bf16 values of GELU of x from `at` on, as the op would have stored them. */
static void load_gelu(const struct ckpt_view *x, int64_t at, int64_t n, float *value)
{
    const float *from[2] = {value, NULL};
    uint16_t half[BLOCK];
    cpu_load(value, (const uint16_t *)x->data + at, CKPT_BF16, n);
    map_gelu(value, from, n, NULL);
    cpu_store(half, value, CKPT_BF16, n);
    cpu_load(value, half, CKPT_BF16, n);
}

/* The largest magnitude of elements [begin, end). */
static uint32_t largest_in_part(const struct ckpt_view *x, enum fp8_source source, int64_t begin,
                                int64_t end)
{
    float value[BLOCK];
    uint32_t largest_bits = 0;
    if (source == FP8_OPERAND)
        return x->desc.dtype == CKPT_BF16
                   ? largest_fp8_input_bf16((const uint16_t *)x->data + begin, end - begin)
                   : largest_in_row((const float *)x->data + begin, end - begin);
    for (int64_t at = begin; at < end; at += BLOCK) {
        const int64_t n = min_i64(BLOCK, end - at);
        load_gelu(x, at, n, value);
        const uint32_t here = largest_in_row(value, n);
        largest_bits = here > largest_bits ? here : largest_bits;
    }
    return largest_bits;
}

static uint32_t largest(const struct ckpt_view *x, enum fp8_source source)
{
    const int64_t n = desc_numel(&x->desc);
    uint32_t part[PARTS], largest_bits = 0;
#pragma omp parallel for schedule(static) if (n > 32768)
    for (int64_t i = 0; i < PARTS; i++)
        part[i] = largest_in_part(x, source, i * n / PARTS, (i + 1) * n / PARTS);
    for (int i = 0; i < PARTS; i++)
        largest_bits = part[i] > largest_bits ? part[i] : largest_bits;
    return largest_bits;
}

struct shared_largest {
    uint32_t *largest_bits;
    bool half;
};

static void raise_by_rows(const struct row_run *run, int64_t c, const void *user)
{
    const struct shared_largest *to = user;
    uint32_t largest_bits = 0;
    for (int64_t i = 0; i < run->n; i++) {
        const char *at = run->at[0] + i * run->step[0];
        const uint32_t row = to->half ? largest_fp8_input_bf16((const uint16_t *)at, c)
                                      : largest_in_row((const float *)at, c);
        largest_bits = row > largest_bits ? row : largest_bits;
    }
    rows_raise_to(to->largest_bits, largest_bits);
}

/* The largest magnitude of a result that may be a part of a larger tensor: rows are dense, but gaps
 * between them belong to other tensors. */
static uint32_t largest_of_result(const struct ckpt_view *x)
{
    const struct ckpt_desc *d = &x->desc;
    int64_t span = 1;
    for (int i = 0; i < d->ndim; i++)
        span += (d->shape[i] - 1) * d->stride[i];
    if (span == desc_numel(d) || desc_numel(d) == 0)
        return largest(x, FP8_OPERAND);
    uint32_t largest_bits = 0;
    const struct shared_largest to = {&largest_bits, d->dtype == CKPT_BF16};
    struct rows r;
    rows_begin(&r, x);
    rows_finish(&r);
    rows_for_all(&r, d->shape[d->ndim - 1], raise_by_rows, &to);
    return largest_bits;
}

/* Writes the column sums of x, which is dense, if they are asked for and read. */
static int write_sums(const struct ckpt_kernel_args *a, const struct ckpt_view *x)
{
    const int k = extra_index(a->extra, a->n_out, EXTRA_SUMS);
    struct ckpt_kernel_args sums = *a;
    if (!extra_output(a, EXTRA_SUMS))
        return CKPT_OK;
    sums.n_in = sums.n_out = 1;
    sums.in = x;
    sums.out = &a->out[k];
    return cpu_column_sum(&sums);
}

int cpu_write_extra(const struct ckpt_kernel_args *a, int rc)
{
    for (int k = 0; k < ATTENTION_RESULTS && !rc && a->extra; k++) {
        uint32_t *to = extra_output(a, EXTRA_LARGEST + k);
        if (to)
            *to = largest_of_result(&a->out[k]);
    }
    return rc ? rc : write_sums(a, &a->out[0]);
}

int cpu_to_fp8_largest(const struct ckpt_kernel_args *a)
{
    const struct to_fp8_largest_attr *attr = a->attr;
    *(uint32_t *)a->out[0].data = largest(&a->in[0], (enum fp8_source)attr->source);
    return CKPT_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct copying {
    const struct ckpt_view *x;
    enum fp8_source source;
    struct fp8_vector shift, scale; /* vectors of a modulated norm */
    int64_t rows, cols, pitch;
    float
        power; /* factor before rounding; NaN if a value is infinite or NaN, as products then are */
    enum ckpt_dtype dtype;
    uint8_t *by_rows, *by_columns; /* each may be NULL */
};

CKPT_CLONES static void multiply_fp8_input(float *x, float power, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= power;
}

/* A row of a modulated norm, from its statistics, rounded as in cpu_layer_norm_modulate. */
CKPT_CLONES static void normalise_fp8_input(float *x, const float *stats, const uint16_t *shift,
                                            const uint16_t *scale, int64_t n)
{
    const float mean = stats[0], rstd = stats[1];
    for (int64_t i = 0; i < n; i++) {
        const float y = (x[i] - mean) * rstd;
        x[i] = bf16_load(bf16_round(y * (1.f + bf16_load(scale[i])) + bf16_load(shift[i])));
    }
}

/* Finds the rows of shift and scale of a norm that belong to the rows of x. */
static void find_vectors(const struct ckpt_kernel_args *a, struct copying *c)
{
    if (c->source != FP8_NORM_MODULATE)
        return;
    fp8_vector_of(&a->in[FP8_SHIFT].desc, &a->in[FP8_FROM].desc, &c->shift);
    fp8_vector_of(&a->in[FP8_SCALE].desc, &a->in[FP8_FROM].desc, &c->scale);
}

/* Row `row` of shift or scale, from column col on. */
static const uint16_t *vector_row(const struct ckpt_view *v, struct fp8_vector by, int64_t row,
                                  int64_t col)
{
    return (const uint16_t *)v->data + row / by.share * by.step + col;
}

/* Loads n values of row `row` from column col on. */
static void load_values(const struct copying *c, int64_t row, int64_t col, int64_t n, float *value)
{
    const struct ckpt_view *x = c->x;
    const int64_t at = row * c->cols + col;
    if (c->source == FP8_GELU) {
        load_gelu(x, at, n, value);
        return;
    }
    cpu_load(value, (const char *)x->data + at * ckpt_dtype_size(x->desc.dtype), x->desc.dtype, n);
    if (c->source == FP8_NORM_MODULATE)
        normalise_fp8_input(value, (const float *)x[FP8_STATS].data + 2 * row,
                            vector_row(&x[FP8_SHIFT], c->shift, row, col),
                            vector_row(&x[FP8_SCALE], c->scale, row, col), n);
}

/* Writes rows [row, row + n_rows) and columns [col, col + n_cols), with zeros after the last
 * row. */
static void copy_block(const struct copying *c, int64_t row, int64_t col, int64_t n_rows,
                       int64_t n_cols)
{
    const int64_t end = row + n_rows == c->rows ? c->pitch - row : n_rows;
    uint8_t code[BLOCK_ROWS][BLOCK];
    float value[BLOCK];
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t at = (row + i) * c->cols + col;
        load_values(c, row + i, col, n_cols, value);
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
    const int64_t across = (c->cols + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) if (c->rows * c->cols > 32768)
    for (int64_t i = 0; i < down * across; i++) {
        const int64_t row = i / across * BLOCK_ROWS, col = i % across * BLOCK;
        copy_block(c, row, col, min_i64(BLOCK_ROWS, c->rows - row), min_i64(BLOCK, c->cols - col));
    }
}

static uint32_t largest_of_parts(const struct ckpt_kernel_args *a)
{
    uint32_t largest_bits = *(const uint32_t *)a->in[FP8_MOST].data;
    for (int i = FP8_FROM_INPUTS; i < a->n_in; i++) {
        const uint32_t part = *(const uint32_t *)a->in[i].data;
        largest_bits = part > largest_bits ? part : largest_bits;
    }
    return largest_bits;
}

int cpu_to_fp8(const struct ckpt_kernel_args *a)
{
    const struct to_fp8_attr *attr = a->attr;
    const struct ckpt_desc *x = &a->in[0].desc;
    const enum ckpt_dtype dtype = (enum ckpt_dtype)attr->dtype;
    const uint32_t largest_bits = largest_of_parts(a);
    const int k = fp8_is_odd(largest_bits) ? 0 : fp8_exponent(largest_bits, fp8_top(dtype));
    struct copying c = {.x = &a->in[0],
                        .source = (enum fp8_source)attr->source,
                        .rows = linear_rows(x),
                        .cols = x->shape[x->ndim - 1],
                        .power = fp8_is_odd(largest_bits) ? NAN : float_of_bits(fp8_power_bits(k)),
                        .dtype = dtype};
    int n = 1;
    find_vectors(a, &c);
    c.pitch = fp8_pitch(c.rows, attr);
    if (attr->copies & FP8_ROWS)
        c.by_rows = a->out[n++].data;
    if (attr->copies & FP8_COLUMNS)
        c.by_columns = a->out[n].data;
    if (a->out[0].data)
        *(float *)a->out[0].data =
            fp8_is_odd(largest_bits) ? NAN : float_of_bits(fp8_power_bits(-k));
    copy_all(&c);
    return write_sums(a, &a->in[0]);
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
    run(a, g);
    uint32_t *to = extra_output(a, EXTRA_GELU_LARGEST);
    if (to)
        *to = largest(&a->out[0], FP8_GELU);
    return CKPT_OK;
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

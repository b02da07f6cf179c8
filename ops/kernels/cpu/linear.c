/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of linear layers: y = x w^T + b, and the gradients of x, w and b.  Column sums consist of
 * at most CHUNKS partial sums, divided by the number of rows alone and added in order, so the bits
 * do not depend on the number of threads.
 */
#include "attr.h"
#include "cpu.h"
#include "gemm.h"
#include "kernels.h"
#include "kernels/parts.h"
#include "shapes/linear.h"
#include "workspace.h"

static int run(struct gemm *g, const struct ckpt_kernel_args *a)
{
    g->a.data = a->in[0].data;
    g->b.data = a->in[1].data;
    g->c = a->out[0].data;
    gemm_run(g, a->workspace);
    return CKPT_OK;
}

int cpu_linear(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_gemm(&a->in[0].desc, &a->in[1].desc);
    g.bias = a->in[2].data;
    g.addend = a->n_in > 3 ? a->in[3].data : NULL;
    return run(&g, a);
}

int cpu_linear_dx(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_dx_gemm(&a->in[0].desc, &a->in[1].desc);
    g.addend = a->in[2].data;
    return run(&g, a);
}

int cpu_linear_dw(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_dw_gemm(&a->in[0].desc, &a->in[1].desc, a->out[0].desc.dtype);
    g.accumulate = a->accumulate;
    return run(&g, a);
}

/* ---- GELU epilogues -------------------------------------------------------------------------- */

int cpu_linear_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {.product = cpu_linear, .gelu = cpu_gelu};
    return linear_gelu_by_parts(a, &parts);
}

int cpu_linear_dx_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {
        .product = cpu_linear_dx, .gelu = cpu_gelu, .dx = cpu_gelu_dx, .pre = 2};
    return linear_dx_gelu_by_parts(a, &parts);
}

/* ---- gate epilogues -------------------------------------------------------------------------- */

int cpu_linear_gated(const struct ckpt_kernel_args *a)
{
    static const struct linear_gated_parts parts = {
        .product = cpu_linear, .silu = cpu_silu, .mul = cpu_mul};
    return linear_gated_by_parts(a, &parts);
}

int cpu_linear_dx_gated(const struct ckpt_kernel_args *a)
{
    static const struct linear_gated_parts parts = {
        .product = cpu_linear_dx, .silu = cpu_silu, .mul = cpu_mul, .silu_dx = cpu_silu_dx};
    return linear_dx_gated_by_parts(a, &parts);
}

/* ---- column_sum: partial sums of chunks of rows, added in order -------------------------- */

enum { CHUNKS = 16, CHUNK_ROWS = 64, BLOCK_ROWS = 32, BLOCK_COLS = 512 };

static int64_t chunk_count(int64_t rows)
{
    return min_i64((rows + CHUNK_ROWS - 1) / CHUNK_ROWS, CHUNKS);
}

int64_t column_sum_workspace(int64_t rows, int64_t cols)
{
    return chunk_count(rows) * cols * (int64_t)sizeof(float);
}

CKPT_CLONES static void add_rows_f32(float *restrict sum, const float *restrict x, int64_t ld,
                                     int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            sum[j] += x[i * ld + j];
}

CKPT_CLONES static void add_rows_bf16(float *restrict sum, const uint16_t *restrict x, int64_t ld,
                                      int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            sum[j] += bf16_load(x[i * ld + j]);
}

/* sum = rows [begin, end) of x, in blocks: short partial sums keep the rounding error small. */
static void sum_rows(float *sum, const struct ckpt_view *x, int64_t begin, int64_t end,
                     int64_t cols)
{
    memset(sum, 0, (size_t)cols * sizeof *sum);
    for (int64_t i = begin; i < end; i += BLOCK_ROWS) {
        int64_t rows = min_i64(BLOCK_ROWS, end - i);
        for (int64_t j = 0; j < cols; j += BLOCK_COLS) {
            float block[BLOCK_COLS] = {0};
            int64_t n = min_i64(BLOCK_COLS, cols - j), at = i * cols + j;
            if (x->desc.dtype == CKPT_BF16)
                add_rows_bf16(block, (const uint16_t *)x->data + at, cols, rows, n);
            else
                add_rows_f32(block, (const float *)x->data + at, cols, rows, n);
            add_rows_f32(sum + j, block, n, 1, n);
        }
    }
}

int cpu_column_sum(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *x = &a->in[0];
    const int64_t rows = linear_rows(&x->desc), cols = x->desc.shape[x->desc.ndim - 1];
    const int64_t chunks = chunk_count(rows);
    float *partial = a->workspace, *out = a->out[0].data;
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
    for (int64_t c = 0; c < chunks; c++)
        sum_rows(partial + c * cols, x, c * rows / chunks, (c + 1) * rows / chunks, cols);
    add_rows_f32(partial, partial + cols, cols, chunks - 1, cols);
    if (a->accumulate)
        add_rows_f32(out, partial, cols, 1, cols);
    else
        memcpy(out, partial, (size_t)cols * sizeof *out);
    return CKPT_OK;
}

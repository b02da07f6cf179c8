/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Column sums, the gradient of a bias: at most CHUNKS partial sums of chunks of rows, divided by
 * the number of rows alone and added in order, so the bits do not depend on the number of threads.
 */
#include <string.h>
#include "cpu.h"
#include "kernels.h"
#include "shapes/linear.h"
#include "workspace.h"

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

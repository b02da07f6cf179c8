/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: x (1 + scale) + shift and x + gate a, with their gradients.  The gradients of shift,
 * scale and gate are sums over the axes on which they broadcast (row_sums.h).
 */
#include "kernels.h"
#include "row_sums.h"

/* Runs an op with three operands and a result of the same dtype. */
static int forward(const struct ckpt_kernel_args *a, rows_leaf leaf)
{
    const struct ckpt_view *x = &a->in[0];
    bool half = view_half(x);
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->in[1]);
    rows_operand(&r, &a->in[2]);
    rows_operand(&r, &a->out[0]);
    rows_finish(&r);
    rows_for_all(&r, x->desc.shape[x->desc.ndim - 1], leaf, &half);
    return CKPT_OK;
}

/* run: x, shift, scale, y */
ROWS_INLINE void modulate_rows(const struct row_run *run, int64_t c, bool half)
{
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        const void *restrict shift = run->at[1] + i * run->step[1];
        const void *restrict scale = run->at[2] + i * run->step[2];
        void *restrict y = run->at[3] + i * run->step[3];
#pragma omp simd
        for (int64_t j = 0; j < c; j++)
            row_put(y, j,
                    row_get(x, j, half) * (1.f + row_get(scale, j, half)) + row_get(shift, j, half),
                    half);
    }
}

CKPT_CLONES static void modulate_leaf(const struct row_run *run, int64_t c, const void *half)
{
    WITH_FLAG(*(const bool *)half, modulate_rows, run, c);
}

int cpu_modulate(const struct ckpt_kernel_args *a)
{
    return cpu_write_extra(a, forward(a, modulate_leaf));
}

/* run: x, gate, a, y */
ROWS_INLINE void gated_residual_rows(const struct row_run *run, int64_t c, bool half)
{
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        const void *restrict gate = run->at[1] + i * run->step[1];
        const void *restrict a = run->at[2] + i * run->step[2];
        void *restrict y = run->at[3] + i * run->step[3];
#pragma omp simd
        for (int64_t j = 0; j < c; j++)
            row_put(y, j, row_get(x, j, half) + row_get(gate, j, half) * row_get(a, j, half), half);
    }
}

CKPT_CLONES static void gated_residual_leaf(const struct row_run *run, int64_t c, const void *half)
{
    WITH_FLAG(*(const bool *)half, gated_residual_rows, run, c);
}

int cpu_gated_residual(const struct ckpt_kernel_args *a)
{
    return cpu_write_extra(a, forward(a, gated_residual_leaf));
}

/* dx = dy (1 + scale), dshift += dy, dscale += dy x */
ROWS_INLINE void modulate_dx_rows(const struct row_run *run, int64_t column, int64_t c,
                                  const struct row_sums *sums, bool half, bool dy_half)
{
    float *restrict dshift = sums->first, *restrict dscale = sums->second;
    int64_t skip = column * (half ? 2 : 4), dy_skip = column * (dy_half ? 2 : 4);
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0] + skip;
        const void *restrict dy = run->at[1] + i * run->step[1] + dy_skip;
        const void *restrict scale = run->at[2] + i * run->step[2] + skip;
        void *restrict dx = run->at[3] + i * run->step[3] + skip;
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(dy, j, dy_half);
            row_put(dx, j, d * (1.f + row_get(scale, j, half)), half);
            dshift[j] += d;
            dscale[j] += d * row_get(x, j, half);
        }
    }
}

CKPT_CLONES static void modulate_dx_leaf(const struct row_run *run, int64_t column, int64_t c,
                                         bool half, bool dy_half, const struct row_sums *sums)
{
    WITH_FLAGS(half, dy_half, modulate_dx_rows, run, column, c, sums);
}

/* da = dy gate, dgate += dy a */
ROWS_INLINE void gated_residual_dx_rows(const struct row_run *run, int64_t column, int64_t c,
                                        const struct row_sums *sums, bool half, bool dy_half)
{
    float *restrict dgate = sums->first;
    int64_t skip = column * (half ? 2 : 4), dy_skip = column * (dy_half ? 2 : 4);
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict a = run->at[0] + i * run->step[0] + skip;
        const void *restrict dy = run->at[1] + i * run->step[1] + dy_skip;
        const void *restrict gate = run->at[2] + i * run->step[2] + skip;
        void *restrict da = run->at[3] + i * run->step[3] + skip;
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(dy, j, dy_half);
            row_put(da, j, d * row_get(gate, j, half), half);
            dgate[j] += d * row_get(a, j, half);
        }
    }
}

CKPT_CLONES static void gated_residual_dx_leaf(const struct row_run *run, int64_t column, int64_t c,
                                               bool half, bool dy_half, const struct row_sums *sums)
{
    WITH_FLAGS(half, dy_half, gated_residual_dx_rows, run, column, c, sums);
}

int cpu_modulate_dx(const struct ckpt_kernel_args *a)
{
    return cpu_write_extra(
        a, row_sums_backward(a, &a->in[1], &a->in[2], 0, NULL, 2, modulate_dx_leaf));
}

int cpu_gated_residual_dx(const struct ckpt_kernel_args *a)
{
    return cpu_write_extra(
        a, row_sums_backward(a, &a->in[2], &a->in[1], 0, NULL, 1, gated_residual_dx_leaf));
}

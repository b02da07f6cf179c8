/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMS norm and rotary embedding in one pass.  The normalised value is rounded as rms_norm rounds
 * it; its product with the weight is rotated before it is rounded.
 */
#include "kernels.h"
#include "rms_norm.h"
#include "rope.h"

/* Rotates pair k of the normalised row times the weight by the angle in its table entry. */
ROWS_INLINE void norm_rope_pair(const void *restrict x, const void *restrict w,
                                const float *restrict table, void *restrict y, int64_t k,
                                float rstd, bool half)
{
    float cosine = table[2 * k], sine = table[2 * k + 1];
    float a = rms_normalized(row_get(x, 2 * k, half), rstd, half) * row_get(w, 2 * k, half);
    float b = rms_normalized(row_get(x, 2 * k + 1, half), rstd, half) * row_get(w, 2 * k + 1, half);
    row_put(y, 2 * k, a * cosine - b * sine, half);
    row_put(y, 2 * k + 1, b * cosine + a * sine, half);
}

/* run: x, y, rstd, table */
ROWS_INLINE void norm_rope_rows(const struct row_run *run, int64_t c, const struct rms_norm *p,
                                bool half)
{
    const void *restrict w = p->w;
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        void *restrict y = run->at[1] + i * run->step[1];
        const float *table = (const float *)(run->at[3] + i * run->step[3]);
        float rstd = row_rstd(x, c, p->eps, half);
#pragma omp simd
        for (int64_t k = 0; k < c / 2; k++)
            norm_rope_pair(x, w, table, y, k, rstd, half);
        *(float *)(run->at[2] + i * run->step[2]) = rstd;
    }
}

ROWS_LEAVES(norm_rope, norm_rope_rows)

int cpu_rms_norm_rope(const struct ckpt_kernel_args *a)
{
    const struct rms_norm_rope_attr *attr = a->attr;
    const struct ckpt_view *x = &a->in[0];
    struct rms_norm p = {.w = a->in[1].data, .eps = attr->eps};
    struct ckpt_view table = rope_table_rows(&a->in[2], &x->desc, attr->axis);
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->out[0]);
    rows_operand(&r, &a->out[1]);
    rows_operand(&r, &table);
    rows_finish(&r);
    rows_for_all(&r, x->desc.shape[x->desc.ndim - 1], view_half(x) ? norm_rope_bf16 : norm_rope_f32,
                 &p);
    return CKPT_OK;
}

/* A pair of dy rotated by the negative angle: the gradient of the value before the rotation. */
struct pair {
    float a, b;
};

ROWS_INLINE struct pair rotated_back(const void *restrict dy, const float *restrict table,
                                     int64_t k, bool dy_half)
{
    float cosine = table[2 * k], sine = table[2 * k + 1];
    float a = row_get(dy, 2 * k, dy_half), b = row_get(dy, 2 * k + 1, dy_half);
    return (struct pair){.a = a * cosine + b * sine, .b = b * cosine - a * sine};
}

/* run: x, dy, rstd, dx, table.  The same as rms_norm_dx with dy rotated back first. */
ROWS_INLINE void norm_rope_dx_rows(const struct row_run *run, int64_t c, const void *restrict w,
                                   float *restrict dw, bool half, bool dy_half)
{
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        const void *restrict dy = run->at[1] + i * run->step[1];
        float rstd = *(const float *)(run->at[2] + i * run->step[2]);
        void *restrict dx = run->at[3] + i * run->step[3];
        const float *restrict table = (const float *)(run->at[4] + i * run->step[4]);
        float dot = 0.f;
#pragma omp simd reduction(+ : dot)
        for (int64_t k = 0; k < c / 2; k++) {
            struct pair d = rotated_back(dy, table, k, dy_half);
            dot += d.a * row_get(w, 2 * k, half) * row_get(x, 2 * k, half) +
                   d.b * row_get(w, 2 * k + 1, half) * row_get(x, 2 * k + 1, half);
        }
        float slope = dot * rstd * rstd / (float)c;
#pragma omp simd
        for (int64_t k = 0; k < c / 2; k++) {
            struct pair d = rotated_back(dy, table, k, dy_half);
            float a = row_get(x, 2 * k, half), b = row_get(x, 2 * k + 1, half);
            row_put(dx, 2 * k, rstd * (d.a * row_get(w, 2 * k, half) - a * slope), half);
            row_put(dx, 2 * k + 1, rstd * (d.b * row_get(w, 2 * k + 1, half) - b * slope), half);
            dw[2 * k] += d.a * rms_normalized(a, rstd, half);
            dw[2 * k + 1] += d.b * rms_normalized(b, rstd, half);
        }
    }
}

CKPT_CLONES static void norm_rope_dx_leaf(const struct row_run *run, int64_t c, const void *w,
                                          float *dw, bool half, bool dy_half)
{
    WITH_FLAGS(half, dy_half, norm_rope_dx_rows, run, c, w, dw);
}

int cpu_rms_norm_rope_dx(const struct ckpt_kernel_args *a)
{
    const struct rms_norm_rope_attr *attr = a->attr;
    struct ckpt_view table = rope_table_rows(&a->in[4], &a->in[1].desc, attr->axis);
    return cpu_write_extra(a, rms_norm_backward(a, &table, norm_rope_dx_leaf));
}

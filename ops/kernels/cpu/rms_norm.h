/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the kernels of RMS norm. */
#ifndef CKPT_CPU_RMS_NORM_H
#define CKPT_CPU_RMS_NORM_H

#include "norm.h"
#include "rows.h"

/* Parameters of the forward kernels besides rows. */
struct rms_norm {
    const void *w;
    float eps;
};

/* 1 / root mean square of a row. */
ROWS_INLINE float row_rstd(const void *x, int64_t c, float eps, bool half)
{
    float squares = 0.f;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < c; j++)
        squares += row_get(x, j, half) * row_get(x, j, half);
    return 1.f / sqrtf(squares / (float)c + eps);
}

/* x rstd, rounded as in the forward pass. */
ROWS_INLINE float rms_normalized(float x, float rstd, bool half)
{
    return half ? bf16_load(bf16_round(x * rstd)) : x * rstd;
}

/* Writes dx for one run of rows and adds to dw[c].  run: x, dy, rstd, dx, and optionally the table
 * or the addend. */
typedef void (*rms_norm_leaf)(const struct row_run *run, int64_t c, const void *w, float *dw,
                              bool half, bool dy_half);

/* in: dy, x, w, rstd; out: dx, and dw, a sum over fixed chunks of rows.  more: an extra operand, or
 * NULL. */
int rms_norm_backward(const struct ckpt_kernel_args *a, const struct ckpt_view *more,
                      rms_norm_leaf leaf);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: softmax over rows, its gradient, cumsum.  Sums are fp32 in lanes, or double. */
#include "kernels.h"
#include "rows.h"
#include "scan.h"
#include "vmath.h"

ROWS_INLINE void softmax_row(void *restrict y, const void *restrict x, int64_t n, bool half,
                             bool log_of)
{
    float top = -INFINITY, sum = 0.f;
    for (int64_t j = 0; j < n; j++) {
        float v = row_get(x, j, half);
        top = v > top ? v : top;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += vexp(row_get(x, j, half) - top);
    float shift = log_of ? top + logf(sum) : top, scale = 1.f / sum;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float v = row_get(x, j, half) - shift;
        row_put(y, j, log_of ? v : vexp(v) * scale, half);
    }
}

CKPT_CLONES static void softmax_leaf(void *y, const void *x, int64_t n, bool half, bool log_of)
{
    WITH_FLAGS(half, log_of, softmax_row, y, x, n);
}

int cpu_softmax(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *x = &a->in[0].desc;
    const bool log_of = ((const struct softmax_attr *)a->attr)->log;
    int64_t n = x->shape[x->ndim - 1], rows = desc_numel(x) / n,
            step = n * ckpt_dtype_size(x->dtype);
#pragma omp parallel for schedule(static) if (rows * n > ROWS_CHUNK)
    for (int64_t r = 0; r < rows; r++)
        softmax_leaf((char *)a->out[0].data + r * step, (const char *)a->in[0].data + r * step, n,
                     view_half(&a->in[0]), log_of);
    return CKPT_OK;
}

ROWS_INLINE void softmax_dx_row(void *restrict dx, const void *restrict dy, const void *restrict y,
                                int64_t n, bool log_of, bool half, bool dy_half)
{
    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += log_of ? row_get(dy, j, dy_half) : row_get(dy, j, dy_half) * row_get(y, j, half);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float g = row_get(dy, j, dy_half), p = row_get(y, j, half);
        row_put(dx, j, log_of ? g - vexp(p) * sum : p * (g - sum), half);
    }
}

CKPT_CLONES static void softmax_dx_leaf(void *dx, const void *dy, const void *y, int64_t n,
                                        bool half, bool dy_half, bool log_of)
{
    if (log_of)
        WITH_FLAGS(half, dy_half, softmax_dx_row, dx, dy, y, n, true);
    else
        WITH_FLAGS(half, dy_half, softmax_dx_row, dx, dy, y, n, false);
}

int cpu_softmax_dx(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *dy = &a->in[0], *y = &a->in[1];
    const bool log_of = ((const struct softmax_attr *)a->attr)->log;
    int64_t n = y->desc.shape[y->desc.ndim - 1], rows = desc_numel(&y->desc) / n;
    int64_t step = n * ckpt_dtype_size(y->desc.dtype),
            dy_step = n * ckpt_dtype_size(dy->desc.dtype);
#pragma omp parallel for schedule(static) if (rows * n > ROWS_CHUNK)
    for (int64_t r = 0; r < rows; r++)
        softmax_dx_leaf((char *)a->out[0].data + r * step, (const char *)dy->data + r * dy_step,
                        (const char *)y->data + r * step, n, view_half(y), view_half(dy), log_of);
    return CKPT_OK;
}

/* Each lane is summed by one thread. */
int cpu_cumsum(const struct ckpt_kernel_args *a)
{
    const struct cumsum_attr *attr = a->attr;
    const struct cumsum_shape s = cumsum_shape_of(&a->in[0].desc, attr->axis);
    const bool half = view_half(&a->in[0]);
    const int64_t step = attr->reverse ? -s.inner : s.inner;
#pragma omp parallel for schedule(static) if (s.outer * s.n * s.inner > ROWS_CHUNK)
    for (int64_t lane = 0; lane < s.outer * s.inner; lane++) {
        int64_t at = lane / s.inner * s.n * s.inner + lane % s.inner;
        double sum = 0;
        if (attr->reverse)
            at += (s.n - 1) * s.inner;
        for (int64_t i = 0; i < s.n; i++, at += step) {
            sum += (double)row_get(a->in[0].data, at, half);
            row_put(a->out[0].data, at, (float)sum, half);
        }
    }
    return CKPT_OK;
}

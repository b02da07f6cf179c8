/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: ReLU, and distances between features along the last axis. */
#include "functions.h"
#include "kernels.h"
#include "map.h"
#include "perceptual.h"
#include "rows.h"
#include "vmath.h"

/* ---- ReLU ----------------------------------------------------------------------------------- */

CPU_UNARY(map_relu, vmath_select(u <= 0.f, 0.f, u)) /* NaN passes through */
CPU_BINARY(map_relu_dx, vmath_select(v <= 0.f, 0.f, u))

CPU_ELEMENTS(relu, 1, map_relu, NULL)
CPU_ELEMENTS(relu_dx, 2, map_relu_dx, NULL)

/* ---- distance of features ------------------------------------------------------------------- */

/* 1 / length of a row; 0 for a row of zeros. */
ROWS_INLINE float per_length(const void *x, int64_t at, int64_t c, bool half)
{
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < c; j++)
        squares += row_get(x, at + j, half) * row_get(x, at + j, half);
    return squares == 0.f ? 0.f : 1.f / sqrtf(squares);
}

ROWS_INLINE float row_distance(const void *a, const void *b, const void *w, int64_t at, int64_t c,
                               bool half)
{
    float by_a = per_length(a, at, c, half), by_b = per_length(b, at, c, half), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < c; j++) {
        float d = row_get(a, at + j, half) * by_a - row_get(b, at + j, half) * by_b;
        sum += row_get(w, j, half) * d * d;
    }
    return sum;
}

CKPT_CLONES static float distance_leaf(const void *a, const void *b, const void *w, int64_t at,
                                       int64_t c, bool half)
{
    return half ? row_distance(a, b, w, at, c, true) : row_distance(a, b, w, at, c, false);
}

int cpu_feature_distance(const struct ckpt_kernel_args *k)
{
    const struct ckpt_desc *d = &k->in[0].desc;
    int64_t c = d->shape[d->ndim - 1], rows = desc_numel(d) / c, chunks = distance_chunks(rows);
    double *partial = k->workspace, sum = 0;
#pragma omp parallel for schedule(static) if (rows * c > ROWS_CHUNK)
    for (int64_t i = 0; i < chunks; i++) {
        partial[i] = 0;
        for (int64_t r = i * DISTANCE_ROWS; r < min_i64(rows, (i + 1) * DISTANCE_ROWS); r++)
            partial[i] += (double)distance_leaf(k->in[0].data, k->in[1].data, k->in[2].data, r * c,
                                                c, view_half(&k->in[0]));
    }
    for (int64_t i = 0; i < chunks; i++)
        sum += partial[i];
    *(float *)k->out[0].data = (float)(sum / (double)rows);
    return CKPT_OK;
}

/* With u = a / |a|, v = b / |b| and g = 2 w (u - v): da = (g - u (u . g)) / |a|. */
ROWS_INLINE void row_slope(void *da, const void *a, const void *b, const void *w, int64_t at,
                           int64_t c, float slope, bool half)
{
    float by_a = per_length(a, at, c, half), by_b = per_length(b, at, c, half), along = 0;
#pragma omp simd reduction(+ : along)
    for (int64_t j = 0; j < c; j++) {
        float u = row_get(a, at + j, half) * by_a, v = row_get(b, at + j, half) * by_b;
        along += u * row_get(w, j, half) * (u - v);
    }
    slope *= 2.f * by_a;
#pragma omp simd
    for (int64_t j = 0; j < c; j++) {
        float u = row_get(a, at + j, half) * by_a, v = row_get(b, at + j, half) * by_b;
        row_put(da, at + j, slope * (row_get(w, j, half) * (u - v) - u * along), half);
    }
}

CKPT_CLONES static void distance_slope_leaf(void *da, const void *a, const void *b, const void *w,
                                            int64_t at, int64_t c, float slope, bool half)
{
    WITH_FLAG(half, row_slope, da, a, b, w, at, c, slope);
}

int cpu_feature_distance_dx(const struct ckpt_kernel_args *k)
{
    const struct ckpt_desc *d = &k->in[1].desc;
    int64_t c = d->shape[d->ndim - 1], rows = desc_numel(d) / c;
    float slope = (float)((double)*(const float *)k->in[0].data / (double)rows);
#pragma omp parallel for schedule(static) if (rows * c > ROWS_CHUNK)
    for (int64_t r = 0; r < rows; r++)
        distance_slope_leaf(k->out[0].data, k->in[1].data, k->in[2].data, k->in[3].data, r * c, c,
                            slope, view_half(&k->in[1]));
    return CKPT_OK;
}

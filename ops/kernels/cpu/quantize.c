/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: nearest codebook entry by exhaustive search, and the gradient for z. */
#include "kernels.h"
#include "quantize.h"
#include "rows.h"

/* The sum of squared differences of two rows. */
ROWS_INLINE float distance(const void *z, int64_t at, const void *book, int64_t entry, int64_t d,
                           bool half)
{
    float sum = 0;
    for (int64_t j = 0; j < d; j++) {
        float away = row_get(z, at + j, half) - row_get(book, entry + j, half);
        sum += away * away;
    }
    return sum;
}

/* The first of the nearest entries; *best_distance becomes its distance.  For a row with NaN it is
 * entry 0, so that the commitment loss becomes NaN. */
ROWS_INLINE int64_t nearest(const void *z, int64_t at, const void *book, int64_t k, int64_t d,
                            float *best_distance, bool half)
{
    int64_t best = 0;
    *best_distance = distance(z, at, book, 0, d, half);
    for (int64_t i = 1; i < k; i++) {
        float this_distance = distance(z, at, book, i * d, d, half);
        if (this_distance < *best_distance) {
            *best_distance = this_distance;
            best = i;
        }
    }
    return best;
}

CKPT_CLONES static int64_t nearest_leaf(const void *z, int64_t at, const void *book, int64_t k,
                                        int64_t d, float *best_distance, bool half)
{
    return half ? nearest(z, at, book, k, d, best_distance, true)
                : nearest(z, at, book, k, d, best_distance, false);
}

int cpu_quantize(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *book = &a->in[1].desc;
    int64_t k = book->shape[0], d = book->shape[1], rows = desc_numel(&a->out[1].desc);
    int64_t chunks = quantize_chunks(rows), row = d * ckpt_dtype_size(book->dtype);
    double *partial = a->workspace, sum = 0;
    int32_t *index = a->out[1].data;
#pragma omp parallel for schedule(static) if (rows * k * d > ROWS_CHUNK)
    for (int64_t i = 0; i < chunks; i++) {
        partial[i] = 0;
        for (int64_t r = i * QUANTIZE_ROWS; r < min_i64(rows, (i + 1) * QUANTIZE_ROWS); r++) {
            float best_distance;
            int64_t best = nearest_leaf(a->in[0].data, r * d, a->in[1].data, k, d, &best_distance,
                                        view_half(&a->in[0]));
            index[r] = (int32_t)best;
            partial[i] += (double)best_distance;
            memcpy((char *)a->out[0].data + r * row, (const char *)a->in[1].data + best * row,
                   (size_t)row);
        }
    }
    for (int64_t i = 0; i < chunks; i++)
        sum += partial[i];
    *(float *)a->out[2].data = (float)(sum / (double)(rows * d));
    return CKPT_OK;
}

ROWS_INLINE void add_commitment(void *dz, const void *z, const void *entry, const void *through,
                                int64_t n, float slope, bool half)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float pull = slope * (row_get(z, i, half) - row_get(entry, i, half));
        row_put(dz, i, (through ? row_get(through, i, half) : 0.f) + pull, half);
    }
}

int cpu_quantize_dx(const struct ckpt_kernel_args *a)
{
    int64_t n = desc_numel(&a->in[1].desc);
    float slope = (float)(2. * (double)*(const float *)a->in[0].data / (double)n);
    void *dz = a->out[0].data, *through = a->in[3].data;
    if (view_half(&a->in[1]))
        add_commitment(dz, a->in[1].data, a->in[2].data, through, n, slope, true);
    else
        add_commitment(dz, a->in[1].data, a->in[2].data, through, n, slope, false);
    return CKPT_OK;
}

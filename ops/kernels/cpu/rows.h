/* SPDX-License-Identifier: Apache-2.0 */
/* Row-wise kernels on the CPU: division into chunks, and element access. */
#ifndef CKPT_CPU_ROWS_H
#define CKPT_CPU_ROWS_H

#include "cpu.h"
#include "ops/rows.h"

#define ROWS_INLINE static inline __attribute__((always_inline))

/* Call a rule whose last parameters are one flag or two with constants for them. */
#define WITH_FLAG(f, rule, ...) ((f) ? rule(__VA_ARGS__, true) : rule(__VA_ARGS__, false))
#define WITH_FLAGS(f, g, rule, ...)                                                                \
    ((f) ? WITH_FLAG(g, rule, __VA_ARGS__, true) : WITH_FLAG(g, rule, __VA_ARGS__, false))

/* Makes leaves of rule(run, c, extra, half): name_bf16, and name_f32 for rows of floats. */
#define ROWS_LEAVES(name, rule)                                                                    \
    CKPT_CLONES static void name##_bf16(const struct row_run *run, int64_t c, const void *extra)   \
    {                                                                                              \
        rule(run, c, extra, true);                                                                 \
    }                                                                                              \
    CKPT_CLONES static void name##_f32(const struct row_run *run, int64_t c, const void *extra)    \
    {                                                                                              \
        rule(run, c, extra, false);                                                                \
    }

#define ROWS_CHUNK 16384 /* elements; with fewer, a second thread costs more than it saves */

/* Rows per parallel chunk, for rows of c elements. */
static inline int64_t rows_per_chunk(int64_t c)
{
    return max_i64(1, ROWS_CHUNK / c);
}

/* A leaf function processes one run of rows of c elements. */
typedef void (*rows_leaf)(const struct row_run *run, int64_t c, const void *extra);

/* Processes all rows in chunks. */
void rows_for_all(const struct rows *r, int64_t c, rows_leaf leaf, const void *extra);

/* Raises a shared largest magnitude atomically; magnitudes as bits have the order of their
 * values. */
static inline void rows_raise_to(uint32_t *most, uint32_t x)
{
    uint32_t seen = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (x > seen &&
           !__atomic_compare_exchange_n(most, &seen, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Number of chunks of a sum over rows, limited so that partial sums stay small. */
static inline int64_t rows_sum_chunks(int64_t rows)
{
    return min_i64(64, (rows + 15) / 16);
}

/* The same for sums per vector with k vectors: chunks per vector. */
static inline int64_t rows_vector_chunks(int64_t k, int64_t rows)
{
    return k >= 32 ? 1 : min_i64((rows + 15) / 16, (32 + k - 1) / k);
}

/* Workspace for n sums of the shape of v over the rows of x, in bytes; 0 with one chunk per
 * vector. */
static inline int64_t rows_partial_bytes(const struct ckpt_desc *x, const struct ckpt_desc *v,
                                         int n)
{
    int64_t c = x->shape[x->ndim - 1], k = desc_numel(v) / c, rows = desc_numel(x) / c;
    int64_t chunks = rows_vector_chunks(k, rows / k);
    return chunks == 1 ? 0 : k * chunks * n * c * (int64_t)sizeof(float);
}

/* Element i of a row.  `half` means bf16 and must be a constant after inlining. */
ROWS_INLINE float row_get(const void *p, int64_t i, bool half)
{
    return half ? bf16_load(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

ROWS_INLINE void row_put(void *p, int64_t i, float f, bool half)
{
    if (half)
        ((uint16_t *)p)[i] = bf16_round(f);
    else
        ((float *)p)[i] = f;
}

/* Mean and 1 / standard deviation of a row of c elements. */
struct row_stats {
    float mean, rstd;
};

ROWS_INLINE struct row_stats row_stats_of(const void *x, int64_t c, float eps, bool half)
{
    float sum = 0.f, squares = 0.f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < c; j++)
        sum += row_get(x, j, half);
    float mean = sum / (float)c;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < c; j++) {
        float d = row_get(x, j, half) - mean;
        squares += d * d;
    }
    return (struct row_stats){.mean = mean, .rstd = 1.f / sqrtf(squares / (float)c + eps)};
}

static inline bool view_half(const struct ckpt_view *v)
{
    return v->desc.dtype == CKPT_BF16;
}

#endif

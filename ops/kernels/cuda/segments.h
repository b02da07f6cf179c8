/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch of the gradients of index lookups, which sort the indices and add segments of equal
 * indices. */
#ifndef CKPT_CUDA_SEGMENTS_H
#define CKPT_CUDA_SEGMENTS_H

#include "kernels/cuda/sort.h"
#include "index_shape.h"

enum {
    INDEX_CHUNK = 64,   /* sorted positions that one thread adds */
    SCATTER_LONG = 1024 /* fewest indices of a lane for which lanes are sorted */
};

/* Partial sums that cross a chunk's border: two for every chunk and column. */
static inline int64_t cuda_segments_workspace(int64_t outer, int64_t n, int64_t inner)
{
    return outer * ((n + INDEX_CHUNK - 1) / INDEX_CHUNK) * 2 * inner * (int64_t)sizeof(float);
}

static inline int64_t cuda_index_add_workspace(const struct index_shape *s)
{
    return cuda_sort_workspace(1, s->n) + cuda_segments_workspace(s->outer, s->n, s->inner);
}

/* If lanes are many or short, a thread processes each lane sequentially; else all lanes are sorted
 * together by destination. */
static inline bool cuda_scatter_sorts(const struct index_shape *s)
{
    int64_t lanes = s->outer * s->inner;
    return s->n >= SCATTER_LONG && lanes < 8192 && s->n * lanes <= INT32_MAX &&
           (double)s->size * (double)lanes < 0x1p31;
}

static inline int64_t cuda_scatter_workspace(const struct index_shape *s)
{
    int64_t n = s->outer * s->n * s->inner;
    if (!cuda_scatter_sorts(s))
        return 0;
    return cuda_sort_workspace(1, n) + cuda_segments_workspace(1, n, 1);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stable radix sort of rows of 32-bit keys, and the adjoints of lookup that are made of it.  Sizes
 * of scratch follow from the shapes alone, as in workspace.h.
 */
#ifndef CKPT_CUDA_SORT_H
#define CKPT_CUDA_SORT_H

#include "core/base.h"
#include "index.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SORT_TILE = 2048,   /* keys of one thread block */
    SORT_DIGITS = 256,  /* of a pass */
    INDEX_CHUNK = 64,   /* sorted positions that a thread adds up */
    SCATTER_LONG = 1024 /* indices of a lane from which on lanes are sorted */
};

static inline int64_t sort_tiles(int64_t n)
{
    return (n + SORT_TILE - 1) / SORT_TILE;
}

/* Keys and values twice, and the counts of digits of each tile. */
static inline int64_t cuda_sort_workspace(int64_t rows, int64_t n)
{
    return round_up(4 * rows * n * 4 + rows * sort_tiles(n) * SORT_DIGITS * 4, 256);
}

struct sort_buffers {
    uint32_t *key[2], *value[2], *count;
};

static inline struct sort_buffers sort_buffers_of(void *scratch, int64_t rows, int64_t n)
{
    struct sort_buffers b;
    for (int i = 0; i < 2; i++) {
        b.key[i] = (uint32_t *)scratch + i * rows * n;
        b.value[i] = (uint32_t *)scratch + (2 + i) * rows * n;
    }
    b.count = (uint32_t *)scratch + 4 * rows * n;
    return b;
}

/*
 * Sorts each row of b->key[0] by its lowest `bits` bits, stably; values are the places that keys
 * had in their row.  Returns which of the two buffers has the result.
 */
int cuda_sort_rows(const struct sort_buffers *b, int64_t rows, int64_t n, int bits, void *stream);

/* Sums of chunks that a neighbour completes: two for every chunk and column. */
static inline int64_t cuda_segments_workspace(int64_t outer, int64_t n, int64_t inner)
{
    return outer * ((n + INDEX_CHUNK - 1) / INDEX_CHUNK) * 2 * inner * (int64_t)sizeof(float);
}

static inline int64_t cuda_index_add_workspace(const struct index_shape *s)
{
    return cuda_sort_workspace(1, s->n) + cuda_segments_workspace(s->outer, s->n, s->inner);
}

/* Lanes are walked one by one where there are many or they are short; else all are sorted together
 * by the place they write to. */
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

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stable radix sort of rows of 32-bit keys.  Scratch sizes depend on the shapes alone, as in
 * workspace.h.
 */
#ifndef CKPT_CUDA_SORT_H
#define CKPT_CUDA_SORT_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SORT_TILE = 2048, /* keys of one thread block */
    SORT_DIGITS = 256 /* values of a digit, 8 bits */
};

static inline int64_t sort_tiles(int64_t n)
{
    return (n + SORT_TILE - 1) / SORT_TILE;
}

/* Two buffers of keys and values each, and the digit counts of each tile. */
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
 * Sorts each row of b->key[0] by its lowest `bits` bits, stably; values are the positions that keys
 * had in their row.  Returns which of the two buffers has the result.
 */
int cuda_sort_rows(const struct sort_buffers *b, int64_t rows, int64_t n, int bits, void *stream);

/* argsort: rows that a block sorts in shared memory need no scratch. */
static inline int64_t cuda_argsort_workspace(int64_t rows, int64_t n)
{
    return n <= SORT_TILE ? 0 : cuda_sort_workspace(rows, n);
}

#ifdef __cplusplus
}
#endif
#endif

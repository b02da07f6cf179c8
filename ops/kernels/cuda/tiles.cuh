/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of short rows, such as the heads of a token (72 elements or so each), which are contiguous
 * in memory.  A tile is one contiguous range of pieces.  A warp (forward, rms_norm.cu) or a block
 * with one piece per thread (backward, short_gradient.cu) loads and stores it in order.  The row
 * and column of a thread's pieces are the same in every tile.
 */
#ifndef CKPT_CUDA_TILES_CUH
#define CKPT_CUDA_TILES_CUH

#include "kernels/cuda/rows.cuh"

/* Runs of contiguous rows.  Each run is split into tiles of `rows` rows; its last tile may be
 * shorter. */
struct tiles {
    int rows, last;              /* rows of a tile, and of the last tile of a run */
    int64_t run, per_run, count; /* rows of a run, tiles of a run, tiles in all */
    int64_t step;                /* of the statistics, in bytes from one row to the next */
};

/* Rotates S elements, in pairs, by the angles of the table (RoPE); sign = -1 rotates back. */
template <bool ROPE, int S>
__device__ __forceinline__ void rotate(float (&x)[S], const float *table, float sign)
{
    if constexpr (ROPE) {
#pragma unroll
        for (int j = 0; j < S; j += 2) {
            float a = x[j], b = x[j + 1], cosine = table[j], sine = sign * table[j + 1];
            x[j] = a * cosine - b * sine;
            x[j + 1] = b * cosine + a * sine;
        }
    }
}

/* Loads the table entries of a piece. */
template <bool ROPE, int N>
__device__ __forceinline__ void table_load(float (&table)[N], const char *at)
{
    if constexpr (ROPE)
        floats_load(table, reinterpret_cast<const float *>(at));
}

/* Splits rows of n pieces into tiles of at most `limit` rows.  The first n_dense operands must be
 * contiguous within a run, and the table, if there is one, must be the same for all its rows; else
 * a tile is one row. */
static inline struct tiles tiles_of(const struct rows *r, int n_dense, bool rope, int64_t n,
                                    int64_t limit)
{
    int last = r->ndim - 1;
    bool runs = !rope || r->step[n_dense][last] == 0;
    struct tiles t = {1, 1, 1, 1, r->count, r->step[r->n - 1][last]};
    for (int k = 0; k < n_dense; k++)
        runs = runs && r->step[k][last] == n * 16;
    if (!runs)
        return t;
    t.run = r->size[last];
    t.rows = (int)min_i64(min_i64(t.run, limit), 32 * PIECES / n);
    t.per_run = (t.run + t.rows - 1) / t.rows;
    t.rows = (int)((t.run + t.per_run - 1) / t.per_run); /* nearly equal tiles */
    t.last = (int)(t.run - (t.per_run - 1) * t.rows);
    t.count = r->count / t.run * t.per_run;
    return t;
}

/* The tiles as rows, to find their addresses. */
static inline struct rows rows_of_tiles(const struct rows *r, const struct tiles *t)
{
    struct rows tiles = *r;
    int last = r->ndim - 1;
    if (t->run == 1)
        return tiles;
    tiles.count = t->count;
    tiles.size[last] = t->per_run;
    for (int k = 0; k < r->n; k++)
        tiles.step[k][last] *= t->rows;
    if (t->per_run == 1 && last > 0)
        tiles.ndim--;
    return tiles;
}

#endif

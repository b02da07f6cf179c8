/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of e4m3 operands with a scale per block, on Hopper: the tiles of a block, the layout of
 * shared memory, and the thread that loads operands.
 *
 * Blocks are persistent and form clusters of two; each cluster loops over items.  An item is two
 * tiles of the result, side by side or one above the other, so that they share one operand: each
 * block loads half of it and multicasts it to both.  If the last wave of items would leave many
 * clusters idle, its tiles are split along the summed axis; the parts go to scratch as fp32, and
 * another kernel adds them in order.
 */
#ifndef CKPT_CUDA_BLOCK_PRODUCT_CUH
#define CKPT_CUDA_BLOCK_PRODUCT_CUH

#include "core/fp8.h"
#include "kernels/cuda/hopper_cluster.cuh"

constexpr int BLOCK_GROUPS = 3; /* warpgroups that multiply */
constexpr int BLOCK_THREADS = GROUP * (BLOCK_GROUPS + 1);
constexpr int BLOCK_ROWS = BLOCK_GROUPS * GROUP_ROWS; /* of a tile */
constexpr int BLOCK_COLS = FP8_BLOCK; /* a tile has one scale of b per 128 x 128 block */
constexpr int BLOCK_UNITS = BLOCK_COLS / 8;
constexpr int BLOCK_STAGES = 4;
constexpr int BLOCK_BAND = 8;  /* rows of items that are processed concurrently (rasterization) */
constexpr int BLOCK_FEW = 4;   /* adjacent scales of square blocks per load, 16 bytes */
constexpr int BLOCK_LINE = 64; /* columns of bf16 in 128 bytes, the width of the TMA swizzle */
constexpr int BLOCK_LINES = BLOCK_COLS / BLOCK_LINE;

/* SQUARE: b has one scale per 128 x 128 block. */
template <bool SQUARE_, typename T_> struct block_shape {
    static constexpr bool SQUARE = SQUARE_;
    typedef T_ result;
    static constexpr int SCALE_BYTES = (SQUARE ? BLOCK_FEW : BLOCK_COLS) * 4;
    static constexpr int BYTES =
        (BLOCK_ROWS + BLOCK_COLS) * FP8_BLOCK + BLOCK_ROWS * 4 + SCALE_BYTES;
};

struct block_stage {
    uint8_t a[BLOCK_ROWS][FP8_BLOCK], b[BLOCK_COLS][FP8_BLOCK];
};

/* The result of a warpgroup, in the layout of TMA copies. */
struct block_result {
    uint32_t line[BLOCK_LINES][GROUP_ROWS][BLOCK_LINE / 2];
};

struct block_shared {
    block_stage stage[BLOCK_STAGES];
    block_result result[BLOCK_GROUPS];
    float a_scale[BLOCK_STAGES][BLOCK_ROWS], b_scale[BLOCK_STAGES][BLOCK_COLS];
    uint64_t full[BLOCK_STAGES], empty[BLOCK_STAGES]; /* empty: counts both blocks of the cluster */
    uint64_t addend[BLOCK_GROUPS];
};

struct block_maps {
    CUtensorMap a, b, a_scale, b_scale, c, addend;
};

/* The partition of a product. */
struct block_work {
    int down, across; /* items of the result */
    int beside;       /* the tiles of an item are side by side and share a (else: share b) */
    int whole;        /* items that are not split */
    int cut, parts;   /* items that are split, and parts of each */
    int blocks;       /* steps of 128 along the summed axis */
};

/* The tile of an item or of a part of one. */
struct block_tile {
    int row, col;    /* first row and column in the result */
    int first, last; /* steps along the summed axis */
    int part;        /* index of the part in the scratch, or -1 */
};

__host__ __device__ inline int block_items(const struct block_work &w)
{
    return w.whole + w.cut * w.parts;
}

/* Concurrent parts have the same range of the summed axis, so that they share operands in the
 * cache. */
__device__ __forceinline__ struct block_tile block_tile_of(const struct block_work &w, int item,
                                                           int rank)
{
    struct block_tile t = {0, 0, 0, w.blocks, -1};
    if (item >= w.whole) {
        const int part = (item - w.whole) / w.cut;
        t.part = 2 * (item - w.whole) + rank;
        t.first = (int)((int64_t)w.blocks * part / w.parts);
        t.last = (int)((int64_t)w.blocks * (part + 1) / w.parts);
        item = w.whole + (item - w.whole) % w.cut;
    }
    const int band = item / (BLOCK_BAND * w.across), first = band * BLOCK_BAND;
    const int rows = min(BLOCK_BAND, w.down - first), at = item - first * w.across;
    const int i = first + at % rows, j = at / rows;
    t.row = (w.beside ? i : 2 * i + rank) * BLOCK_ROWS;
    t.col = (w.beside ? 2 * j + rank : j) * BLOCK_COLS;
    return t;
}

/* The next stage, and the number of completed rounds of the ring. */
struct block_turn {
    int stage, round;

    __device__ __forceinline__ void next(void)
    {
        if (++stage == BLOCK_STAGES) {
            stage = 0;
            round++;
        }
    }
};

/* Loads rows of an operand: all of them or, if both blocks share it, one half with multicast. */
__device__ __forceinline__ void block_load(void *to, const CUtensorMap *map,
                                           const uint64_t *barrier, int along, int row, int half,
                                           bool shared, int rank)
{
    char *data = (char *)to;
    if (shared) {
        box_load_all(data + rank * half * FP8_BLOCK, map, barrier, {along, row + rank * half}, 3);
    } else {
        box_load(data, map, barrier, {along, row});
        box_load(data + half * FP8_BLOCK, map, barrier, {along, row + half});
    }
}

/* Loads all operands; called by one thread. */
template <typename S>
__device__ __forceinline__ void block_load_operands(const struct block_maps &m,
                                                    const struct block_work &w, block_shared *here,
                                                    int rank)
{
    block_turn turn = {0, 0};
    const int n = block_items(w), clusters = gridDim.x / 2;
#pragma unroll 1
    for (int item = blockIdx.x / 2; item < n; item += clusters) {
        const struct block_tile t = block_tile_of(w, item, rank);
#pragma unroll 1
        for (int k = t.first; k < t.last; k++, turn.next()) {
            block_stage *to = &here->stage[turn.stage];
            const uint64_t *full = &here->full[turn.stage];
            if (turn.round > 0)
                barrier_wait(&here->empty[turn.stage], turn.round - 1);
            barrier_expect(full, S::BYTES);
            block_load(to->a, &m.a, full, k * FP8_BLOCK, t.row, BLOCK_ROWS / 2, w.beside, rank);
            block_load(to->b, &m.b, full, k * FP8_BLOCK, t.col, BLOCK_COLS / 2, !w.beside, rank);
            box_load(here->a_scale[turn.stage], &m.a_scale, full, {t.row, k});
            if (S::SQUARE)
                box_load(here->b_scale[turn.stage], &m.b_scale, full,
                         {k / BLOCK_FEW * BLOCK_FEW, t.col / FP8_BLOCK});
            else
                box_load(here->b_scale[turn.stage], &m.b_scale, full, {t.col, k});
        }
    }
}

#endif

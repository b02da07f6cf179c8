/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of many queries and few keys on Hopper, heads of 64 and 72: what is common to the
 * kernels where the keys and values of a head, up to STATIONARY of them, stay in shared memory
 * while queries pass.
 *
 * A block has a part of the queries of one head.  Each of its warpgroups goes its own way through
 * tiles of 64 of them, so that some find exponentials while others multiply.  One thread of each
 * has boxes of the next tiles copied and those of results stored: barriers that count bytes tell
 * when a tile has come.
 *
 * Going backward there are two warpgroups, and keys and values are right operands in columns of
 * cores: 8 rows by 16 bytes, 128 bytes in a row.  The same tile serves along the width and across
 * it, without padding of 72; products read it as fast as boxes (80 columns in 40 cycles).
 */
#ifndef CKPT_CUDA_ATTENTION_STATIONARY_CUH
#define CKPT_CUDA_ATTENTION_STATIONARY_CUH

#include "kernels/cuda/attention/attention_boxes.cuh"
#include "kernels/cuda/attention/attention_largest.cuh"
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/hopper.cuh"

constexpr int STATIONARY = ATTENTION_STATIONARY; /* keys; a multiple of 16 */
constexpr int CHUNK = 80; /* of one product; the last of CHUNKS has the rest */
constexpr int CHUNKS = (STATIONARY + CHUNK - 1) / CHUNK;
constexpr int GROUPS = 2;
constexpr int THREADS = GROUP * GROUPS;
constexpr int BLOCK_ROWS = GROUPS * GROUP_ROWS; /* queries that the warpgroups have at a time */

/* Keys of C chunks. */
template <int C> constexpr int chunk_keys = C == CHUNKS ? STATIONARY : C *CHUNK;

template <int D_> struct stationary_shape {
    static constexpr int D = D_;
    static constexpr int UNITS = D / 8;           /* pieces of 16 bytes in a row */
    static constexpr int STEPS = (UNITS + 1) / 2; /* of products along the width */
    static constexpr bool NARROW = UNITS % 2 != 0;
    static constexpr int TILE_BYTES = GROUP_ROWS * (NARROW ? 160 : 128); /* of a copied tile */

    /* One column of zeros makes the last step whole. */
    struct key_tile {
        uint4 unit[2 * STEPS][STATIONARY];
    };
    /* 64 rows as boxes copy them: 64 columns, and the last 8 with 8 of zeros. */
    struct alignas(1024) row_tile {
        uint4 wide[GROUP_ROWS][8];
        uint4 narrow[NARROW ? GROUP_ROWS : 1][2];
    };
};

/* What a block works on; it stays in shared memory, as registers are short. */
struct stationary_work {
    int sequence, head, first, n; /* queries [first, first + n) */
    struct attention_lead_place lead;
    struct attention_keys keys;
    float factor;       /* of scores */
    float *lse;         /* of the first query */
    float2 *statistics; /* of it, too; queries are whole tiles there */
};

__device__ __forceinline__ struct stationary_work stationary_work_of(const struct attention_args &a,
                                                                     int64_t unit)
{
    struct stationary_work w;
    const int64_t first = take_index(unit, a.n_chunks) * a.chunk;
    const int64_t rows = attention_tile_count(a.n_queries, GROUP_ROWS) * GROUP_ROWS;
    w.head = (int)take_index(unit, a.n_heads);
    w.sequence = (int)unit;
    w.first = (int)first;
    w.n = (int)(first + a.chunk < a.n_queries ? a.chunk : a.n_queries - first);
    w.lead = attention_lead_place_of(a, w.sequence);
    w.keys = attention_keys_of(a, w.sequence);
    w.factor = attention_scale(a, w.keys);
    w.lse = attention_lse_at(a, w.sequence, w.head) + first * a.lse.row;
    w.statistics = a.statistics + (unit * a.n_heads + w.head) * rows + first;
    return w;
}

/* The thread's upper row in a warpgroup's tile; the other one is 8 below. */
__device__ __forceinline__ int stationary_row(void)
{
    return threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A block of N threads copies n rows of UNITS pieces to columns of cores; rows beyond them become
 * zero, and so does a tenth column, where the tile has one. */
template <int UNITS, int N, int COLUMNS, int ROWS>
__device__ __forceinline__ void load_keys(uint4 (&unit)[COLUMNS][ROWS], const attention_rows &x,
                                          int n)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const char *from = (const char *)x.data;
    for (int row = warp * 8 + lane % 8; row < ROWS; row += N / 32 * 8)
#pragma unroll
        for (int i = lane / 8; i < UNITS / 4 * 4; i += 4)
            copy16(shared_address(&unit[i][row]), from + 2 * (row * x.row + i * 8), row < n);
    for (int row = threadIdx.x; UNITS % 4 && row < ROWS; row += N) {
        copy16(shared_address(&unit[UNITS - 1][row]), from + 2 * (row * x.row + (UNITS - 1) * 8),
               row < n);
        if constexpr (COLUMNS > UNITS)
            unit[UNITS][row] = uint4{0, 0, 0, 0};
    }
}

/* Keys and values from number `key` of the sequence on. */
template <typename S>
__device__ __forceinline__ void
load_stationary_keys(const struct attention_args &a, const stationary_work &w,
                     typename S::key_tile &k, typename S::key_tile &v, int key)
{
    const int64_t row = w.keys.first + key;
    const int n = (int)w.keys.n - key;
    load_keys<S::UNITS, THREADS>(k.unit, attention_rows_at(a, a.k, w.sequence, w.head, row), n);
    load_keys<S::UNITS, THREADS>(v.unit, attention_rows_at(a, a.v, w.sequence, w.head, row), n);
    copies_wait();
    show_products();
    __syncthreads();
}

/* ---- tiles of queries ------------------------------------------------------------------------ */

/* Of one operand: boxes of 64 and of 16 columns. */
struct stationary_map {
    CUtensorMap wide, narrow;
};

template <typename S>
static bool stationary_map_of(struct stationary_map *m, const struct attention_args &a,
                              const struct attention_operand &x)
{
    return attention_box_map(&m->wide, a, x, a.n_queries, a.n_heads, false, 64, GROUP_ROWS) &&
           (!S::NARROW ||
            attention_box_map(&m->narrow, a, x, a.n_queries, a.n_heads, false, 16, GROUP_ROWS));
}

/* Queries from number `row` of the block's on. */
template <typename S>
__device__ __forceinline__ void load_tile(typename S::row_tile *to, const stationary_map &m,
                                          const uint64_t *barrier, const stationary_work &w,
                                          int row)
{
    row += w.first;
    box_load(to->wide, &m.wide, barrier, {0, row, w.head, w.lead.inner, w.lead.outer});
    if (S::NARROW)
        box_load(to->narrow, &m.narrow, barrier, {64, row, w.head, w.lead.inner, w.lead.outer});
}

template <typename S>
__device__ __forceinline__ void store_tile(const typename S::row_tile *from,
                                           const stationary_map &m, const stationary_work &w,
                                           int row)
{
    row += w.first;
    box_store(&m.wide, from->wide, {0, row, w.head, w.lead.inner, w.lead.outer});
    if (S::NARROW)
        box_store(&m.narrow, from->narrow, {64, row, w.head, w.lead.inner, w.lead.outer});
    stores_commit();
}

/* The warp's 16 rows as left operands along the width. */
template <typename S>
__device__ __forceinline__ void load_left(uint32_t (&x)[S::STEPS][4],
                                          const typename S::row_tile &tile)
{
    const int row = threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 16, unit = threadIdx.x % 32 / 16;
#pragma unroll
    for (int k = 0; k < S::STEPS; k++)
        if (S::NARROW && k == S::STEPS - 1)
            load_matrix4(x[k], (const bf16 *)&tile.narrow[row][unit ^ row / 4 % 2]);
        else
            load_matrix4(x[k], (const bf16 *)&tile.wide[row][(2 * k + unit) ^ row % 8]);
}

/* The warp's 16 rows from accumulators, as boxes have them. */
template <typename S>
__device__ __forceinline__ void put_rows(typename S::row_tile &tile, const float (&c)[S::UNITS][4])
{
    const int row = threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 16, unit = threadIdx.x % 32 / 16;
#pragma unroll
    for (int n = 0; n + 2 <= S::UNITS; n += 2)
        store_matrix4(shared_address(&tile.wide[row][(n + unit) ^ row % 8]),
                      pack2(c[n][0], c[n][1]), pack2(c[n][2], c[n][3]),
                      pack2(c[n + 1][0], c[n + 1][1]), pack2(c[n + 1][2], c[n + 1][3]));
    if (S::NARROW)
        store_matrix2(shared_address(&tile.narrow[row][row / 4 % 2]),
                      pack2(c[S::UNITS - 1][0], c[S::UNITS - 1][1]),
                      pack2(c[S::UNITS - 1][2], c[S::UNITS - 1][3]));
}

/* ---- products -------------------------------------------------------------------------------- */

/* N units of accumulators from number `first` on. */
template <int N, int ALL>
__device__ __forceinline__ float (&units_from(float (&c)[ALL][4], int first))[N][4]
{
    return reinterpret_cast<float(&)[N][4]>(c[first]);
}

/* c [64, N] = x keys^T for keys from piece `keys` on. */
template <typename S, int N>
__device__ __forceinline__ void begin_scores(float (&c)[N][4], const uint32_t (&x)[S::STEPS][4],
                                             uint32_t keys)
{
#pragma unroll
    for (int i = 0; i < S::STEPS; i++)
        multiply_registers<0>(c, x[i], operand_at(keys + 2 * i * STATIONARY, STATIONARY, 8), i > 0);
    products_commit();
}

/* 16 of them as right operands across the width. */
__device__ __forceinline__ uint64_t across_keys(uint32_t keys)
{
    return operand_at(keys, 8, STATIONARY);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Cuts the queries of each head into parts, a block of `groups` warpgroups each, so that the device
 * is done first; returns the number of blocks. */
static inline int64_t stationary_blocks(struct attention_args &a, int groups)
{
    const int64_t units = a.n_sequences * a.n_heads;
    const int64_t tiles = attention_tile_count(a.n_queries, GROUP_ROWS);
    a.n_chunks = attention_parts(units, tiles, groups, tiles);
    a.chunk = attention_tile_count(tiles, a.n_chunks) * GROUP_ROWS;
    return units * a.n_chunks;
}

#endif

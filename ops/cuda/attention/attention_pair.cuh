/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention backward of many queries and few packed keys on Hopper in one pass, heads of 64 and 72:
 * what a pair of blocks works on, how its tiles lie in shared memory, and the threads that bring
 * queries.
 *
 * A pair (a cluster of two blocks) has all keys of a sequence, up to 320 in five tiles of 64, and a
 * part of the queries of one head, which pass in tiles of 64.  Each tile of keys is a warpgroup's,
 * whose registers hold dk and dv: up to three of the first block and two of the second.  One more
 * warpgroup of the second block finds dq, for which all leave the gradients of scores in its shared
 * memory.  So the three warpgroups of either block have about the same number of products, 12 and
 * 13 of 64 x 64 for a tile of queries, dq needs no sums of several blocks, and the order of all
 * sums is fixed.
 */
#ifndef CKPT_CUDA_ATTENTION_PAIR_CUH
#define CKPT_CUDA_ATTENTION_PAIR_CUH

#include "cuda/attention/attention_resident.cuh"
#include "cuda/hopper_cluster.cuh"

constexpr int PAIR_TILES = 5;  /* of keys */
constexpr int PAIR_GROUPS = 3; /* warpgroups of a block that multiply */
constexpr int PAIR_SLOTS = 2;  /* gradients of scores under way, of tiles of queries */
constexpr int PAIR_KNOWN = 8;  /* lse and delta under way, see pair_feed() */
constexpr int PAIR_THREADS = GROUP * (PAIR_GROUPS + 1);

/* Heads of D; STAGES tiles of queries come ahead. */
template <int D_, int STAGES_> struct pair_shape : resident_shape<D_> {
    using resident_shape<D_>::UNITS;
    static constexpr int STAGES = STAGES_, QUERIES = GROUP_ROWS;
    static constexpr int KEYS = PAIR_TILES * GROUP_ROWS, VALUES = PAIR_GROUPS * GROUP_ROWS;
    /* Columns of cores.  There is no tenth column to make the last step whole, as queries have
     * zeros there. */
    template <int ROWS> struct key_tile {
        uint4 unit[UNITS][ROWS];
    };
};

/* Gradients of scores of 16 keys, a core being 8 keys down and 8 queries across: what a warp
 * finds, and what one step of a product for dq takes. */
struct pair_scores {
    uint4 unit[GROUP_ROWS / 8][16];
};

template <typename S> struct pair_shared {
    typename S::row_tile ring[S::STAGES][2]; /* q, d_o */
    typename S::row_tile dq;
    /* Of all keys in the second block; in the first one its own wait there for their copy. */
    pair_scores ds[PAIR_SLOTS][PAIR_TILES][4];
    typename S::template key_tile<S::KEYS> k;
    typename S::template key_tile<S::VALUES> v; /* the block's alone */
    float2 statistics[PAIR_KNOWN][S::QUERIES];  /* lse in base 2, delta = sum(o d_o) */
    uint64_t known[PAIR_KNOWN];
    uint64_t come[S::STAGES], done[S::STAGES]; /* tiles of queries */
    uint64_t full[PAIR_SLOTS];                 /* in the second block: gradients are there */
    uint64_t room[PAIR_SLOTS];                 /* in each: gradients were used */
    struct resident_work work;
};

struct pair_maps {
    struct resident_map q, d_o, dq;
};

/* How tiles of keys are divided; either block has one, though there be no key in it. */
struct pair_share {
    int tiles, first, n; /* of all; the block's */
    bool second;
};

__device__ __forceinline__ struct pair_share pair_share_of(const struct resident_work &w, int rank)
{
    const int tiles = max(((int)w.keys.n + GROUP_ROWS - 1) / GROUP_ROWS, 2);
    const int first = tiles - tiles / 2; /* the first block's */
    return rank ? pair_share{tiles, first, tiles - first, true}
                : pair_share{tiles, 0, first, false};
}

__device__ __forceinline__ int pair_query_tiles(const struct resident_work &w)
{
    return (w.n + GROUP_ROWS - 1) / GROUP_ROWS;
}

/* ---- operands -------------------------------------------------------------------------------- */

/* 64 of ROWS keys as left operand along the width.  Where the tenth of the columns is missing, the
 * ninth stands for it. */
template <typename S, int ROWS>
__device__ __forceinline__ uint64_t pair_keys_along(uint32_t keys, int k)
{
    return operand_at(keys + 2 * k * ROWS, 2 * k + 1 < S::UNITS ? ROWS : 0, 8);
}

/* Queries from number `first` of a tile on along the width, as right operand. */
template <typename S>
__device__ __forceinline__ uint64_t pair_queries_along(const typename S::row_tile &tile, int first,
                                                       int k)
{
    return S::NARROW && k == S::STEPS - 1
               ? operand_with<SWIZZLE_32>(piece_in_block(tile.narrow[first]), 1, 16)
               : operand_with<SWIZZLE_128>(piece_in_block(tile.wide[first]) + 2 * k, 1, 64);
}

/* ---- tiles of queries that come -------------------------------------------------------------- */

/* One lane tells for its warp. */
__device__ __forceinline__ void pair_tell(const uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(barrier);
}

/* One thread. */
template <typename S>
__device__ __forceinline__ void pair_bring(const struct pair_maps &maps, pair_shared<S> *here,
                                           const struct resident_work &w, int t)
{
    const int stage = t % S::STAGES;
    if (t >= S::STAGES)
        barrier_wait(&here->done[stage], t / S::STAGES - 1);
    barrier_expect(&here->known[t % PAIR_KNOWN], sizeof here->statistics[0]);
    barrier_expect(&here->come[stage], 2 * S::TILE_BYTES);
    load_tile<S>(&here->ring[stage][1], maps.d_o, &here->come[stage], w, t * S::QUERIES);
    load_tile<S>(&here->ring[stage][0], maps.q, &here->come[stage], w, t * S::QUERIES);
}

/* ---- what is known of queries ---------------------------------------------------------------- */

constexpr int PAIR_LANES = 4; /* of a row */

/* What a lane has of o and lse of its row. */
template <typename S> struct pair_output {
    static constexpr int PIECES = (S::UNITS + PAIR_LANES - 1) / PAIR_LANES;
    uint4 o[PIECES];
    float lse;
};

template <typename S>
__device__ __forceinline__ void load_output(pair_output<S> &x, const struct attention_args &a,
                                            const struct resident_work &w, const attention_rows &o,
                                            int query)
{
    const int lane = threadIdx.x % PAIR_LANES;
    x.lse = query < w.n ? w.lse[query * a.lse.row] : 0.f;
#pragma unroll
    for (int i = 0; i < x.PIECES; i++) {
        const int unit = lane + i * PAIR_LANES;
        x.o[i] = uint4{0, 0, 0, 0};
        if (query < w.n && unit < S::UNITS)
            x.o[i] = *(const uint4 *)((const bf16 *)o.data + query * o.row + unit * 8);
    }
}

/* The lane's share of o d_o. */
template <typename S>
__device__ __forceinline__ float pair_delta(const pair_output<S> &x,
                                            const typename S::row_tile &d_o, int row)
{
    float sum[2] = {};
#pragma unroll
    for (int i = 0; i < x.PIECES; i++) {
        const int unit = threadIdx.x % PAIR_LANES + i * PAIR_LANES;
        if (unit >= S::UNITS)
            continue;
        const uint4 y = unit < 8 ? d_o.wide[row][unit ^ row % 8] : d_o.narrow[row][row / 4 % 2];
        const __nv_bfloat162 *p = (const __nv_bfloat162 *)&x.o[i], *q = (const __nv_bfloat162 *)&y;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 f = __bfloat1622float2(p[j]), g = __bfloat1622float2(q[j]);
            sum[0] += f.x * g.x;
            sum[1] += f.y * g.y;
        }
    }
    return sum[0] + sum[1];
}

/*
 * Four warps of each block bring tiles of queries and find lse and delta of eight rows each, for
 * both blocks.  When a block is done with tile t - STAGES, so that tile t may come, dq was found of
 * tile t - STAGES - PAIR_SLOTS, so that both are done with what they knew of that.
 */
template <typename S>
__device__ __forceinline__ void pair_feed(const struct attention_args &a,
                                          const struct pair_maps &maps, pair_shared<S> *here,
                                          int rank, int warp)
{
    static_assert(PAIR_KNOWN >= S::STAGES + PAIR_SLOTS, "the other block's are still read");
    const struct resident_work w = here->work; /* in registers */
    const int n = pair_query_tiles(w), lane = threadIdx.x % PAIR_LANES;
    const int row = (rank * 4 + warp) * 8 + threadIdx.x % 32 / PAIR_LANES;
    const bool brings = warp == 0 && threadIdx.x % 32 == 0;
    const attention_rows o = attention_rows_at(a, a.o, w.sequence, w.head, w.first);
    pair_output<S> x;
    if (brings)
        pair_bring<S>(maps, here, w, 0);
    load_output(x, a, w, o, row);
#pragma unroll 1
    for (int t = 0; t < n; t++) {
        const int stage = t % S::STAGES, slot = t % PAIR_KNOWN;
        if (brings && t + 1 < n)
            pair_bring<S>(maps, here, w, t + 1);
        __syncwarp();
        barrier_wait(&here->come[stage], t / S::STAGES);
        const float delta = quad_sum(pair_delta(x, here->ring[stage][1], row));
        if (lane < 2)
            floats_send(&here->statistics[slot][row], float2{x.lse * ATTENTION_LOG2E, delta},
                        &here->known[slot], lane);
        pair_tell(&here->done[stage]);
        load_output(x, a, w, o, (t + 1) * S::QUERIES + row);
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward attention of many queries and few packed keys on Hopper in one pass, for heads of 64 and
 * 72: the work of a cluster of two blocks, the layout of shared memory, and the producer warps.
 *
 * A cluster of two blocks has all keys of a sequence, up to 320 in five tiles of 64, and a
 * part of the queries of one head, which stream through in tiles of 64.  Each tile of keys belongs
 * to a warpgroup, which keeps dk and dv in registers: up to three in the first block and two in the
 * second.  Another warpgroup of the second block computes dq from the gradients of scores that all
 * others write to that block's shared memory.
 *
 * So the three consumer warpgroups of each block have about the same number of products (12 and 13
 * of 64 x 64 per tile of queries), dq needs no sums across blocks, and the order of all sums is
 * fixed.
 */
#ifndef CKPT_CUDA_ATTENTION_CLUSTER_CUH
#define CKPT_CUDA_ATTENTION_CLUSTER_CUH

#include "kernels/cuda/attention/attention_stationary.cuh"
#include "kernels/cuda/hopper_cluster.cuh"

constexpr int CLUSTER_TILES = 5;  /* of keys */
constexpr int CLUSTER_GROUPS = 3; /* consumer warpgroups of a block */
constexpr int CLUSTER_SLOTS = 2;  /* slots for gradients of scores, one tile of queries each */
constexpr int CLUSTER_KNOWN = 8;  /* slots for lse and delta, see cluster_produce() */
constexpr int CLUSTER_THREADS = GROUP * (CLUSTER_GROUPS + 1);

/* Heads of width D; a ring of STAGES tiles of queries. */
template <int D_, int STAGES_> struct cluster_shape : stationary_shape<D_> {
    using stationary_shape<D_>::UNITS;
    static constexpr int STAGES = STAGES_, QUERIES = GROUP_ROWS;
    static constexpr int KEYS = CLUSTER_TILES * GROUP_ROWS, VALUES = CLUSTER_GROUPS * GROUP_ROWS;
    /* Columns of core matrices.  The last step of a head of 72 lacks a second column; none is
     * needed, since the queries have zeros there. */
    template <int ROWS> struct key_tile {
        uint4 unit[UNITS][ROWS];
    };
};

/* Gradients of scores for 16 keys; a core matrix is 8 keys x 8 queries.  One warp computes it, and
 * one step of a product for dq reads it. */
struct cluster_scores {
    uint4 unit[GROUP_ROWS / 8][16];
};

template <typename S> struct cluster_shared {
    typename S::row_tile ring[S::STAGES][2]; /* q, d_o */
    typename S::row_tile dq;
    /* In the second block: for all keys.  In the first: the block's own, a staging buffer for the
     * copy to the second. */
    cluster_scores ds[CLUSTER_SLOTS][CLUSTER_TILES][4];
    typename S::template key_tile<S::KEYS> k;
    typename S::template key_tile<S::VALUES> v;   /* only the block's own */
    float2 statistics[CLUSTER_KNOWN][S::QUERIES]; /* lse in base 2, delta = sum(o d_o) */
    uint64_t known[CLUSTER_KNOWN];
    uint64_t tile_full[S::STAGES], tile_empty[S::STAGES]; /* of queries */
    uint64_t slot_full[CLUSTER_SLOTS];  /* in the second block: the gradients have arrived */
    uint64_t slot_empty[CLUSTER_SLOTS]; /* in each block: the gradients have been read */
    struct stationary_work work;
};

struct cluster_maps {
    struct stationary_map q, d_o, dq;
};

/* The tiles of keys of a block.  Each block has at least one, even if it contains no key. */
struct cluster_share {
    int tiles, first, n; /* of the cluster; of the block */
    bool second;
};

__device__ __forceinline__ struct cluster_share cluster_share_of(const struct stationary_work &w,
                                                                 int rank)
{
    const int tiles = max(((int)w.keys.n + GROUP_ROWS - 1) / GROUP_ROWS, 2);
    const int first = tiles - tiles / 2; /* of the first block */
    return rank ? cluster_share{tiles, first, tiles - first, true}
                : cluster_share{tiles, 0, first, false};
}

__device__ __forceinline__ int cluster_query_tiles(const struct stationary_work &w)
{
    return (w.n + GROUP_ROWS - 1) / GROUP_ROWS;
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Descriptor of 64 of ROWS keys as left operand along the width.  The ninth column stands in for
 * the missing tenth. */
template <typename S, int ROWS>
__device__ __forceinline__ uint64_t cluster_keys_along(uint32_t keys, int k)
{
    return operand_at(keys + 2 * k * ROWS, 2 * k + 1 < S::UNITS ? ROWS : 0, 8);
}

/* Descriptor of queries, from number `first` of a tile on, along the width as right operand. */
template <typename S>
__device__ __forceinline__ uint64_t cluster_queries_along(const typename S::row_tile &tile,
                                                          int first, int k)
{
    return S::NARROW && k == S::STEPS - 1
               ? operand_with<SWIZZLE_32>(piece_in_block(tile.narrow[first]), 1, 16)
               : operand_with<SWIZZLE_128>(piece_in_block(tile.wide[first]) + 2 * k, 1, 64);
}

/* ---- loads of queries ------------------------------------------------------------------------ */

/* Loads tile t of q and d_o; called by one thread. */
template <typename S>
__device__ __forceinline__ void cluster_load(const struct cluster_maps &maps,
                                             cluster_shared<S> *here,
                                             const struct stationary_work &w, int t)
{
    const int stage = t % S::STAGES;
    if (t >= S::STAGES)
        barrier_wait(&here->tile_empty[stage], t / S::STAGES - 1);
    barrier_expect(&here->known[t % CLUSTER_KNOWN], sizeof here->statistics[0]);
    barrier_expect(&here->tile_full[stage], 2 * S::TILE_BYTES);
    load_tile<S>(&here->ring[stage][1], maps.d_o, &here->tile_full[stage], w, t * S::QUERIES);
    load_tile<S>(&here->ring[stage][0], maps.q, &here->tile_full[stage], w, t * S::QUERIES);
}

/* ---- statistics of queries ------------------------------------------------------------------- */

constexpr int CLUSTER_LANES = 4; /* lanes per row */

/* A lane's part of o of its row, and the row's lse. */
template <typename S> struct cluster_output {
    static constexpr int PIECES = (S::UNITS + CLUSTER_LANES - 1) / CLUSTER_LANES;
    uint4 o[PIECES];
    float lse;
};

template <typename S>
__device__ __forceinline__ void load_output(cluster_output<S> &x, const struct attention_args &a,
                                            const struct stationary_work &w,
                                            const attention_rows &o, int query)
{
    const int lane = threadIdx.x % CLUSTER_LANES;
    x.lse = query < w.n ? w.lse[query * a.lse.row] : 0.f;
#pragma unroll
    for (int i = 0; i < x.PIECES; i++) {
        const int unit = lane + i * CLUSTER_LANES;
        x.o[i] = uint4{0, 0, 0, 0};
        if (query < w.n && unit < S::UNITS)
            x.o[i] = *(const uint4 *)((const bf16 *)o.data + query * o.row + unit * 8);
    }
}

/* The lane's part of sum(o d_o). */
template <typename S>
__device__ __forceinline__ float cluster_delta(const cluster_output<S> &x,
                                               const typename S::row_tile &d_o, int row)
{
    float sum[2] = {};
#pragma unroll
    for (int i = 0; i < x.PIECES; i++) {
        const int unit = threadIdx.x % CLUSTER_LANES + i * CLUSTER_LANES;
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
 * The producer warps, four in each block: they load tiles of queries, and compute lse and delta of
 * eight rows each for both blocks.  A slot of statistics can be reused without a barrier: when a
 * block has released tile t - STAGES, so that tile t is loaded, dq of tile t - STAGES -
 * CLUSTER_SLOTS is complete, so both blocks have read that tile's statistics.
 */
template <typename S>
__device__ __forceinline__ void cluster_produce(const struct attention_args &a,
                                                const struct cluster_maps &maps,
                                                cluster_shared<S> *here, int rank, int warp)
{
    static_assert(CLUSTER_KNOWN >= S::STAGES + CLUSTER_SLOTS, "the other block's are still read");
    const struct stationary_work w = here->work; /* a copy in registers */
    const int n = cluster_query_tiles(w), lane = threadIdx.x % CLUSTER_LANES;
    const int row = (rank * 4 + warp) * 8 + threadIdx.x % 32 / CLUSTER_LANES;
    const bool loads = warp == 0 && threadIdx.x % 32 == 0;
    const attention_rows o = attention_rows_at(a, a.o, w.sequence, w.head, w.first);
    cluster_output<S> x;
    if (loads)
        cluster_load<S>(maps, here, w, 0);
    load_output(x, a, w, o, row);
#pragma unroll 1
    for (int t = 0; t < n; t++) {
        const int stage = t % S::STAGES, slot = t % CLUSTER_KNOWN;
        if (loads && t + 1 < n)
            cluster_load<S>(maps, here, w, t + 1);
        __syncwarp();
        barrier_wait(&here->tile_full[stage], t / S::STAGES);
        const float delta = quad_sum(cluster_delta(x, here->ring[stage][1], row));
        if (lane < 2)
            floats_send(&here->statistics[slot][row], float2{x.lse * ATTENTION_LOG2E, delta},
                        &here->known[slot], lane);
        barrier_arrive_warp(&here->tile_empty[stage]);
        load_output(x, a, w, o, (t + 1) * S::QUERIES + row);
    }
}

#endif

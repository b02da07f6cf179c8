/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention backward on Hopper in one pass: what a block works on, how its tiles lie in shared
 * memory, and the threads that bring queries in and take dq out.
 *
 * A block has a tile of keys; dk and dv stay in registers while the tiles of queries pass that see
 * any of them, from the last to the first, each for all heads that share the keys before the next
 * one: late tiles of keys, which few queries see, do not wait until the first ones have added. What
 * it finds for dq of a tile is added to a sum in memory, tiles of keys in ascending order (ordered
 * dq), so that results have the same bits every time.  The first one stores, the last one takes the
 * sum, adds its own and writes dq.
 *
 * A block waits only for blocks before it in the grid, which have been started earlier: whatever
 * else runs on the device, the first of those that have not ended can go on.  Since all tiles of
 * keys meet the last queries first, also where causal, each is behind the one before it by the
 * time until the next tile may add.  So that blocks need not wait for that, several lines (heads,
 * or chunks of their queries) go side by side in the grid.
 */
#ifndef CKPT_CUDA_ATTENTION_ONEPASS_CUH
#define CKPT_CUDA_ATTENTION_ONEPASS_CUH

#include "kernels/cuda/attention/attention_boxes.cuh"
#include "kernels/cuda/attention/attention_largest.cuh"
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/attention/attention_workspace.h"
#include "kernels/cuda/hopper.cuh"

/* Heads of D; STAGES tiles of queries come ahead, IN_FLIGHT sums of dq are on their way out; none
 * of them: dq is another kernel's. */
template <int D_, int STAGES_, int IN_FLIGHT_> struct onepass_shape {
    static constexpr int D = D_, STAGES = STAGES_, IN_FLIGHT = IN_FLIGHT_;
    static constexpr bool DQ = IN_FLIGHT > 0;
    static constexpr int QUERIES = CUDA_ATTENTION_ONEPASS_QUERIES,
                         KEYS = CUDA_ATTENTION_ONEPASS_KEYS;
    static constexpr int GROUPS = KEYS / GROUP_ROWS, THREADS = GROUP * (GROUPS + 1);
    static constexpr int UNITS = D / 8;           /* pieces of 16 bytes in a row */
    static constexpr int STEPS = (UNITS + 1) / 2; /* of products along the width */
    /* Queries stand in boxes of 64 columns, rows of 128 bytes; what is beyond the width is zero. */
    static constexpr int BOXES = (D + 63) / 64;
    /* Columns of dq that a warpgroup finds: half of them.  Of 9 the fifth is found twice. */
    static constexpr int DQ_UNITS = (UNITS + 1) / 2;
    /* Registers for the scores of one more tile?  Where they are taken, none are left for pairs. */
    static constexpr bool AHEAD = D <= CUDA_ATTENTION_ONEPASS_UNPAIRED;
    static constexpr bool PAIRS = DQ && !AHEAD; /* may a block be two? */

    /* Keys stand in columns of cores; one of zeros makes the last step whole. */
    struct key_tile {
        uint4 unit[2 * STEPS][KEYS];
    };
    struct alignas(1024) query_tile {
        uint4 row[BOXES][QUERIES][8];
    };
    /* The gradient of scores, a core being 8 keys down and 8 queries across. */
    struct score_tile {
        uint4 unit[QUERIES / 8][KEYS];
    };
};

/*
 * The blocks of a launch: for each group of `together` lines, for each tile of keys, its lines.
 * If those of the last wave would leave half of the multiprocessors idle, each of them, from number
 * `whole` on, is two blocks with half of the queries.  The sums of the first that ends go to
 * memory, and the second adds them to its own: two numbers, so in either order with the same bits.
 */
struct onepass_grid {
    int lines, together, tiles, whole;
    int blocks;   /* of all */
    float4 *sums; /* dk and dv of both blocks of each pair, as accumulators lie */
    int *ended;   /* how many blocks of a pair have ended; zero at first */
};

/* A block's work. */
struct onepass_work {
    int sequence, shared, chunk; /* shared: its head of keys */
    struct attention_lead_place lead;
    int first_key, n_keys, keys; /* its keys within the sequence, all keys of that */
    int first_row, n_rows; /* the rows of its tile in an operand; without keys from n_keys on */
    bool halves;           /* 64 keys at most: warpgroups take tiles of queries in turn */
    int begin, end;        /* tiles of queries */
    int pair, half;        /* of a cluster of two blocks with half of the queries each; or -1 */
    int n;                 /* of them, over all heads; negative: there is no such line */
};

/* What dq takes. */
template <typename S, bool DQ> struct onepass_shared_dq {
    typename S::score_tile ds[2];
    alignas(128) float4 sums[S::IN_FLIGHT][S::UNITS][GROUP]; /* of dq, as accumulators lie */
    uint64_t exchanged[2]; /* both warpgroups' gradients of scores */
    uint64_t room[S::IN_FLIGHT], full[S::IN_FLIGHT];
    uint16_t most[GROUP * S::GROUPS]; /* of dq, of each thread */
};

template <typename S> struct onepass_shared_dq<S, false> {
};

template <typename S> struct onepass_shared : onepass_shared_dq<S, S::DQ> {
    typename S::query_tile ring[S::STAGES][2]; /* q, d_o */
    typename S::key_tile k, v;
    float2 statistics[S::STAGES][S::QUERIES];
    uint64_t come[S::STAGES], done[S::STAGES]; /* tiles of queries */
    struct onepass_work work;
};

struct onepass_maps {
    CUtensorMap q, d_o;
};

template <typename S>
__device__ __forceinline__ struct onepass_work onepass_work_of(const struct attention_args &a,
                                                               const struct onepass_grid &grid)
{
    struct onepass_work w = {};
    const int number = (int)blockIdx.x, after = number - grid.whole;
    const int item = after < 0 ? number : grid.whole + after / 2, row = item / grid.together;
    const int key_tile = row % grid.tiles;
    int64_t line = (int64_t)(row / grid.tiles) * grid.together + item % grid.together;
    w.n = -1;
    if (line >= grid.lines)
        return w;
    w.pair = after < 0 ? -1 : after / 2;
    w.half = after & 1;
    w.shared = (int)take_index(line, a.n_shared);
    w.chunk = (int)take_index(line, a.n_chunks);
    w.sequence = (int)line;
    if (S::DQ) {
        w.keys = (int)attention_keys_of(a, w.sequence).n;
        w.first_key = w.first_row = key_tile * S::KEYS;
    } else { /* packed */
        const struct attention_key_tile tile = attention_key_tile_of(a, key_tile, S::KEYS);
        if (tile.sequence < 0)
            return w;
        w.sequence = (int)tile.sequence;
        w.keys = (int)tile.keys.n;
        w.first_key = (int)tile.first;
        w.first_row = (int)(tile.keys.first + tile.first);
    }
    w.lead = attention_lead_place_of(a, w.sequence);
    w.n_keys = max(min(w.keys - w.first_key, S::KEYS), 0);
    w.n_rows = S::DQ ? min((int)a.n_keys - w.first_key, S::KEYS) : w.n_keys;
    w.halves = !S::DQ && w.n_keys <= GROUP_ROWS;
    const struct attention_span may =
        attention_queries_of_keys(a, w.first_key, w.first_key + w.n_keys, w.keys);
    const int64_t begin = w.chunk * a.chunk;
    w.begin = (int)max(may.begin, begin) / S::QUERIES;
    w.end = (int)((min(may.end, min(begin + a.chunk, a.n_queries)) + S::QUERIES - 1) / S::QUERIES);
    if (w.pair >= 0) {
        const int middle = (w.begin + w.end) / 2;
        if (w.half)
            w.begin = middle;
        else
            w.end = middle;
    }
    w.n = w.n_keys ? max(w.end - w.begin, 0) * (int)a.group : 0;
    return w;
}

/* Where a block is on its way through the queries. */
struct onepass_place {
    int head, tile;

    __device__ __forceinline__ onepass_place(const struct attention_args &a, const onepass_work &w)
        : head(w.shared * (int)a.group), tile(w.end - 1)
    {
    }

    __device__ __forceinline__ void next(const struct attention_args &a, const onepass_work &w)
    {
        if (++head == (w.shared + 1) * (int)a.group) {
            head -= (int)a.group;
            tile--;
        }
    }

    /* Of all tiles of all heads. */
    template <typename S>
    __device__ __forceinline__ int64_t number(const struct attention_args &a,
                                              const onepass_work &w) const
    {
        const int tiles = ((int)a.n_queries + S::QUERIES - 1) / S::QUERIES;
        return ((int64_t)w.sequence * a.n_heads + head) * tiles + tile;
    }
};

/* Which of the tiles of keys that see a tile of queries the block's is, and which is the last. */
struct onepass_order {
    int number, last;
};

template <typename S>
__device__ __forceinline__ struct onepass_order onepass_order_of(const struct attention_args &a,
                                                                 const onepass_work &w, int tile)
{
    const int n = (int)a.n_queries, first = tile * S::QUERIES, place = w.keys - n;
    int begin = 0, end = w.keys;
    if (a.mask.window)
        begin = max(place + first + 1 - (int)a.mask.window, 0) / S::KEYS;
    if (a.mask.causal)
        end = min(end, place + min(first + S::QUERIES, n));
    return onepass_order{w.first_key / S::KEYS - begin, (end - 1) / S::KEYS - begin};
}

/* ---- tiles of queries that come -------------------------------------------------------------- */

/* One thread. */
template <typename S>
__device__ __forceinline__ void onepass_bring(const struct attention_args &a,
                                              const struct onepass_maps &maps,
                                              onepass_shared<S> *here)
{
    const onepass_work &w = here->work;
    onepass_place p(a, w);
    const int n = w.n;
    const uint32_t bytes = sizeof here->ring[0] + sizeof here->statistics[0];
#pragma unroll 1
    for (int t = 0; t < n; t++, p.next(a, w)) {
        const int stage = t % S::STAGES;
        if (t >= S::STAGES)
            barrier_wait(&here->done[stage], t / S::STAGES - 1);
        barrier_expect(&here->come[stage], bytes);
#pragma unroll
        for (int i = 0; i < S::BOXES; i++) {
            const int at[5] = {64 * i, p.tile * S::QUERIES, p.head, w.lead.inner, w.lead.outer};
            box_load(here->ring[stage][0].row[i], &maps.q, &here->come[stage], at);
            box_load(here->ring[stage][1].row[i], &maps.d_o, &here->come[stage], at);
        }
        bulk_load(here->statistics[stage], a.statistics + p.number<S>(a, w) * S::QUERIES,
                  sizeof here->statistics[0], &here->come[stage]);
    }
}

/* ---- sums that go ---------------------------------------------------------------------------- */

__device__ __forceinline__ int onepass_released(const int *at)
{
    int x;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
    return x;
}

__device__ __forceinline__ void onepass_release(int *at, int x)
{
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}

/* One thread for each place of IN_FLIGHT.  The warpgroups put their dq there once there is room. In
 * the last tile it is their sum so far that comes: they add it to what they have. */
template <typename S>
__device__ __forceinline__ void onepass_take(const struct attention_args &a,
                                             onepass_shared<S> *here, int slot)
{
    const onepass_work &w = here->work;
    const uint32_t bytes = sizeof here->sums[0];
    const int n = w.n;
    onepass_place p(a, w);
    bool signalled = false; /* that there is room */
    for (int i = 0; i < slot; i++)
        p.next(a, w);
#pragma unroll 1
    for (int t = slot, use = 0; t < n; t += S::IN_FLIGHT, use++) {
        const struct onepass_order order = onepass_order_of<S>(a, w, p.tile);
        const int64_t number = p.number<S>(a, w);
        float *sum = a.sums + number * (S::QUERIES * S::D);
        const bool last = order.number == order.last, comes = last && order.number > 0;
        if (!signalled && !comes)
            barrier_arrive(&here->room[slot]);
        if (order.number > 0) {
            while (onepass_released(a.dq_order + number) < order.number)
                ;
            show_copies();
        }
        if (comes) {
            barrier_expect(&here->room[slot], bytes);
            bulk_load(here->sums[slot], sum, bytes, &here->room[slot]);
        }
        barrier_wait(&here->full[slot], use);
        for (int i = 0; i < S::IN_FLIGHT; i++)
            p.next(a, w);
        signalled = false;
        if (last)
            continue;
        if (order.number == 0)
            bulk_store(sum, here->sums[slot], bytes);
        else
            bulk_add(sum, here->sums[slot], bytes);
        stores_commit();
        if (t + S::IN_FLIGHT < n) {
            const struct onepass_order next = onepass_order_of<S>(a, w, p.tile);
            signalled = next.number < next.last || next.number == 0;
        }
        if (signalled) {
            stores_read<0>();
            barrier_arrive(&here->room[slot]);
        }
        stores_wait<0>();
        onepass_release(a.dq_order + number, order.number + 1);
    }
}

#endif

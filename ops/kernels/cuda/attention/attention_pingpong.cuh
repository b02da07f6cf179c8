/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on Hopper in the manner of FlashAttention-3: a block keeps a tile of queries while
 * tiles of keys and values stream through a ring in shared memory.  This file has the work of a
 * block, the layout of shared memory, and the producer threads.
 *
 * A block has GROUPS consumer warpgroups of 64 queries each, which issue their products in turn
 * (ping-pong), and one producer warpgroup.  Blocks are persistent: there is one per multiprocessor,
 * which loops over items (a tile of queries of one head).  Tiles of the next item are loaded while
 * the current one finishes.  Tiles of keys are processed from the last to the first, so that those
 * with a mask come first.
 */
#ifndef CKPT_CUDA_ATTENTION_PINGPONG_CUH
#define CKPT_CUDA_ATTENTION_PINGPONG_CUH

#include "kernels/cuda/attention/attention_boxes.cuh"
#include "kernels/cuda/attention/attention_largest.cuh"
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/hopper.cuh"

/* The description of an item, from the scheduler thread to all others. */
struct pingpong_item {
    float *lse;              /* of the first query */
    int head, first, end;    /* queries [first, end) */
    int key_head, first_key; /* first_key: among the packed rows */
    int n_keys;
    int begin_tile, end_tile; /* tiles of keys that at least one of its queries sees */
    float scale;              /* from products to scores in base 2 */
    struct attention_lead_place lead, key_lead;
};

/* Heads of width D.  A tile has KEYS keys; products with values round that up to VALUES. */
template <int D_, int KEYS_, int GROUPS_, bool PING_PONG_> struct pingpong_shape {
    static constexpr int D = D_, KEYS = KEYS_, GROUPS = GROUPS_;
    static constexpr bool PING_PONG =
        PING_PONG_; /* ping-pong: warpgroups issue their products in turn */
    static constexpr int VALUES = (KEYS + 15) / 16 * 16;
    static constexpr int ROWS = GROUP_ROWS * GROUPS;
    static constexpr int UNITS = D / 8; /* pieces of 16 bytes in a row */
    static constexpr int STEPS = (D + 15) / 16;
    static constexpr int THREADS = GROUP * (GROUPS + 1);
    /* A tile consists of boxes of 64 columns, i.e. rows of 128 bytes.  The last 8 columns of a
     * head of 72 are, padded with 8 zero columns, in a separate box of 16 columns; those of
     * values are in a box of 64, since a product along the keys needs all columns in boxes of
     * the same kind. */
    static constexpr int BOXES = D / 64;
    static constexpr bool NARROW = D % 64 != 0;
    /* Sizes in pieces of 16 bytes. */
    static constexpr int Q_TILE = ROWS * (8 * BOXES + 2 * NARROW);
    static constexpr int K_TILE = KEYS * (8 * BOXES + 2 * NARROW);
    static constexpr int V_TILE = VALUES * 8 * (BOXES + NARROW);
    /* The number of ring stages that fit in shared memory; tiles begin at multiples of 1024
     * bytes. */
    static constexpr int SHARED = 226 * 1024;
    static constexpr int in_1024(int pieces)
    {
        return (pieces + 63) / 64 * 1024;
    }
    static constexpr int STAGE = in_1024(K_TILE) + in_1024(V_TILE);
    /* Queries of this item, of the next one, and of the previous one, whose stage is the staging
     * buffer of its results. */
    static constexpr int Q_STAGES = 3;
    static constexpr int FIT = (SHARED - Q_STAGES * in_1024(Q_TILE)) / STAGE;
    static constexpr int STAGES = FIT < 4 ? FIT : 4;
    static_assert(STAGES >= 2, "a tile comes while another one is used");
    static_assert(D % 64 == 0 || D % 64 == 8, "a narrow box holds 8 columns");

    struct alignas(1024) tile_q {
        uint4 piece[Q_TILE];
    };
    struct alignas(1024) tile_k {
        uint4 piece[K_TILE];
    };
    struct alignas(1024) tile_v {
        uint4 piece[V_TILE];
    };
    static constexpr int ITEMS = 4; /* items that are scheduled ahead */
    struct shared {
        tile_q q[Q_STAGES];
        tile_k k[STAGES];
        tile_v v[STAGES];
        uint64_t q_full[Q_STAGES], q_empty[Q_STAGES];
        uint64_t k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
        uint64_t item_full[ITEMS], item_empty[ITEMS];
        struct pingpong_item item[ITEMS];
        uint16_t most[GROUP * GROUPS]; /* largest magnitude of each thread's results */
    };

    /* Descriptor of step k of the product along the width, for a warpgroup's queries or a tile of
     * keys. */
    template <int N>
    static __device__ __forceinline__ uint64_t along(uint32_t tile, int first, int k)
    {
        if (NARROW && k == STEPS - 1)
            return operand_with<SWIZZLE_32>(tile + BOXES * N * 8 + first * 2, 1, 16);
        return operand_with<SWIZZLE_128>(tile + k / 4 * N * 8 + first * 8 + k % 4 * 2, 1, 64);
    }

    /* Descriptor of 16 values, from number 16 k on. */
    static __device__ __forceinline__ uint64_t across(uint32_t tile, int k)
    {
        return operand_with<SWIZZLE_128>(tile + k * 16 * 8, VALUES * 8, 64);
    }
};

/* Maps of the operands with boxes of 64 columns, and of 16. */
struct pingpong_maps {
    CUtensorMap q, k, v, o, q_narrow, k_narrow, o_narrow;
};

/* The partition of the work, common to all blocks. */
struct pingpong_work {
    int items, tiles, units; /* of all; tiles of queries per head; heads of all sequences */
    int section;             /* heads whose items run concurrently, the longest items first */
    int whole;               /* items from this one on have 64 queries */
};

/* ---- items ----------------------------------------------------------------------------------- */

/* The tiles of keys that queries [first, end) see (attention_span_of_rows()). */
template <typename S>
__device__ __forceinline__ void pingpong_tiles(const struct attention_args &a, int n_keys,
                                               int first, int end, int &begin_tile, int &end_tile)
{
    const int place = n_keys - (int)a.n_queries, window = (int)a.mask.window;
    int n = n_keys;
    begin_tile = 0;
    if (a.mask.causal)
        n = max(min(place + end, n), 0);
    if (window)
        begin_tile = max(place + first + 1 - window, 0) / S::KEYS;
    end_tile = end > first ? (n + S::KEYS - 1) / S::KEYS : begin_tile;
}

/* The number of this block's item in round `wave`.  Every second round assigns items in reverse
 * order, so that a block with a long item gets a short one next. */
__device__ __forceinline__ int pingpong_number(int wave)
{
    return wave * gridDim.x + (wave % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* The position of an item. */
struct pingpong_place {
    int sequence, head, first, end; /* queries [first, end) */
};

template <typename S>
__device__ __forceinline__ struct pingpong_place
pingpong_place_of(const struct attention_args &a, const struct pingpong_work &w, int number)
{
    struct pingpong_place p;
    unsigned part = 0, rows = S::ROWS;
    if (number >= w.whole) {
        part = (number - w.whole) % S::GROUPS * GROUP_ROWS;
        number = w.whole + (number - w.whole) / S::GROUPS;
        rows = GROUP_ROWS;
    }
    const unsigned each = (unsigned)(w.section * w.tiles), section = (unsigned)number / each;
    const unsigned first = section * w.section, within = number - section * each;
    const unsigned heads = min((unsigned)w.section, w.units - first);
    const unsigned rank = heads == 1 ? within : within / heads;
    const unsigned unit = first + within - rank * heads;
    p.sequence = (int)(unit / (unsigned)a.n_heads);
    p.head = (int)(unit - p.sequence * (unsigned)a.n_heads);
    p.first = (int)((w.tiles - 1 - rank) * S::ROWS + part);
    p.end = min(p.first + rows, (unsigned)a.n_queries);
    return p;
}

template <typename S>
__device__ __forceinline__ void pingpong_item_of(struct pingpong_item &x,
                                                 const struct attention_args &a,
                                                 const struct pingpong_place &p)
{
    const struct attention_keys keys = attention_keys_of(a, p.sequence);
    x.lead = attention_lead_place_of(a, p.sequence);
    x.key_lead = a.lens ? attention_lead_place{0, 0} : x.lead;
    x.lse = (float *)a.lse.data + p.first * a.lse.row + p.head * a.lse.head +
            x.lead.inner * a.lse.lead[a.n_lead > 1 ? a.n_lead - 1 : 0];
    if (a.n_lead > 1)
        x.lse += x.lead.outer * a.lse.lead[0];
    x.head = p.head;
    x.first = p.first;
    x.end = p.end;
    x.key_head = a.group == 1 ? p.head : p.head / (int)a.group;
    x.first_key = (int)keys.first;
    x.n_keys = (int)keys.n;
    pingpong_tiles<S>(a, x.n_keys, p.first, p.end, x.begin_tile, x.end_tile);
    x.scale = fmaxf(attention_scale(a, keys) * ATTENTION_LOG2E, 1e-30f);
}

/* A position in a ring of N: the stage, and the number of completed rounds. */
template <int N> struct ring_place {
    int stage, round;

    __device__ __forceinline__ void next(void)
    {
        if (++stage == N) {
            stage = 0;
            round++;
        }
    }
};

/* ---- the scheduler thread -------------------------------------------------------------------- */

/* Describes the items ahead of time: this takes one thread about a thousand cycles per item, which
 * stay hidden. */
template <typename S>
__device__ __forceinline__ void pingpong_schedule(typename S::shared *here,
                                                  const struct attention_args &a,
                                                  const struct pingpong_work &w)
{
    ring_place<S::ITEMS> item = {0, 0};
    int number;
    for (int wave = 0; (number = pingpong_number(wave)) < w.items; wave++) {
        struct pingpong_item x;
        pingpong_item_of<S>(x, a, pingpong_place_of<S>(a, w, number));
        barrier_wait(&here->item_empty[item.stage], item.round - 1);
        here->item[item.stage] = x;
        barrier_arrive(&here->item_full[item.stage]);
        item.next();
    }
}

/* ---- the thread that loads tiles ------------------------------------------------------------- */

template <typename S> struct pingpong_loader {
    typename S::shared *here;
    const struct pingpong_maps &m;
    ring_place<S::Q_STAGES> q;
    ring_place<S::STAGES> k, v;
    ring_place<S::ITEMS> item;

    /* Loads N rows, from `row` on, in BOXES boxes of 64 columns. */
    template <int N, int BOXES>
    static __device__ __forceinline__ void load(uint4 *tile, const CUtensorMap *map,
                                                const uint64_t *barrier, int row, int head,
                                                const attention_lead_place &lead)
    {
#pragma unroll
        for (int c = 0; c < BOXES; c++)
            box_load(tile + c * N * 8, map, barrier, {c * 64, row, head, lead.inner, lead.outer});
    }

    template <int N>
    static __device__ __forceinline__ void load_narrow(uint4 *tile, const CUtensorMap *map,
                                                       const uint64_t *barrier, int row, int head,
                                                       const attention_lead_place &lead)
    {
        if (S::NARROW)
            box_load(tile + S::BOXES * N * 8, map, barrier,
                     {S::BOXES * 64, row, head, lead.inner, lead.outer});
    }

    __device__ __forceinline__ void queries(const pingpong_item &x)
    {
        const uint64_t *full = &here->q_full[q.stage];
        uint4 *tile = here->q[q.stage].piece;
        barrier_wait(&here->q_empty[q.stage], q.round - 1);
        barrier_expect(full, S::Q_TILE * 16);
        load<S::ROWS, S::BOXES>(tile, &m.q, full, x.first, x.head, x.lead);
        load_narrow<S::ROWS>(tile, &m.q_narrow, full, x.first, x.head, x.lead);
        q.next();
    }

    __device__ __forceinline__ void keys(const pingpong_item &x, int t)
    {
        const uint64_t *full = &here->k_full[k.stage];
        uint4 *tile = here->k[k.stage].piece;
        const int row = x.first_key + t * S::KEYS;
        barrier_wait(&here->k_empty[k.stage], k.round - 1);
        barrier_expect(full, S::K_TILE * 16);
        load<S::KEYS, S::BOXES>(tile, &m.k, full, row, x.key_head, x.key_lead);
        load_narrow<S::KEYS>(tile, &m.k_narrow, full, row, x.key_head, x.key_lead);
        k.next();
    }

    __device__ __forceinline__ void values(const pingpong_item &x, int t)
    {
        const uint64_t *full = &here->v_full[v.stage];
        barrier_wait(&here->v_empty[v.stage], v.round - 1);
        barrier_expect(full, S::V_TILE * 16);
        load<S::VALUES, S::BOXES + S::NARROW>(here->v[v.stage].piece, &m.v, full,
                                              x.first_key + t * S::KEYS, x.key_head, x.key_lead);
        v.next();
    }

    __device__ __forceinline__ void run(const struct pingpong_work &w)
    {
        map_prefetch(&m.q);
        map_prefetch(&m.k);
        map_prefetch(&m.v);
        for (int wave = 0; pingpong_number(wave) < w.items; wave++) {
            barrier_wait(&here->item_full[item.stage], item.round);
            const struct pingpong_item x = here->item[item.stage];
            int t = x.end_tile - 1;
            if (t >= x.begin_tile)
                keys(x, t);
            queries(x);
            for (t--; t >= x.begin_tile; t--) {
                keys(x, t);
                values(x, t + 1);
            }
            if (x.end_tile > x.begin_tile)
                values(x, x.begin_tile);
            barrier_arrive(&here->item_empty[item.stage]);
            item.next();
        }
    }
};

#endif

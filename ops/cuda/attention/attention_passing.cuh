/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on Hopper where queries stay and keys pass: what a block works on, how its tiles lie in
 * shared memory, and the thread that has them copied.
 *
 * A block has GROUPS warpgroups of 64 queries each and one more that copies.  There are as many
 * blocks as multiprocessors; each takes one item (a tile of queries of one head) after the other,
 * and tiles of the next item come while the last one is finished.  Tiles of keys are taken from the
 * last one to the first, so that those with a mask come first.
 */
#ifndef CKPT_CUDA_ATTENTION_PASSING_CUH
#define CKPT_CUDA_ATTENTION_PASSING_CUH

#include "cuda/attention/attention_boxes.cuh"
#include "cuda/attention/attention_largest.cuh"
#include "cuda/attention/attention_mma.cuh"
#include "cuda/hopper.cuh"

/* What the others are told of an item. */
struct passing_item {
    float *lse;              /* of the first query */
    int head, first, end;    /* queries */
    int key_head, first_key; /* its place among packed rows */
    int n_keys;
    int begin_tile, end_tile; /* tiles of keys that any of its queries sees */
    float scale;              /* of scores in base 2 */
    struct attention_lead_place lead, key_lead;
};

/* Heads of D; KEYS in a tile of keys, which products of values round up to VALUES. */
template <int D_, int KEYS_, int GROUPS_, bool TURNS_> struct passing_shape {
    static constexpr int D = D_, KEYS = KEYS_, GROUPS = GROUPS_;
    static constexpr bool TURNS = TURNS_; /* warpgroups begin their products in turns */
    static constexpr int VALUES = (KEYS + 15) / 16 * 16;
    static constexpr int ROWS = GROUP_ROWS * GROUPS;
    static constexpr int UNITS = D / 8; /* pieces of 16 bytes in a row */
    static constexpr int STEPS = (D + 15) / 16;
    static constexpr int THREADS = GROUP * (GROUPS + 1);
    /* A tile is made of boxes of 64 columns, rows of 128 bytes.  The last 8 columns of 72 stand,
     * with 8 of zeros, in a box of 16 columns of their own; those of values in one of 64, as the
     * product along the keys takes all columns from one kind of box. */
    static constexpr int BOXES = D / 64;
    static constexpr bool NARROW = D % 64 != 0;
    /* In pieces. */
    static constexpr int Q_TILE = ROWS * (8 * BOXES + 2 * NARROW);
    static constexpr int K_TILE = KEYS * (8 * BOXES + 2 * NARROW);
    static constexpr int V_TILE = VALUES * 8 * (BOXES + NARROW);
    /* Stages of the rings that fit; tiles begin at multiples of 1024 bytes. */
    static constexpr int SHARED = 226 * 1024;
    static constexpr int in_1024(int pieces)
    {
        return (pieces + 63) / 64 * 1024;
    }
    static constexpr int STAGE = in_1024(K_TILE) + in_1024(V_TILE);
    /* Queries of this item, of the next, and of the one before, where its results are stored from.
     */
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
    static constexpr int ITEMS = 4; /* told ahead */
    struct shared {
        tile_q q[Q_STAGES];
        tile_k k[STAGES];
        tile_v v[STAGES];
        uint64_t q_come[Q_STAGES], q_done[Q_STAGES];
        uint64_t k_come[STAGES], k_done[STAGES], v_come[STAGES], v_done[STAGES];
        uint64_t item_come[ITEMS], item_done[ITEMS];
        struct passing_item item[ITEMS];
        uint16_t most[GROUP * GROUPS]; /* of the results of each thread */
    };

    /* Descriptors of step k along the width, of a warpgroup's queries and of a tile of keys. */
    template <int N>
    static __device__ __forceinline__ uint64_t along(uint32_t tile, int first, int k)
    {
        if (NARROW && k == STEPS - 1)
            return operand_with<SWIZZLE_32>(tile + BOXES * N * 8 + first * 2, 1, 16);
        return operand_with<SWIZZLE_128>(tile + k / 4 * N * 8 + first * 8 + k % 4 * 2, 1, 64);
    }

    /* Of 16 values from 16 k on. */
    static __device__ __forceinline__ uint64_t across(uint32_t tile, int k)
    {
        return operand_with<SWIZZLE_128>(tile + k * 16 * 8, VALUES * 8, 64);
    }
};

/* Maps of the operands by boxes of 64 columns, and of 16. */
struct passing_maps {
    CUtensorMap q, k, v, o, q_narrow, k_narrow, o_narrow;
};

/* What all items have in common. */
struct passing_work {
    int items, tiles, units; /* all; tiles of queries of a head; heads of all sequences */
    int section;             /* heads whose items go side by side, the longest first */
    int whole;               /* items from this one on have 64 queries */
};

/* ---- items ----------------------------------------------------------------------------------- */

/* Tiles of keys that queries [first, end) see (attention_span_of_rows()). */
template <typename S>
__device__ __forceinline__ void passing_tiles(const struct attention_args &a, int n_keys, int first,
                                              int end, int &begin_tile, int &end_tile)
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

/* Item number `turn` of this block: blocks take them in turns, every second time the other way
 * around, so that one that got long items gets short ones next. */
__device__ __forceinline__ int passing_number(int turn)
{
    return turn * gridDim.x + (turn % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* Where an item is. */
struct passing_place {
    int sequence, head, first, end; /* queries */
};

template <typename S>
__device__ __forceinline__ struct passing_place
passing_place_of(const struct attention_args &a, const struct passing_work &w, int number)
{
    struct passing_place p;
    unsigned part = 0, rows = S::ROWS;
    if (number >= w.whole) {
        part = (number - w.whole) % S::GROUPS * GROUP_ROWS;
        number = w.whole + (number - w.whole) / S::GROUPS;
        rows = GROUP_ROWS;
    }
    const unsigned each = (unsigned)(w.section * w.tiles), section = (unsigned)number / each;
    const unsigned first = section * w.section, within = number - section * each;
    const unsigned heads = min((unsigned)w.section, w.units - first);
    const unsigned turn = heads == 1 ? within : within / heads;
    const unsigned unit = first + within - turn * heads;
    p.sequence = (int)(unit / (unsigned)a.n_heads);
    p.head = (int)(unit - p.sequence * (unsigned)a.n_heads);
    p.first = (int)((w.tiles - 1 - turn) * S::ROWS + part);
    p.end = min(p.first + rows, (unsigned)a.n_queries);
    return p;
}

template <typename S>
__device__ __forceinline__ void passing_item_of(struct passing_item &x,
                                                const struct attention_args &a,
                                                const struct passing_place &p)
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
    passing_tiles<S>(a, x.n_keys, p.first, p.end, x.begin_tile, x.end_tile);
    x.scale = fmaxf(attention_scale(a, keys) * ATTENTION_LOG2E, 1e-30f);
}

/* A place in a ring of N: which of its stages, and how often it has been around. */
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

/* ---- the thread that tells items ------------------------------------------------------------- */

/* Finding an item takes one thread about a thousand cycles, which nobody waits for. */
template <typename S>
__device__ __forceinline__ void
passing_tell(typename S::shared *here, const struct attention_args &a, const struct passing_work &w)
{
    ring_place<S::ITEMS> item = {0, 0};
    int number;
    for (int turn = 0; (number = passing_number(turn)) < w.items; turn++) {
        struct passing_item x;
        passing_item_of<S>(x, a, passing_place_of<S>(a, w, number));
        barrier_wait(&here->item_done[item.stage], item.round - 1);
        here->item[item.stage] = x;
        barrier_arrive(&here->item_come[item.stage]);
        item.next();
    }
}

/* ---- the thread that has tiles copied -------------------------------------------------------- */

template <typename S> struct passing_copier {
    typename S::shared *here;
    const struct passing_maps &m;
    ring_place<S::Q_STAGES> q;
    ring_place<S::STAGES> k, v;
    ring_place<S::ITEMS> item;

    /* N rows from `row` on, in BOXES boxes of 64 columns. */
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

    __device__ __forceinline__ void queries(const passing_item &x)
    {
        const uint64_t *come = &here->q_come[q.stage];
        uint4 *tile = here->q[q.stage].piece;
        barrier_wait(&here->q_done[q.stage], q.round - 1);
        barrier_expect(come, S::Q_TILE * 16);
        load<S::ROWS, S::BOXES>(tile, &m.q, come, x.first, x.head, x.lead);
        load_narrow<S::ROWS>(tile, &m.q_narrow, come, x.first, x.head, x.lead);
        q.next();
    }

    __device__ __forceinline__ void keys(const passing_item &x, int t)
    {
        const uint64_t *come = &here->k_come[k.stage];
        uint4 *tile = here->k[k.stage].piece;
        const int row = x.first_key + t * S::KEYS;
        barrier_wait(&here->k_done[k.stage], k.round - 1);
        barrier_expect(come, S::K_TILE * 16);
        load<S::KEYS, S::BOXES>(tile, &m.k, come, row, x.key_head, x.key_lead);
        load_narrow<S::KEYS>(tile, &m.k_narrow, come, row, x.key_head, x.key_lead);
        k.next();
    }

    __device__ __forceinline__ void values(const passing_item &x, int t)
    {
        const uint64_t *come = &here->v_come[v.stage];
        barrier_wait(&here->v_done[v.stage], v.round - 1);
        barrier_expect(come, S::V_TILE * 16);
        load<S::VALUES, S::BOXES + S::NARROW>(here->v[v.stage].piece, &m.v, come,
                                              x.first_key + t * S::KEYS, x.key_head, x.key_lead);
        v.next();
    }

    __device__ __forceinline__ void run(const struct passing_work &w)
    {
        map_prefetch(&m.q);
        map_prefetch(&m.k);
        map_prefetch(&m.v);
        for (int turn = 0; passing_number(turn) < w.items; turn++) {
            barrier_wait(&here->item_come[item.stage], item.round);
            const struct passing_item x = here->item[item.stage];
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
            barrier_arrive(&here->item_done[item.stage]);
            item.next();
        }
    }
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention forward on Hopper where packed keys stay in shared memory (attention_stationary.cuh),
 * in tiles of 80.  Four warpgroups go their own ways through tiles of 64 queries.  What one of them
 * does with its scores takes twice the time of its products, so that there are always products of
 * others; no more than four have the 128 registers that scores of 80 keys take.
 *
 * Exponentials are of the scores themselves: bf16 has the range of fp32, so that a probability has
 * as many digits however large the largest is.  Only where the sum of a row leaves the range does
 * its tile begin once more, with the largest score subtracted.
 *
 * Compiled for sm_90a alone, since PTX of these instructions fits no other device.
 */
#include "kernels/cuda/attention/attention_pingpong_tile.cuh"
#include "kernels/cuda/attention/attention_stationary.cuh"

constexpr int FORWARD_GROUPS = 4, FORWARD_THREADS = GROUP * FORWARD_GROUPS;
constexpr int STAGES = 2;                                  /* tiles of queries of a warpgroup */
constexpr int RESULT = 1, RANGE = RESULT + FORWARD_GROUPS; /* numbered barriers of warpgroups */
constexpr float LN2 = 0.69314718f;
constexpr float SMALL = 0x1p-90f, LARGE = 0x1p100f; /* sums of exponentials that are taken */

extern __shared__ __align__(1024) char attention_shared[];

template <int D_> struct forward_shape {
    typedef pingpong_shape<D_, 80, FORWARD_GROUPS, false> tiles;
    typedef stationary_shape<D_> rows;
    static constexpr int D = D_, KEYS = tiles::KEYS, UNITS = rows::UNITS;
    static constexpr int TILES = (STATIONARY + KEYS - 1) / KEYS;
    static_assert(tiles::VALUES == KEYS, "a tile of values has no row of the next one");
};

/* Results are stored from where their queries were. */
template <typename S> struct forward_shared {
    typename S::rows::row_tile q[FORWARD_GROUPS][STAGES];
    typename S::tiles::tile_k k[S::TILES];
    typename S::tiles::tile_v v[S::TILES];
    uint64_t q_come[FORWARD_GROUPS][STAGES], come[S::TILES];
    struct stationary_work work;
    uint16_t most[FORWARD_THREADS]; /* of the results of each thread */
};

struct forward_maps {
    struct stationary_map q, o;
    CUtensorMap k, k_narrow, v;
};

/* ---- keys ------------------------------------------------------------------------------------ */

/* One thread has the tiles copied that have keys. */
template <typename S>
__device__ __forceinline__ void bring_keys(forward_shared<S> *here, const struct forward_maps &m,
                                           const struct stationary_work &w)
{
    typedef typename S::tiles T;
#pragma unroll 1
    for (int t = 0; t * S::KEYS < w.keys.n; t++) {
        const int row = (int)w.keys.first + t * S::KEYS;
        barrier_expect(&here->come[t], (T::K_TILE + T::V_TILE) * 16);
        box_load(here->k[t].piece, &m.k, &here->come[t], {0, row, w.head, 0, 0});
        if (T::NARROW)
            box_load(here->k[t].piece + S::KEYS * 8, &m.k_narrow, &here->come[t],
                     {64, row, w.head, 0, 0});
#pragma unroll
        for (int c = 0; c < T::BOXES + T::NARROW; c++)
            box_load(here->v[t].piece + c * S::KEYS * 8, &m.v, &here->come[t],
                     {c * 64, row, w.head, 0, 0});
    }
}

/* Packed rows behind the last key belong to another sequence or to nobody: their values, which meet
 * probabilities of 0, become 0 too, as they might be anything.  Behind the last row are zeros. */
template <typename S>
__device__ __forceinline__ void clear_values(const struct attention_args &a,
                                             forward_shared<S> *here)
{
    const struct stationary_work &w = here->work;
    const int t = (int)(w.keys.n - 1) / S::KEYS, n = (int)w.keys.n - t * S::KEYS;
    if (w.keys.n == 0 || n == S::KEYS || w.keys.first + w.keys.n == a.n_keys)
        return;
    barrier_wait(&here->come[t], 0);
#pragma unroll 1
    for (int i = threadIdx.x; i < S::tiles::V_TILE; i += FORWARD_THREADS)
        if (i / 8 % S::KEYS >= n)
            here->v[t].piece[i] = uint4{0, 0, 0, 0};
    show_products();
    __syncthreads();
}

/* ---- a warpgroup ----------------------------------------------------------------------------- */

/* One thread has a warpgroup's queries from number `row` of the block's on copied to a stage. */
template <typename S>
__device__ __forceinline__ void bring_queries(forward_shared<S> *here, const struct forward_maps &m,
                                              const struct stationary_work &w, int group, int stage,
                                              int row)
{
    const uint64_t *come = &here->q_come[group][stage];
    barrier_expect(come, S::rows::TILE_BYTES);
    load_tile<typename S::rows>(&here->q[group][stage], m.q, come, w, row);
}

/* The inverse of a sum of exponentials, and its logarithm with `top` added.  A sum is normal or 0,
 * for which both are 0. */
__device__ __forceinline__ float inverse_of_sum(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return x == 0.f ? 0.f : fmaf(y, -fmaf(x, y, -1.f), y);
}

__device__ __forceinline__ float log_of_sum(float x, float top)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return x == 0.f ? 0.f : fmaf(top, LN2, __fmul_rn(y, LN2));
}

template <typename S> struct forward_group {
    typedef typename S::tiles T;
    const struct attention_args &a;
    const struct forward_maps &m;
    forward_shared<S> *here;
    int group, n_keys;
    float scale; /* of scores in base 2; positive, so that the largest product has the largest */
    int stage, round;

    __device__ __forceinline__ void begin(float (&s)[S::KEYS / 8][4], int at, int t) const
    {
        begin_scores<T, GROUP_ROWS>(s, piece_at(&here->q[group][at]), piece_at(&here->k[t]), 0);
    }

    /* Once the results of the tile before have been read, tile `row` may come to their place. */
    __device__ __forceinline__ void bring_next(int row) const
    {
        if (threadIdx.x % GROUP == 0 && row < here->work.n) {
            stores_read<0>();
            bring_queries<S>(here, m, here->work, group, stage, row);
        }
    }

    /* Stores lse of the queries from number `row` of the block's on; sums become factors of o.
     * Without keys both are zero. */
    __device__ __forceinline__ void close(pingpong_rows<T> &r, int row) const
    {
        const struct stationary_work *w = &here->work;
        const int mine = row + stationary_row();
        if (threadIdx.x % 4 == 0) {
            float *lse = w->lse + mine * a.lse.row;
            if (mine < w->n)
                lse[0] = log_of_sum(r.sum[0], r.top[0] * scale);
            if (mine + 8 < w->n)
                lse[8 * a.lse.row] = log_of_sum(r.sum[1], r.top[1] * scale);
        }
        r.sum[0] = inverse_of_sum(r.sum[0]);
        r.sum[1] = inverse_of_sum(r.sum[1]);
    }

    /* Stores o. */
    __device__ __forceinline__ void finish(pingpong_rows<T> &r, int row, int at)
    {
        const struct stationary_work *w = &here->work;
        const int left = w->n - row - stationary_row();
        multiply_sums(r.o, r.sum[0], r.sum[1]);
        if (a.most[0])
            attention_keep_largest(here->most, attention_largest(r.o, 1.f, left));
        put_rows<typename S::rows>(here->q[group][at], r.o);
        show_products();
        named_sync(RESULT + group, GROUP);
        if (threadIdx.x % GROUP == 0)
            store_tile<typename S::rows>(&here->q[group][at], m.o, *w, row);
    }

    /* Scores become probabilities, not divided by anything; SAFE: by that of the largest. */
    template <bool SAFE>
    __device__ __forceinline__ float2 exponentials(pingpong_rows<T> &r,
                                                   float (&s)[S::KEYS / 8][4]) const
    {
        if (SAFE)
            return float2{find_probabilities(r, s, scale, 0), find_probabilities(r, s, scale, 1)};
        float sum[2][2] = {};
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[n][i] = power2(s[n][i] * scale);
                sum[i / 2][i % 2] += s[n][i];
            }
        r.sum[0] += sum[0][0] + sum[0][1];
        r.sum[1] += sum[1][0] + sum[1][1];
        return float2{1.f, 1.f};
    }

    /* Hides scores of keys from number n of the tile on. */
    __device__ __forceinline__ void hide(float (&s)[S::KEYS / 8][4], int n) const
    {
        constexpr int HALF = S::KEYS / 16, REST = S::KEYS / 8 - HALF;
        const int end = n - threadIdx.x % 4 * 2, late = end - HALF * 8;
        if (n < HALF * 8)
            hide_after(units_from<HALF>(s, 0), end, end);
        hide_after(units_from<REST>(s, HALF), late, late);
    }

    /* Scores of tile t of keys become rounded probabilities. */
    template <bool SAFE, bool LAST>
    __device__ __forceinline__ void attend(pingpong_rows<T> &r, float (&s)[S::KEYS / 8][4],
                                           int t) const
    {
        const int n = n_keys - t * S::KEYS;
        if (LAST && n < S::KEYS)
            hide(s, n);
        const float2 factor = exponentials<SAFE>(r, s);
        pin_registers(s);
        before_wait(r.sum[0] + r.sum[1], shared_address(here));
        products_wait<0>();
        pin_registers(r.o);
        pin_registers(r.p);
        if (SAFE)
            multiply_sums(r.o, factor.x, factor.y);
        round_probabilities(r, s);
        pin_registers(r.p);
    }

    /* Completes the sums of rows.  Is one out of range, so that the sum of its values might be? */
    __device__ __forceinline__ bool add_sums(pingpong_rows<T> &r) const
    {
        bool out = false;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            r.sum[half] = quad_sum(r.sum[half]);
            out = out || !(r.sum[half] > SMALL && r.sum[half] < LARGE);
        }
        return n_keys && named_any(RANGE + group, GROUP, out);
    }

    /* All tiles of keys for queries at stage `at`, whose first scores are there; then those of the
     * next tile of queries are, which begin before the last product of this one.  The next queries
     * are asked for, and sums are completed, while products are under way.  Returns true if a sum
     * is out of range. */
    template <bool SAFE>
    __device__ __forceinline__ bool pass(pingpong_rows<T> &r, float (&s)[S::KEYS / 8][4], int at,
                                         int row)
    {
        const int last = (n_keys + S::KEYS - 1) / S::KEYS - 1; /* -1 without keys */
        const int next = row + FORWARD_GROUPS * GROUP_ROWS;
        open_rows(r);
        clear_sums(r);
        if (!SAFE)
            r.top[0] = r.top[1] = 0;
        if (!SAFE && last <= 0)
            bring_next(next);
#pragma unroll 1
        for (int t = 0; t < last; t++) {
            attend<SAFE, false>(r, s, t);
            if (row < FORWARD_GROUPS * GROUP_ROWS)
                barrier_wait(&here->come[t + 1], 0);
            products_begin();
            begin(s, at, t + 1);
            begin_sums(r, piece_at(&here->v[t]));
            if (!SAFE && t == 0)
                bring_next(next);
            products_wait<1>();
            pin_registers(s);
        }
        if (last >= 0) {
            attend<SAFE, true>(r, s, last);
            if (next < here->work.n)
                barrier_wait(&here->q_come[group][stage], round);
            products_begin();
            begin(s, stage, 0);
            begin_sums(r, piece_at(&here->v[last]));
        }
        const bool out = add_sums(r);
        close(r, row);
        products_wait<1>();
        pin_registers(s);
        products_wait<0>();
        pin_registers(r.o);
        pin_registers(r.p);
        return out;
    }

    __device__ __forceinline__ void take(pingpong_rows<T> &r, float (&s)[S::KEYS / 8][4], int row)
    {
        const int at = stage;
        stage ^= 1;
        round += stage == 0;
        if (pass<false>(r, s, at, row)) {
            products_begin();
            begin(s, at, 0);
            products_wait<0>();
            pin_registers(s);
            pass<true>(r, s, at, row);
        }
        finish(r, row, at);
    }

    __device__ __forceinline__ void run(void)
    {
        pingpong_rows<T> r;
        float s[S::KEYS / 8][4];
        int row = group * GROUP_ROWS;
        attention_keep_none(here->most);
        if (row >= here->work.n)
            return;
        barrier_wait(&here->q_come[group][0], 0);
        if (n_keys)
            barrier_wait(&here->come[0], 0);
        products_begin();
        begin(s, 0, 0);
        products_wait<0>();
        pin_registers(s);
#pragma unroll 1
        for (; row < here->work.n; row += FORWARD_GROUPS * GROUP_ROWS) {
            barrier_wait(&here->q_come[group][stage], round);
            take(r, s, row);
        }
        if (a.most[0])
            attention_leave_kept(a.most[0], here->most);
        if (threadIdx.x % GROUP == 0)
            stores_read<0>();
    }
};

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Threads of four warps begin a block at the same time, since each divides or waits for memory: one
 * has the first queries copied, one reads the lengths of sequences and has the keys copied, one
 * finds the place of lse, and one fetches the descriptions of boxes. */
template <typename S>
__device__ __forceinline__ void begin_block(const struct attention_args &a,
                                            const struct forward_maps &m, forward_shared<S> *here)
{
    struct stationary_work *w = &here->work;
    if (threadIdx.x == 0) {
        for (int i = 0; i < FORWARD_GROUPS * STAGES; i++)
            barrier_init(&here->q_come[0][i], 1);
        barrier_inits_end();
        const struct stationary_work x = stationary_work_of(a, blockIdx.x);
        w->sequence = x.sequence;
        w->head = x.head;
        w->first = x.first;
        w->n = x.n;
        w->lead = x.lead;
        for (int i = 0; i < FORWARD_GROUPS && i * GROUP_ROWS < x.n; i++)
            bring_queries<S>(here, m, x, i, 0, i * GROUP_ROWS);
    } else if (threadIdx.x == 32) {
        for (int i = 0; i < S::TILES; i++)
            barrier_init(&here->come[i], 1);
        barrier_inits_end();
        const struct stationary_work x = stationary_work_of(a, blockIdx.x);
        w->keys = x.keys;
        w->factor = x.factor;
        bring_keys<S>(here, m, x);
    } else if (threadIdx.x == 64)
        w->lse = stationary_work_of(a, blockIdx.x).lse;
    else if (threadIdx.x == 96) {
        map_prefetch(&m.q.wide);
        map_prefetch(&m.k);
        map_prefetch(&m.v);
        if (S::tiles::NARROW) {
            map_prefetch(&m.q.narrow);
            map_prefetch(&m.k_narrow);
        }
    }
    __syncthreads();
}

template <typename S>
__global__ void __launch_bounds__(FORWARD_THREADS, 1)
    stationary_forward(const __grid_constant__ attention_args a,
                       const __grid_constant__ forward_maps m)
{
    static_assert(sizeof(forward_shared<S>) <= 227 * 1024, "what a block may have");
    forward_shared<S> *here = (forward_shared<S> *)attention_shared;
    begin_block<S>(a, m, here);
    const struct stationary_work &w = here->work;
    const float scale = fmaxf(w.factor * ATTENTION_LOG2E, 1e-30f);
    forward_group<S> g = {a, m, here, group_index(), (int)w.keys.n, scale, 0, 0};
    clear_values<S>(a, here);
    g.run();
}

static bool key_map(CUtensorMap *to, const struct attention_args &a,
                    const struct attention_operand &x, int columns, int rows)
{
    return attention_box_map(to, a, x, a.n_keys, a.n_shared, true, columns, rows);
}

template <typename S> static bool launch(struct attention_args a, cudaStream_t stream)
{
    const int64_t blocks = stationary_blocks(a, FORWARD_GROUPS);
    const int shared = (int)sizeof(forward_shared<S>);
    struct forward_maps m = {};
    if (!stationary_map_of<typename S::rows>(&m.q, a, a.q) ||
        !stationary_map_of<typename S::rows>(&m.o, a, a.o) || !key_map(&m.k, a, a.k, 64, S::KEYS) ||
        !key_map(&m.v, a, a.v, 64, S::KEYS) ||
        (S::tiles::NARROW && !key_map(&m.k_narrow, a, a.k, 16, S::KEYS)))
        return false;
    cudaFuncSetAttribute(stationary_forward<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         shared);
    stationary_forward<S><<<(unsigned)blocks, FORWARD_THREADS, shared, stream>>>(a, m);
    return true;
}

bool attention_stationary_takes(const struct attention_args &a)
{
    return attention_stationary_fits(a) && a.n_keys <= STATIONARY && a.scale > 0 &&
           attention_box_takes(a, a.k, a.n_keys, a.n_shared, true) &&
           attention_box_takes(a, a.v, a.n_keys, a.n_shared, true) &&
           attention_box_takes(a, a.o, a.n_queries, a.n_heads, false);
}

bool attention_stationary_forward(const struct attention_args &a, cudaStream_t stream)
{
    return a.width == 64 ? launch<forward_shape<64>>(a, stream)
                         : launch<forward_shape<72>>(a, stream);
}

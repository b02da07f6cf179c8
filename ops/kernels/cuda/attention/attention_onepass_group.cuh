/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward attention on Hopper in one pass (attention_onepass.cuh): a consumer warpgroup with its
 * 64 keys.
 *
 * Scores are transposed, keys x queries, so that rounded they are the left operands that dk and dv
 * need.  The gradients of scores also go to shared memory; from there each of the two warpgroups
 * reads all of them for its half of the columns of dq.  Where registers allow, scores are issued
 * one tile ahead and dq one tile behind, so that the tensor cores have work while exponentials are
 * computed, and no warpgroup waits for the other.
 *
 * Missing queries contribute nothing: their q, d_o, lse and delta are zero.  Missing keys are zero,
 * so they add nothing to dq.
 */
#ifndef CKPT_CUDA_ATTENTION_ONEPASS_GROUP_CUH
#define CKPT_CUDA_ATTENTION_ONEPASS_GROUP_CUH

#include "kernels/cuda/attention/attention_onepass.cuh"

/* ---- operands -------------------------------------------------------------------------------- */

/* Descriptor of 64 rows of keys in shared memory as left operand along the width. */
template <typename S>
__device__ __forceinline__ uint64_t onepass_keys_along(uint32_t tile, int first, int k)
{
    return operand_at(tile + 2 * k * S::KEYS + first, S::KEYS, 8);
}

/* Loads the warp's 16 rows of keys to registers. */
template <typename S>
__device__ __forceinline__ void onepass_load_keys(uint32_t (&x)[S::STEPS][4],
                                                  const typename S::key_tile &tile, int first)
{
    const int row = first + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 16;
    const int unit = threadIdx.x % 32 / 16;
#pragma unroll
    for (int k = 0; k < S::STEPS; k++)
        load_matrix4(x[k], (const bf16 *)&tile.unit[2 * k + unit][row]);
}

/* Descriptor of queries along the width as right operand. */
template <typename S>
__device__ __forceinline__ uint64_t onepass_queries_along(uint32_t tile, int k)
{
    return operand_with<SWIZZLE_128>(tile + k / 4 * S::QUERIES * 8 + k % 4 * 2, 1, 64);
}

/* Issues c [64, 64] = keys queries^T, with keys in registers or in shared memory. */
template <typename S>
__device__ __forceinline__ void onepass_scores(float (&c)[8][4], const uint32_t (&x)[S::STEPS][4],
                                               uint32_t queries)
{
#pragma unroll
    for (int k = 0; k < S::STEPS; k++)
        multiply_registers<0>(c, x[k], onepass_queries_along<S>(queries, k), k > 0);
    products_commit();
}

template <typename S>
__device__ __forceinline__ void onepass_scores(float (&c)[8][4], uint32_t tile, int first,
                                               uint32_t queries)
{
#pragma unroll
    for (int k = 0; k < S::STEPS; k++)
        multiply_shared<0, 0>(c, onepass_keys_along<S>(tile, first, k),
                              onepass_queries_along<S>(queries, k), k > 0);
    products_commit();
}

/* Issues c [64, D] += p queries. */
template <typename S>
__device__ __forceinline__ void onepass_add(float (&c)[S::UNITS][4], const uint32_t (&p)[4][4],
                                            uint32_t queries)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        multiply_registers<1>(c, p[k],
                              operand_with<SWIZZLE_128>(queries + k * 128, S::QUERIES * 8, 64), 1);
    products_commit();
}

__device__ __forceinline__ void onepass_round(uint32_t (&p)[4][4], const float (&c)[8][4])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[k][i] = pack2(c[2 * k + i / 2][i % 2 * 2], c[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* ---- a warpgroup ----------------------------------------------------------------------------- */

template <typename S, bool MASKED> struct onepass_group {
    const struct attention_args &a;
    onepass_shared<S> *here;
    int group;
    int first, key; /* of the warpgroup in the block, of the thread in the sequence */
    float factor;   /* scale of scores */
    /* Keys stay in registers where some are left, values where even more are. */
    static constexpr bool K_STAYS = S::D <= 96, V_STAYS = S::D <= 64 || !S::DQ;
    uint32_t k[S::STEPS][4], v[S::STEPS][4];
    float s[8][4], next[8][4], ds[8][4], dq[S::DQ_UNITS][4];
    float dk[S::UNITS][4], dv[S::UNITS][4];
    uint32_t p_rounded[4][4], ds_rounded[4][4];
    struct onepass_order order; /* at the tile whose dq is computed */
    struct onepass_place place, before;

    __device__ __forceinline__ onepass_group(const struct attention_args &args,
                                             onepass_shared<S> *shared, int g)
        : a(args), here(shared), group(g), place(args, shared->work), before(place)
    {
        const struct attention_keys keys = {0, here->work.keys};
        first = here->work.halves ? 0 : group * GROUP_ROWS;
        factor = attention_scale(a, keys);
        key = here->work.first_key + first + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
        order = onepass_order_of<S>(a, here->work, place.tile);
        if constexpr (K_STAYS)
            onepass_load_keys<S>(k, here->k, first);
        if constexpr (V_STAYS)
            onepass_load_keys<S>(v, here->v, first);
#pragma unroll
        for (int n = 0; n < S::UNITS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dk[n][i] = dv[n][i] = 0;
    }

    /* ---- products ---- */

    __device__ __forceinline__ void begin_scores(float (&c)[8][4], int stage)
    {
        const uint32_t q = piece_at(&here->ring[stage][0]);
        if constexpr (K_STAYS)
            onepass_scores<S>(c, k, q);
        else
            onepass_scores<S>(c, piece_at(&here->k), first, q);
    }

    __device__ __forceinline__ void begin_gradients(int stage)
    {
        const uint32_t d_o = piece_at(&here->ring[stage][1]);
        if constexpr (V_STAYS)
            onepass_scores<S>(ds, v, d_o);
        else
            onepass_scores<S>(ds, piece_at(&here->v), first, d_o);
    }

    /* Issues the warpgroup's half of the columns of dq of tile t. */
    __device__ __forceinline__ void begin_dq(int t)
    {
        const uint32_t left = piece_at(&here->ds[t & 1]);
        const uint32_t right = piece_at(&here->k.unit[group * (S::UNITS / 2)]);
#pragma unroll
        for (int step = 0; step < S::KEYS / 16; step++)
            multiply_shared<1, 1>(dq, operand_at(left + step * 16, 8, S::KEYS),
                                  operand_at(right + step * 16, 8, S::KEYS), step > 0);
        products_commit();
    }

    /* ---- scores ---- */

    /* Does every query of a tile see every key of the block, and more than one key? */
    __device__ __forceinline__ bool sees_all(int tile) const
    {
        const onepass_work &w = here->work;
        const int first = w.keys - (int)a.n_queries + tile * S::QUERIES;
        return first > 0 && (!a.mask.causal || w.first_key + S::KEYS - 1 <= first) &&
               (!a.mask.window || first + S::QUERIES - w.first_key <= (int)a.mask.window);
    }

    /* The keys [x, y) visible to the query of an accumulator column. */
    __device__ __forceinline__ int2 seen(int tile, int column) const
    {
        const int n = here->work.keys;
        const int stop =
            n - (int)a.n_queries + tile * S::QUERIES + column + threadIdx.x % 4 * 2 + 1;
        return int2{a.mask.window ? max(stop - (int)a.mask.window, 0) : 0,
                    a.mask.causal ? min(stop, n) : n};
    }

    __device__ __forceinline__ void find_probabilities(int stage, bool all)
    {
        const float2 *statistics = here->statistics[stage] + threadIdx.x % 4 * 2;
        const float scale = factor * ATTENTION_LOG2E;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const float lse[2] = {statistics[n * 8].x, statistics[n * 8 + 1].x};
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = probability(s[n][i] * scale, lse[i % 2]);
        }
        if (MASKED && !all)
            hide_unseen();
    }

    __device__ __forceinline__ void hide_unseen(void)
    {
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int2 keys = seen(place.tile, n * 8 + i % 2);
                if (key + i / 2 * 8 < keys.x || key + i / 2 * 8 >= keys.y)
                    s[n][i] = 0;
            }
    }

    __device__ __forceinline__ void find_gradients(int stage, bool all)
    {
        const float2 *statistics = here->statistics[stage] + threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const float delta[2] = {statistics[n * 8].y, statistics[n * 8 + 1].y};
#pragma unroll
            for (int i = 0; i < 4; i++)
                ds[n][i] = s[n][i] * (ds[n][i] - delta[i % 2]);
        }
        if (MASKED && !all)
            clear_single();
    }

    /* The score of a single key gets no gradient, exactly. */
    __device__ __forceinline__ void clear_single(void)
    {
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int2 keys = seen(place.tile, n * 8 + i);
                if (keys.y - keys.x <= 1)
                    ds[n][i] = ds[n][i + 2] = 0;
            }
    }

    /* Writes the gradients to shared memory for both warpgroups; a fence and a barrier must
     * follow. */
    __device__ __forceinline__ void put_gradients(int t)
    {
        const int row = threadIdx.x / 32 * 16 + threadIdx.x % 16, unit = threadIdx.x % 32 / 16;
#pragma unroll
        for (int i = 0; i < 4; i++)
            store_matrix4(shared_address(&here->ds[t & 1].unit[2 * i + unit][row]),
                          ds_rounded[i][0], ds_rounded[i][1], ds_rounded[i][2], ds_rounded[i][3]);
    }

    /* ---- dq ---- */

    /* Adds dq of tile t, at position p, to the sum that tiles of keys pass on; the last tile of
     * keys writes the total as dq. */
    __device__ __forceinline__ void put_dq(int t, const onepass_place &p)
    {
        const int slot = t % S::IN_FLIGHT, unit = group * (S::UNITS / 2);
        const int first = S::UNITS % 2 ? group : 0; /* the other warpgroup has the unit before */
        float4 *sum = &here->sums[slot][unit][threadIdx.x % GROUP];
        barrier_wait(&here->room[slot], t / S::IN_FLIGHT);
        if (order.number < order.last) {
#pragma unroll
            for (int n = 0; n < S::DQ_UNITS; n++)
                if (n >= first)
                    sum[n * GROUP] = float4{dq[n][0], dq[n][1], dq[n][2], dq[n][3]};
            return;
        }
#pragma unroll
        for (int n = 0; n < S::DQ_UNITS; n++)
            if (n >= first && order.number > 0) {
                const float4 x = sum[n * GROUP];
                dq[n][0] += x.x;
                dq[n][1] += x.y;
                dq[n][2] += x.z;
                dq[n][3] += x.w;
            }
        write_dq(p, first, unit);
    }

    __device__ __forceinline__ void write_dq(const onepass_place &p, int first, int unit)
    {
        const int row = threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
        const int n_rows = (int)a.n_queries - p.tile * S::QUERIES;
        const attention_rows to = attention_rows_at(a, a.dq, here->work.sequence, p.head,
                                                    (int64_t)p.tile * S::QUERIES + row);
        if (a.most[0])
            attention_keep_largest(here->most, attention_largest(dq, factor, n_rows - row, first));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            bf16 *out = (bf16 *)to.data + half * 8 * to.row + unit * 8 + threadIdx.x % 4 * 2;
            if (row + half * 8 < n_rows)
#pragma unroll
                for (int n = 0; n < S::DQ_UNITS; n++)
                    if (n >= first)
                        *reinterpret_cast<uint32_t *>(out + n * 8) =
                            pack2(dq[n][2 * half] * factor, dq[n][2 * half + 1] * factor);
        }
    }

    /* ---- tiles of queries ---- */

    /* Processes a tile; its scores were issued one tile ahead, and dq follows one tile behind.  To
     * keep one order of products, the last tile's scores are issued once more, and the first tile
     * issues a dq that is not used. */
    __device__ __forceinline__ void process_ahead(int t, int stage, int ahead, int ahead_round)
    {
        const bool all = !MASKED || sees_all(place.tile);
        barrier_wait(&here->come[ahead], ahead_round);
        products_begin();
        begin_gradients(stage);
        begin_scores(next, ahead);
        if (t > 0)
            barrier_wait(&here->exchanged[(t - 1) & 1], (t - 1) / 2);
        begin_dq(t - 1);
        find_probabilities(stage, all);
        onepass_round(p_rounded, s);
        pin_registers(p_rounded);
        products_begin();
        onepass_add<S>(dv, p_rounded, piece_at(&here->ring[stage][1]));
        pin_registers(s);
        products_wait<3>();
        pin_registers(ds);
        find_gradients(stage, all);
        onepass_round(ds_rounded, ds);
        /* The other warpgroup may then overwrite the gradients that dq was computed from. */
        products_wait<1>();
        pin_registers(next);
        pin_registers(dq);
        put_gradients(t);
        if (t > 0)
            put_dq(t - 1, before);
        before = place;
        if (MASKED)
            order = onepass_order_of<S>(a, here->work, place.tile);
        show_products();
        barrier_arrive_warp(&here->exchanged[t & 1]);
        if (t > 0)
            barrier_arrive_warp(&here->full[(t - 1) % S::IN_FLIGHT]);
        products_begin();
        onepass_add<S>(dk, ds_rounded, piece_at(&here->ring[stage][0]));
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = next[n][i];
        products_wait<0>();
        pin_registers(p_rounded);
        pin_registers(ds_rounded);
        barrier_arrive_warp(&here->done[stage]);
        place.next(a, here->work);
    }

    /* The same without dq. */
    __device__ __forceinline__ void process_keys(int stage, int ahead, int ahead_round)
    {
        barrier_wait(&here->come[ahead], ahead_round);
        products_begin();
        begin_gradients(stage);
        begin_scores(next, ahead);
        find_probabilities(stage, true);
        onepass_round(p_rounded, s);
        pin_registers(p_rounded);
        products_begin();
        onepass_add<S>(dv, p_rounded, piece_at(&here->ring[stage][1]));
        pin_registers(s);
        products_wait<2>();
        pin_registers(ds);
        find_gradients(stage, true);
        onepass_round(ds_rounded, ds);
        pin_registers(ds_rounded);
        products_begin();
        onepass_add<S>(dk, ds_rounded, piece_at(&here->ring[stage][0]));
        products_wait<2>();
        pin_registers(next);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = next[n][i];
        products_wait<0>();
        pin_registers(p_rounded);
        pin_registers(ds_rounded);
        pin_registers(dv);
        pin_registers(dk);
        barrier_arrive_warp(&here->done[stage]);
    }

    /* Processes all tiles of queries, or every second one. */
    __device__ __forceinline__ void run_keys(void)
    {
        const int n = here->work.n, step = here->work.halves ? 2 : 1;
        int t = here->work.halves ? group : 0, stage = t % S::STAGES, round = 0;
        if (t < n) {
            barrier_wait(&here->come[stage], 0);
            products_begin();
            begin_scores(s, stage);
            products_wait<0>();
            pin_registers(s);
        }
#pragma unroll 1
        for (; t < n; t += step) {
            const bool wraps = stage + step >= S::STAGES, last = t + step >= n;
            const int after = stage + step - (wraps ? S::STAGES : 0), round_after = round + wraps;
            process_keys(stage, last ? stage : after, last ? round : round_after);
            stage = after;
            round = round_after;
        }
        pin_registers(dk);
        pin_registers(dv);
    }

    __device__ __forceinline__ void finish_dq(int t)
    {
        barrier_wait(&here->exchanged[t & 1], t / 2);
        products_begin();
        begin_dq(t);
        products_wait<0>();
        pin_registers(dq);
        put_dq(t, before);
        show_products();
        barrier_arrive_warp(&here->full[t % S::IN_FLIGHT]);
    }

    /* Processes a tile whose scores are known.  Those of the next tile are issued to the same
     * registers before dq is put, so that the tensor cores have work meanwhile.  The last tile's
     * are issued once more. */
    __device__ __forceinline__ void process_whole(int t, int stage, int ahead, int ahead_round)
    {
        const bool all = !MASKED || sees_all(place.tile);
        products_begin();
        begin_gradients(stage);
        find_probabilities(stage, all);
        onepass_round(p_rounded, s);
        pin_registers(p_rounded);
        products_begin();
        onepass_add<S>(dv, p_rounded, piece_at(&here->ring[stage][1]));
        pin_registers(s);
        products_wait<1>();
        pin_registers(ds);
        find_gradients(stage, all);
        onepass_round(ds_rounded, ds);
        put_gradients(t);
        show_products();
        barrier_arrive_warp(&here->exchanged[t & 1]);
        products_begin();
        onepass_add<S>(dk, ds_rounded, piece_at(&here->ring[stage][0]));
        barrier_wait(&here->exchanged[t & 1], t / 2);
        begin_dq(t);
        products_wait<1>();
        pin_registers(p_rounded);
        pin_registers(ds_rounded);
        barrier_arrive_warp(&here->done[stage]);
        barrier_wait(&here->come[ahead], ahead_round);
        begin_scores(s, ahead);
        if (MASKED)
            order = onepass_order_of<S>(a, here->work, place.tile);
        products_wait<1>();
        pin_registers(dq);
        put_dq(t, place);
        show_products();
        barrier_arrive_warp(&here->full[t % S::IN_FLIGHT]);
        place.next(a, here->work);
        products_wait<0>();
        pin_registers(s);
    }

    __device__ __forceinline__ void run(void)
    {
        const int n = here->work.n;
        int stage = 0, round = 0;
        attention_keep_none(here->most);
        if (n > 0) {
            barrier_wait(&here->come[0], 0);
            products_begin();
            begin_scores(s, 0);
            products_wait<0>();
            pin_registers(s);
        }
#pragma unroll 1
        for (int t = 0; t < n; t++) {
            const bool wraps = stage + 1 == S::STAGES, last = t + 1 == n;
            const int after = wraps ? 0 : stage + 1, round_after = round + wraps;
            if constexpr (S::AHEAD)
                process_ahead(t, stage, last ? stage : after, last ? round : round_after);
            else
                process_whole(t, stage, last ? stage : after, last ? round : round_after);
            stage = after;
            round = round_after;
        }
        if (S::AHEAD && n > 0)
            finish_dq(n - 1);
        if (a.most[0])
            attention_leave_kept(a.most[0], here->most);
        pin_registers(dk);
        pin_registers(dv);
    }

    /* ---- dk and dv ---- */

    static __device__ __forceinline__ void add4(float (&c)[4], const float4 &x)
    {
        c[0] += x.x;
        c[1] += x.y;
        c[2] += x.z;
        c[3] += x.w;
    }

    /* Stores fp32 partial sums to the scratch of a chunk. */
    __device__ __forceinline__ void put_partial(float *to, const float (&c)[S::UNITS][4],
                                                float times) const
    {
        const onepass_work &w = here->work;
        const int row = key - w.first_key;
        const int64_t to_row = (a.lens ? 0 : w.sequence * a.n_keys) + w.first_row + row;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float *at = to + ((to_row + half * 8) * a.n_shared + w.shared) * S::D;
            if (row + half * 8 < w.n_rows)
#pragma unroll
                for (int n = 0; n < S::UNITS; n++)
                    *reinterpret_cast<float2 *>(at + n * 8 + threadIdx.x % 4 * 2) =
                        float2{c[n][2 * half] * times, c[n][2 * half + 1] * times};
        }
    }

    /* Stores the warp's 16 rows through shared memory, since accumulators have only 8 contiguous
     * bytes per row. */
    __device__ __forceinline__ void put_rows(const struct attention_operand &x, char *room,
                                             const float (&c)[S::UNITS][4], float times,
                                             uint32_t *most) const
    {
        constexpr int pitch = (S::UNITS | 1) * 16;
        const onepass_work &w = here->work;
        const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16;
        const int n_rows = min(w.n_rows - first, 16);
        if (most)
            warp_leave_largest(most, warp_largest(attention_largest(c, times, n_rows - lane / 4)));
        char *at = room + lane / 4 * pitch + lane % 4 * 4;
#pragma unroll
        for (int n = 0; n < S::UNITS; n++) {
            *reinterpret_cast<uint32_t *>(at + n * 16) = pack2(c[n][0] * times, c[n][1] * times);
            *reinterpret_cast<uint32_t *>(at + n * 16 + 8 * pitch) =
                pack2(c[n][2] * times, c[n][3] * times);
        }
        __syncwarp();
        const attention_rows to =
            attention_rows_at(a, x, w.sequence, w.shared, w.first_key + first);
        for (int i = lane; i < n_rows * S::UNITS; i += 32)
            *reinterpret_cast<uint4 *>((bf16 *)to.data + i / S::UNITS * to.row + i % S::UNITS * 8) =
                *reinterpret_cast<const uint4 *>(room + i / S::UNITS * pitch + i % S::UNITS * 16);
        __syncwarp();
    }

    /* Rows without a key have no gradient; their probabilities were those of a score of 0. */
    __device__ __forceinline__ void clear_missing(float (&c)[S::UNITS][4]) const
    {
        const int row = key - here->work.first_key;
#pragma unroll
        for (int n = 0; n < S::UNITS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[n][i] = row + i / 2 * 8 < here->work.n_keys ? c[n][i] : 0.f;
    }

    /* Adds the second warpgroup's sums for the same keys to those of the first. */
    __device__ __forceinline__ void join_halves(float (&c)[S::UNITS][4]) const
    {
        float4 *room = (float4 *)here->ring + threadIdx.x % GROUP;
        named_sync(1, GROUP * S::GROUPS);
#pragma unroll
        for (int n = 0; n < S::UNITS; n++)
            if (group == 1)
                room[n * GROUP] = float4{c[n][0], c[n][1], c[n][2], c[n][3]};
        named_sync(1, GROUP * S::GROUPS);
#pragma unroll
        for (int n = 0; n < S::UNITS; n++)
            if (group == 0)
                add4(c[n], room[n * GROUP]);
    }

    /* Is the block the second of its pair to end?  Then it adds the sums of the first. */
    __device__ __forceinline__ bool join_pair(const struct onepass_grid &grid)
    {
        constexpr int threads = GROUP * S::GROUPS, block = 2 * S::UNITS * threads;
        const onepass_work &w = here->work;
        float4 *own = grid.sums + (2 * w.pair + w.half) * (int64_t)block + threadIdx.x;
        const float4 *other = own + (w.half ? -block : block);
#pragma unroll
        for (int n = 0; n < S::UNITS; n++) {
            own[n * threads] = float4{dk[n][0], dk[n][1], dk[n][2], dk[n][3]};
            own[(S::UNITS + n) * threads] = float4{dv[n][0], dv[n][1], dv[n][2], dv[n][3]};
        }
        __threadfence();
        named_sync(1, threads);
        if (threadIdx.x == 0)
            here->work.n = atomicAdd(&grid.ended[w.pair], 1);
        named_sync(1, threads);
        if (here->work.n == 0)
            return false;
        __threadfence();
#pragma unroll
        for (int n = 0; n < S::UNITS; n++) {
            add4(dk[n], __ldcg(&other[n * threads]));
            add4(dv[n], __ldcg(&other[(S::UNITS + n) * threads]));
        }
        return true;
    }

    __device__ __forceinline__ void finish(const struct onepass_grid &grid)
    {
        if constexpr (S::PAIRS && !MASKED)
            if (here->work.pair >= 0 && !join_pair(grid))
                return;
        if (!S::DQ && here->work.halves) {
            join_halves(dk);
            join_halves(dv);
            if (group == 1)
                return;
        }
        if (here->work.n_keys < here->work.n_rows) {
            clear_missing(dk);
            clear_missing(dv);
        }
        if (a.partial) {
            const int64_t matrix = (a.lens ? 1 : a.n_sequences) * a.n_keys * a.n_shared * S::D;
            float *to = a.partial + here->work.chunk * 2 * matrix;
            put_partial(to, dk, factor);
            put_partial(to + matrix, dv, 1.f);
            return;
        }
        named_sync(1, GROUP * S::GROUPS); /* before tiles of queries are overwritten */
        char *room = (char *)here->ring + threadIdx.x / 32 * 16 * (S::UNITS | 1) * 16;
        put_rows(a.dk, room, dk, factor, a.most[1]);
        put_rows(a.dv, room, dv, 1.f, a.most[2]);
    }
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a warpgroup does with its 64 queries (attention_passing.cuh).
 *
 * Scores of the next tile of keys are begun before the product of this one's probabilities and
 * values, which runs while exponentials of the next are found.
 */
#ifndef CKPT_CUDA_ATTENTION_PASSING_GROUP_CUH
#define CKPT_CUDA_ATTENTION_PASSING_GROUP_CUH

#include "cuda/attention/attention_passing_tile.cuh"

constexpr float LN2 = 0.69314718f;

template <typename S> struct passing_group {
    const struct attention_args &a;
    const struct passing_maps &m;
    typename S::shared *here;
    int group;
    bool pending; /* results of the item before may not have been read */
    ring_place<S::Q_STAGES> q;
    ring_place<S::STAGES> k, v;
    ring_place<S::ITEMS> item;

    __device__ __forceinline__ void turn_begin(void) const
    {
        if (S::TURNS)
            named_sync(1 + group, 2 * GROUP);
    }

    __device__ __forceinline__ void turn_end(void) const
    {
        if (S::TURNS)
            named_arrive(1 + (group + 1) % S::GROUPS, 2 * GROUP);
    }

    __device__ __forceinline__ void done(const uint64_t *barrier) const
    {
        if (threadIdx.x % 32 == 0)
            barrier_arrive(barrier);
    }

    __device__ __forceinline__ void keys_come(void) const
    {
        barrier_wait(&here->k_come[k.stage], k.round);
    }

    __device__ __forceinline__ void keys_done(void)
    {
        done(&here->k_done[k.stage]);
        k.next();
    }

    __device__ __forceinline__ void values_come(void) const
    {
        barrier_wait(&here->v_come[v.stage], v.round);
    }

    __device__ __forceinline__ void values_done(void)
    {
        done(&here->v_done[v.stage]);
        v.next();
    }

    /* Tiles that other warpgroups use. */
    __device__ __forceinline__ void skip(int n)
    {
#pragma unroll 1
        for (; n > 0; n--) {
            keys_come();
            turn_begin();
            turn_end();
            keys_done();
            values_come();
            values_done();
        }
    }

    /* Scores of tile t, of queries from `row` on, that are not seen. */
    __device__ __forceinline__ void mask(float (&s)[S::KEYS / 8][4], int n_keys, int row,
                                         int t) const
    {
        const int first = t * S::KEYS, place = n_keys - (int)a.n_queries + row;
        const int from = first + threadIdx.x % 4 * 2;
        const int seen = place + 1 + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4;
        if (first + S::KEYS > n_keys || (a.mask.causal && first + S::KEYS > place + 1)) {
            const int most = a.mask.causal ? 0 : INT_MAX / 2;
            hide_after(s, min(seen + most, n_keys) - from, min(seen + 8 + most, n_keys) - from);
        }
        if (a.mask.window && first < place + GROUP_ROWS - (int)a.mask.window)
            hide_before(s, seen - (int)a.mask.window - from, seen + 8 - (int)a.mask.window - from);
    }

    /* Packed rows behind the last key belong to another sequence or to nobody: their values, which
     * meet probabilities of 0, become 0 too, as they might be anything.  Every warp clears them
     * before its own products, so that none waits for another. */
    __device__ __forceinline__ void clear_values(int n_keys, int t) const
    {
        uint4 *tile = here->v[v.stage].piece;
        const int first = min(n_keys - t * S::KEYS, S::VALUES) * 8;
        values_come();
        for (int box = 0; box < S::V_TILE; box += S::VALUES * 8)
#pragma unroll 1
            for (int i = first + threadIdx.x % 32; i < S::VALUES * 8; i += 32)
                tile[box + i] = uint4{0, 0, 0, 0};
        show_products();
        __syncwarp();
    }

    /* Tiles [begin, end) of keys, for queries from `row` on. */
    __device__ __forceinline__ void sum(passing_rows<S> &r, int n_keys, int row, int begin, int end,
                                        float scale)
    {
        float s[S::KEYS / 8][4];
        const uint32_t q_tile = piece_at(here->q[q.stage].piece);
        int t = end - 1;
        keys_come();
        turn_begin();
        products_begin();
        begin_scores<S>(s, q_tile, piece_at(here->k[k.stage].piece), group);
        turn_end();
        products_wait<0>();
        pin_registers(s);
        keys_done();
        results_read();
        mask(s, n_keys, row, t);
        find_probabilities(r, s, scale, 0);
        find_probabilities(r, s, scale, 1);
        round_probabilities(r, s);
        pin_registers(r.p);
        if (a.lens)
            clear_values(n_keys, t);
#pragma unroll 1
        for (t--; t >= begin; t--) {
            keys_come();
            turn_begin();
            products_begin();
            begin_scores<S>(s, q_tile, piece_at(here->k[k.stage].piece), group);
            values_come();
            begin_sums(r, piece_at(here->v[v.stage].piece));
            turn_end();
            products_wait<1>();
            pin_registers(s);
            keys_done();
            mask(s, n_keys, row, t);
            const float upper = find_probabilities(r, s, scale, 0);
            const float lower = find_probabilities(r, s, scale, 1);
            pin_registers(s);
            before_wait(r.sum[0] + r.sum[1], q_tile);
            products_wait<0>();
            pin_registers(r.o);
            pin_registers(r.p);
            values_done();
            if (__any_sync(0xffffffffu, upper != 1.f || lower != 1.f))
                multiply_sums(r.o, upper, lower);
            round_probabilities(r, s);
            pin_registers(r.p);
        }
        values_come();
        products_begin();
        begin_sums(r, piece_at(here->v[v.stage].piece));
        products_wait<0>();
        pin_registers(r.o);
        values_done();
    }

    /* The warpgroup's results are stored from where its queries were, and read there until the next
     * item has begun: then its part of that stage is free. */
    __device__ __forceinline__ void results_read(void)
    {
        if (pending && threadIdx.x % GROUP == 0) {
            stores_read<0>();
            barrier_arrive(&here->q_done[q.stage ^ 1]);
        }
        pending = false;
    }

    /* The warp's 16 rows; pieces of 16 bytes lie as the swizzle of the boxes has them. */
    __device__ __forceinline__ void put_results(const float (&o)[S::UNITS][4]) const
    {
        const int lane = threadIdx.x % 32, row = threadIdx.x % GROUP / 32 * 16 + lane % 16;
        const uint32_t tile = shared_address(here->q[q.stage].piece) + group * GROUP_ROWS * 128;
#pragma unroll
        for (int n = 0; n + 2 <= S::UNITS; n += 2)
            store_matrix4(tile + n / 8 * S::ROWS * 128 + row * 128 +
                              ((n + lane / 16) % 8 ^ row % 8) * 16,
                          pack2(o[n][0], o[n][1]), pack2(o[n][2], o[n][3]),
                          pack2(o[n + 1][0], o[n + 1][1]), pack2(o[n + 1][2], o[n + 1][3]));
        if (S::NARROW)
            store_matrix2(shared_address(here->q[q.stage].piece) + S::BOXES * S::ROWS * 128 +
                              (group * GROUP_ROWS + row) * 32 + row / 4 % 2 * 16,
                          pack2(o[S::UNITS - 1][0], o[S::UNITS - 1][1]),
                          pack2(o[S::UNITS - 1][2], o[S::UNITS - 1][3]));
    }

    __device__ __forceinline__ void store_results(const passing_item &x, int row) const
    {
        const uint4 *tile = here->q[q.stage].piece;
#pragma unroll
        for (int c = 0; c < S::BOXES; c++)
            box_store(&m.o, tile + (c * S::ROWS + group * GROUP_ROWS) * 8,
                      {c * 64, row, x.head, x.lead.inner, x.lead.outer});
        if (S::NARROW)
            box_store(&m.o_narrow, tile + S::BOXES * S::ROWS * 8 + group * GROUP_ROWS * 2,
                      {S::BOXES * 64, row, x.head, x.lead.inner, x.lead.outer});
        stores_commit();
    }

    /* o and lse of the warpgroup's queries.  Without keys both are zero. */
    __device__ __forceinline__ void finish(passing_rows<S> &r, const passing_item &x)
    {
        const int lane = threadIdx.x % 32, first = x.first + group * GROUP_ROWS;
        const int row = threadIdx.x / 32 * 16 + lane / 4; /* the lane's first, within the item */
        const int left = x.end - x.first - row;
        const float log_scale = x.scale * LN2;
        float *lse = x.lse + row * a.lse.row, factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = quad_sum(r.sum[half]);
            if (lane % 4 == 0 && half * 8 < left)
                lse[half * 8 * a.lse.row] =
                    sum == 0.f ? 0.f : r.top[half] * log_scale + __logf(sum);
            factor[half] = sum == 0.f ? 0.f : __frcp_rn(sum);
        }
        multiply_sums(r.o, factor[0], factor[1]);
        put_results(r.o);
        show_products();
        named_sync(8 + group, GROUP);
        if (threadIdx.x % GROUP == 0 && first < x.end)
            store_results(x, first);
        pending = true;
        done(&here->item_done[item.stage]);
        q.next();
        item.next();
    }

    __device__ __forceinline__ void run(const struct passing_work &w)
    {
        for (int turn = 0; passing_number(turn) < w.items; turn++) {
            passing_rows<S> r;
            int begin, end;
#pragma unroll
            for (int n = 0; n < S::UNITS; n++)
                r.o[n][0] = r.o[n][1] = r.o[n][2] = r.o[n][3] = 0.f;
            r.top[0] = r.top[1] = -INFINITY;
            r.sum[0] = r.sum[1] = 0.f;
            barrier_wait(&here->q_come[q.stage], q.round);
            const passing_item &x = here->item[item.stage];
            const int row = x.first + group * GROUP_ROWS, n_keys = x.n_keys;
            const int first_tile = x.begin_tile, last_tile = x.end_tile;
            passing_tiles<S>(a, n_keys, row, min(row + GROUP_ROWS, x.end), begin, end);
            if (begin >= end) {
                results_read();
                skip(last_tile - first_tile);
            } else {
                skip(last_tile - end);
                sum(r, n_keys, row, begin, end, x.scale);
                skip(begin - first_tile);
            }
            finish(r, x);
        }
        if (threadIdx.x % GROUP == 0)
            stores_read<0>();
    }
};

#endif

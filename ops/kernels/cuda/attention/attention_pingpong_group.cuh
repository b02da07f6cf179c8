/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer warpgroup with its 64 queries (attention_pingpong.cuh).  The scores of a tile of keys
 * are issued before the product of the previous tile's probabilities and values, which runs while
 * exponentials are computed.  The first tile of an item overlaps with the last one of the previous
 * item in the same way; the previous item's results are stored in between.
 */
#ifndef CKPT_CUDA_ATTENTION_PINGPONG_GROUP_CUH
#define CKPT_CUDA_ATTENTION_PINGPONG_GROUP_CUH

#include "kernels/cuda/attention/attention_pingpong_tile.cuh"

constexpr float LN2 = 0.69314718f;

template <typename S> struct pingpong_group {
    const struct attention_args &a;
    const struct pingpong_maps &m;
    typename S::shared *here;
    int group;
    ring_place<S::Q_STAGES> q;
    ring_place<S::STAGES> k, v;
    ring_place<S::ITEMS> item;
    int stored;   /* the stage of queries that is the staging buffer of the results */
    bool pending; /* a store may still read it */

    __device__ __forceinline__ void ping_pong_begin(void) const
    {
        if (S::PING_PONG)
            named_sync(1 + group, 2 * GROUP);
    }

    __device__ __forceinline__ void ping_pong_end(void) const
    {
        if (S::PING_PONG)
            named_arrive(1 + (group + 1) % S::GROUPS, 2 * GROUP);
    }

    __device__ __forceinline__ void arrive(const uint64_t *barrier) const
    {
        if (threadIdx.x % 32 == 0)
            barrier_arrive(barrier);
    }

    __device__ __forceinline__ void wait_keys(void) const
    {
        barrier_wait(&here->k_full[k.stage], k.round);
    }

    __device__ __forceinline__ void release_keys(void)
    {
        arrive(&here->k_empty[k.stage]);
        k.next();
    }

    __device__ __forceinline__ void wait_values(void) const
    {
        barrier_wait(&here->v_full[v.stage], v.round);
    }

    __device__ __forceinline__ void release_values(void)
    {
        arrive(&here->v_empty[v.stage]);
        v.next();
    }

    /* Passes over n tiles that only other warpgroups use. */
    __device__ __forceinline__ void skip_tiles(int n)
    {
#pragma unroll 1
        for (; n > 0; n--) {
            wait_keys();
            ping_pong_begin();
            ping_pong_end();
            release_keys();
            wait_values();
            release_values();
        }
    }

    /* Hides the scores of tile t that are not visible to queries from `row` on. */
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

    /* Rows after the last key belong to another sequence or to none.  Their probabilities are 0,
     * but their values might be anything, also NaN, so they are cleared; those past the last row
     * of the operand came as zeros.  A tile of values may reach into the next tile's keys, so the
     * last tile is not the only one with such rows.  Every warp clears them before its own
     * products, so that no warp waits for another. */
    __device__ __forceinline__ void clear_values(int n_keys, int t) const
    {
        if (n_keys == (int)a.n_keys || t * S::KEYS + S::VALUES <= n_keys)
            return;
        uint4 *tile = here->v[v.stage].piece;
        const int first = min(n_keys - t * S::KEYS, S::VALUES) * 8;
        wait_values();
        for (int box = 0; box < S::V_TILE; box += S::VALUES * 8)
#pragma unroll 1
            for (int i = first + threadIdx.x % 32; i < S::VALUES * 8; i += 32)
                tile[box + i] = uint4{0, 0, 0, 0};
        show_products();
        __syncwarp();
    }

    /* Results are stored from the stage of the item's queries.  Once the store has read it, the
     * warpgroup releases its part of that stage. */
    __device__ __forceinline__ void results_read(void)
    {
        if (pending && threadIdx.x % GROUP == 0) {
            stores_read<0>();
            barrier_arrive(&here->q_empty[stored]);
        }
        pending = false;
    }

    /* Writes the warp's 16 rows to shared memory with the swizzle of the boxes. */
    __device__ __forceinline__ void put_results(const float (&o)[S::UNITS][4]) const
    {
        const int lane = threadIdx.x % 32, row = threadIdx.x % GROUP / 32 * 16 + lane % 16;
        const uint32_t tile = shared_address(here->q[stored].piece) + group * GROUP_ROWS * 128;
#pragma unroll
        for (int n = 0; n + 2 <= S::UNITS; n += 2)
            store_matrix4(tile + n / 8 * S::ROWS * 128 + row * 128 +
                              ((n + lane / 16) % 8 ^ row % 8) * 16,
                          pack2(o[n][0], o[n][1]), pack2(o[n][2], o[n][3]),
                          pack2(o[n + 1][0], o[n + 1][1]), pack2(o[n + 1][2], o[n + 1][3]));
        if (S::NARROW)
            store_matrix2(shared_address(here->q[stored].piece) + S::BOXES * S::ROWS * 128 +
                              (group * GROUP_ROWS + row) * 32 + row / 4 % 2 * 16,
                          pack2(o[S::UNITS - 1][0], o[S::UNITS - 1][1]),
                          pack2(o[S::UNITS - 1][2], o[S::UNITS - 1][3]));
    }

    __device__ __forceinline__ void store_results(const pingpong_item &x, int row) const
    {
        const uint4 *tile = here->q[stored].piece;
#pragma unroll
        for (int c = 0; c < S::BOXES; c++)
            box_store(&m.o, tile + (c * S::ROWS + group * GROUP_ROWS) * 8,
                      {c * 64, row, x.head, x.lead.inner, x.lead.outer});
        if (S::NARROW)
            box_store(&m.o_narrow, tile + S::BOXES * S::ROWS * 8 + group * GROUP_ROWS * 2,
                      {S::BOXES * 64, row, x.head, x.lead.inner, x.lead.outer});
        stores_commit();
    }

    /* Stores o and lse of the previous item (before) or of this one; top: the raw scores with
     * probability 1, sums: the sums of probabilities.  Both results are zero for rows that see no
     * key. */
    __device__ __forceinline__ void finish(float (&o)[S::UNITS][4], const float (&top)[2],
                                           const float (&sums)[2], bool before)
    {
        const int item_stage = before ? (item.stage + S::ITEMS - 1) % S::ITEMS : item.stage;
        const pingpong_item &x = here->item[item_stage];
        results_read();
        stored = before ? (q.stage + S::Q_STAGES - 1) % S::Q_STAGES : q.stage;
        const int lane = threadIdx.x % 32, first = x.first + group * GROUP_ROWS;
        const int row = threadIdx.x / 32 * 16 + lane / 4; /* the lane's first, within the item */
        const int left = x.end - x.first - row;
        const float log_scale = x.scale * LN2;
        float *lse = x.lse + row * a.lse.row, factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = quad_sum(sums[half]);
            if (lane % 4 == 0 && half * 8 < left)
                lse[half * 8 * a.lse.row] = sum == 0.f ? 0.f : top[half] * log_scale + __logf(sum);
            factor[half] = sum == 0.f ? 0.f : __frcp_rn(sum);
        }
        multiply_sums(o, factor[0], factor[1]);
        if (a.most[0])
            attention_keep_largest(here->most, attention_largest(o, 1.f, left));
        put_results(o);
        show_products();
        named_sync(8 + group, GROUP);
        if (threadIdx.x % GROUP == 0 && first < x.end)
            store_results(x, first);
        pending = true;
        arrive(&here->item_empty[item_stage]);
    }

    /* Processes one tile of keys for queries from `row` on.  FIRST: the first tile of an item;
     * WARM: the product with the previous tile's values is pending. */
    template <bool FIRST, bool WARM>
    __device__ __forceinline__ void step(pingpong_rows<S> &r, int n_keys, int row, int t,
                                         float scale)
    {
        float s[S::KEYS / 8][4];
        const float top[2] = {r.top[0], r.top[1]}, sum[2] = {r.sum[0], r.sum[1]};
        wait_keys();
        ping_pong_begin();
        products_begin();
        begin_scores<S, S::ROWS>(s, piece_at(here->q[q.stage].piece),
                                 piece_at(here->k[k.stage].piece), group * GROUP_ROWS);
        if (WARM) {
            wait_values();
            begin_sums(r, piece_at(here->v[v.stage].piece));
        }
        ping_pong_end();
        products_wait<WARM ? 1 : 0>();
        pin_registers(s);
        release_keys();
        if (!FIRST)
            results_read();
        mask(s, n_keys, row, t);
        if (FIRST)
            open_rows(r);
        const float upper = find_probabilities(r, s, scale, 0);
        const float lower = find_probabilities(r, s, scale, 1);
        if (WARM) {
            pin_registers(s);
            before_wait(r.sum[0] + r.sum[1], shared_address(here));
            products_wait<0>();
            pin_registers(r.o);
            pin_registers(r.p);
            release_values();
        }
        if (FIRST && WARM)
            finish(r.o, top, sum, true);
        if (FIRST)
            clear_sums(r);
        else if (__any_sync(0xffffffffu, upper != 1.f || lower != 1.f))
            multiply_sums(r.o, upper, lower);
        round_probabilities(r, s);
        pin_registers(r.p);
    }

    /* Completes the pending product of the previous item (before) or of this one, if no next tile
     * overlaps with it. */
    __device__ __forceinline__ void end_item(pingpong_rows<S> &r, bool before)
    {
        wait_values();
        products_begin();
        begin_sums(r, piece_at(here->v[v.stage].piece));
        products_wait<0>();
        pin_registers(r.o);
        release_values();
        finish(r.o, r.top, r.sum, before);
    }

    /* Processes the next item. warm: the last product of the previous item is pending.  Returns
     * whether that of this item is. */
    __device__ __forceinline__ bool process_item(pingpong_rows<S> &r, bool warm)
    {
        const pingpong_item &x = here->item[item.stage];
        const int row = x.first + group * GROUP_ROWS, n_keys = x.n_keys;
        const int begin_tile = x.begin_tile, end_tile = x.end_tile;
        const float scale = x.scale;
        int begin, end;
        pingpong_tiles<S>(a, n_keys, row, min(row + GROUP_ROWS, x.end), begin, end);
        if (warm && end < end_tile) {
            end_item(r, true);
            warm = false;
        }
        if (begin >= end) { /* there are no rows, or they see no key */
            if (warm)
                end_item(r, true);
            open_rows(r);
            clear_sums(r);
            finish(r.o, r.top, r.sum, false);
            skip_tiles(end_tile - begin_tile);
            return false;
        }
        skip_tiles(end_tile - end);
        if (warm)
            step<true, true>(r, n_keys, row, end - 1, scale);
        else
            step<true, false>(r, n_keys, row, end - 1, scale);
        clear_values(n_keys, end - 1);
#pragma unroll 1
        for (int t = end - 2; t >= begin; t--) {
            step<false, true>(r, n_keys, row, t, scale);
            if (S::VALUES > S::KEYS)
                clear_values(n_keys, t);
        }
        if (begin == begin_tile)
            return true;
        end_item(r, false);
        skip_tiles(begin - begin_tile);
        return false;
    }

    __device__ __forceinline__ void run(const struct pingpong_work &w)
    {
        pingpong_rows<S> r;
        bool warm = false;
        attention_keep_none(here->most);
#pragma unroll 1
        for (int wave = 0; pingpong_number(wave) < w.items; wave++) {
            results_read();
            barrier_wait(&here->q_full[q.stage], q.round);
            warm = process_item(r, warm);
            q.next();
            item.next();
        }
        if (warm)
            end_item(r, true);
        if (a.most[0])
            attention_leave_kept(a.most[0], here->most);
        if (threadIdx.x % GROUP == 0)
            stores_read<0>();
    }
};

#endif

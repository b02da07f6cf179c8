/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward attention of packed keys on Hopper by clusters of two blocks (attention_cluster.cuh):
 * the consumer warpgroups, and the calls that this kernel supports.
 *
 * Scores are transposed, keys x queries, so that rounded they are the left operands that dk and dv
 * need.  While a warpgroup computes exponentials, products of the two others run.  The registers,
 * 152 per thread of which dk and dv take 72, are too few for the scores of two tiles of queries.
 *
 * Missing queries contribute nothing: their q, d_o, lse and delta are zero.  Missing keys are zero,
 * so they add nothing to dq.
 *
 * Compiled only for sm_90a, since the PTX of these instructions is not portable.
 */
#include "kernels/cuda/attention/attention_largest.cuh"
#include "kernels/cuda/attention/attention_cluster.cuh"
#include "kernels/cuda/attention/attention_workspace.h"

extern __shared__ __align__(1024) char attention_shared[];

constexpr int RESULT = 1; /* a named barrier of the warpgroup for dq */

/* ---- the keys of a warpgroup ----------------------------------------------------------------- */

template <typename S> struct cluster_keys_group {
    const struct attention_args &a;
    cluster_shared<S> *here;
    int tile; /* of keys */
    bool second;
    uint32_t keys, values; /* addresses, in units of 16 bytes */
    float s[8][4], ds[4][4], dk[S::UNITS][4], dv[S::UNITS][4];
    uint32_t p_rounded[4][4], ds_rounded[4][4];

    /* Hides x from the compiler, so that it does not keep values derived from x across tiles:
     * registers are short. */
    static __device__ __forceinline__ uint32_t opaque(uint32_t x)
    {
        asm volatile("" : "+r"(x));
        return x;
    }

    /* Issues c [64, 8 N] = keys queries^T, for queries from number `first` of the tile on. */
    template <int ROWS, int N>
    static __device__ __forceinline__ void begin(float (&c)[N][4], uint32_t left,
                                                 const typename S::row_tile &right, int first)
    {
#pragma unroll
        for (int k = 0; k < S::STEPS; k++)
            multiply_shared<0, 0>(c, cluster_keys_along<S, ROWS>(left, k),
                                  cluster_queries_along<S>(right, first, k), k > 0);
        products_commit();
    }

    /* Issues c [64, D] += p queries for one half of the tile; the last 8 columns are separate
     * products. */
    template <int HALF>
    static __device__ __forceinline__ void add(float (&c)[S::UNITS][4], const uint32_t (&p)[4][4],
                                               const typename S::row_tile &right)
    {
        const uint32_t wide = piece_in_block(right.wide), narrow = piece_in_block(right.narrow);
#pragma unroll
        for (int k = 2 * HALF; k < 2 * HALF + 2; k++) {
            multiply_registers<1>(units_from<8>(c, 0), p[k],
                                  operand_with<SWIZZLE_128>(wide + k * 128, 512, 64), 1);
            if constexpr (S::NARROW)
                multiply_registers<1>(units_from<1>(c, 8), p[k],
                                      operand_with<SWIZZLE_32>(narrow + k * 32, 128, 16), 1);
        }
    }

    __device__ __forceinline__ void find_probabilities(int slot, float scale)
    {
        const float2 *known = here->statistics[slot] + threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const float4 x = *(const float4 *)(known + n * 8);
            s[n][0] = probability(s[n][0] * scale, x.x);
            s[n][1] = probability(s[n][1] * scale, x.z);
            s[n][2] = probability(s[n][2] * scale, x.x);
            s[n][3] = probability(s[n][3] * scale, x.z);
        }
    }

    template <int HALF> __device__ __forceinline__ void find_gradients(int slot)
    {
        const float2 *known = here->statistics[slot] + HALF * 32 + threadIdx.x % 4 * 2;
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
            for (int unit = 0; unit < 2; unit++) {
                const int n = 2 * k + unit, at = 2 * HALF + k;
                const float4 x = *(const float4 *)(known + n * 8);
                const float(&p)[4] = s[4 * HALF + n];
                p_rounded[at][2 * unit] = pack2(p[0], p[1]);
                p_rounded[at][2 * unit + 1] = pack2(p[2], p[3]);
                ds_rounded[at][2 * unit] = pack2(p[0] * (ds[n][0] - x.y), p[1] * (ds[n][1] - x.w));
                ds_rounded[at][2 * unit + 1] =
                    pack2(p[2] * (ds[n][2] - x.y), p[3] * (ds[n][3] - x.w));
            }
    }

    /* Writes the gradients of the warp's 16 keys; send_gradients() makes them visible to others. */
    __device__ __forceinline__ void put_gradients(int slot, int warp)
    {
        const int row = threadIdx.x % 16, unit = threadIdx.x % 32 / 16;
        cluster_scores *to = &here->ds[slot][tile][warp];
#pragma unroll
        for (int i = 0; i < 4; i++)
            store_matrix4(shared_address(&to->unit[2 * i + unit][row]), ds_rounded[i][0],
                          ds_rounded[i][1], ds_rounded[i][2], ds_rounded[i][3]);
        show_products();
    }

    __device__ __forceinline__ void send_gradients(int slot, int warp)
    {
        const cluster_scores *at = &here->ds[slot][tile][warp];
        __syncwarp();
        if (threadIdx.x % 32 == 0 && second)
            barrier_arrive(&here->slot_full[slot]);
        else if (threadIdx.x % 32 == 0) /* to the same place in the second block */
            bulk_send(at, at, sizeof *at, &here->slot_full[slot], 1);
    }

    /*
     * Issues the scores of a tile and, with them, the pending products of the previous tile.
     * Gradients of probabilities are computed for half of the queries at a time, so that they fit
     * in registers with scores, dk and dv.
     */
    __device__ __forceinline__ void process_tile(int t, int before, int stage, int round,
                                                 float scale)
    {
        const int slot = t % CLUSTER_SLOTS, passed = t / CLUSTER_SLOTS - 1;
        const int warp = threadIdx.x % GROUP / 32, known = t % CLUSTER_KNOWN;
        const typename S::row_tile &q = here->ring[stage][0], &d_o = here->ring[stage][1];
        const uint32_t k = opaque(keys), v = opaque(values);
        barrier_wait(&here->tile_full[stage], round);
        products_begin();
        add<1>(dv, p_rounded, here->ring[before][1]);
        add<1>(dk, ds_rounded, here->ring[before][0]);
        products_commit();
        begin<S::KEYS>(s, k, q, 0);
        products_wait<1>();
        pin_registers(p_rounded);
        pin_registers(ds_rounded);
        pin_registers(dv);
        pin_registers(dk);
        if (t > 0)
            barrier_arrive_warp(&here->tile_empty[before]);
        products_begin();
        begin<S::VALUES>(ds, v, d_o, 0);
        barrier_wait(&here->known[known], t / CLUSTER_KNOWN);
        products_wait<1>();
        pin_registers(s);
        find_probabilities(known, scale);
        products_wait<0>();
        pin_registers(ds);
        find_gradients<0>(known);
        products_begin();
        begin<S::VALUES>(ds, v, d_o, 32);
        add<0>(dv, p_rounded, d_o);
        add<0>(dk, ds_rounded, q);
        products_commit();
        if (passed >= 0)
            barrier_wait(&here->slot_empty[slot], passed);
        products_wait<1>();
        pin_registers(ds);
        find_gradients<1>(known);
        put_gradients(slot, warp);
        send_gradients(slot, warp);
        products_wait<0>();
        pin_registers(p_rounded);
        pin_registers(ds_rounded);
        pin_registers(dk);
        pin_registers(dv);
    }

    __device__ __forceinline__ void run(void)
    {
        const float scale = here->work.factor * ATTENTION_LOG2E;
        const int n = cluster_query_tiles(here->work);
        int before = 0, stage = 0, round = 0;
#pragma unroll
        for (int i = 0; i < S::UNITS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                dk[i][j] = dv[i][j] = 0;
#pragma unroll
        for (int i = 2; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                p_rounded[i][j] = ds_rounded[i][j] = 0;
#pragma unroll 1
        for (int t = 0; t < n; t++) {
            process_tile(t, before, stage, round, scale);
            before = stage;
            if (++stage == S::STAGES) {
                stage = 0;
                round++;
            }
        }
        products_begin();
        add<1>(dv, p_rounded, here->ring[before][1]);
        add<1>(dk, ds_rounded, here->ring[before][0]);
        products_commit();
        products_wait<0>();
        pin_registers(dk);
        pin_registers(dv);
    }

    /* Stores fp32 partial sums to the scratch of the chunk. */
    __device__ __forceinline__ void put_partial(float *to, const float (&c)[S::UNITS][4],
                                                float times) const
    {
        const stationary_work &w = here->work;
        const int key = tile * GROUP_ROWS + stationary_row();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float *at = to + ((w.keys.first + key + half * 8) * a.n_heads + w.head) * S::D;
            if (key + half * 8 < w.keys.n)
#pragma unroll
                for (int n = 0; n < S::UNITS; n++)
                    *reinterpret_cast<float2 *>(at + n * 8 + threadIdx.x % 4 * 2) =
                        float2{c[n][2 * half] * times, c[n][2 * half + 1] * times};
        }
    }

    __device__ __forceinline__ void finish(void) const
    {
        const int64_t matrix = a.n_keys * a.n_heads * S::D;
        float *to = a.partial + here->work.first / a.chunk * 2 * matrix;
        put_partial(to, dk, here->work.factor);
        put_partial(to + matrix, dv, 1.f);
    }
};

/* ---- dq -------------------------------------------------------------------------------------- */

template <typename S> struct cluster_queries_group {
    const struct cluster_maps &m;
    cluster_shared<S> *here;
    int tiles, sent; /* tiles of keys; those of the other block */
    uint32_t *to;    /* address for the largest magnitude of dq, or NULL */
    float dq[S::UNITS][4];
    largest<bf16> amax;

    __device__ __forceinline__ bool is_leader(void) const
    {
        return threadIdx.x % GROUP == 0;
    }

    __device__ __forceinline__ void expect(int slot) const
    {
        if (is_leader())
            barrier_expect(&here->slot_full[slot], sent * (uint32_t)sizeof here->ds[0][0]);
    }

    template <int TILES> __device__ __forceinline__ void multiply(int slot)
    {
        constexpr int step = sizeof(cluster_scores) / 16;
        const uint32_t left = piece_in_block(here->ds[slot]), right = piece_in_block(here->k.unit);
        products_begin();
#pragma unroll
        for (int i = 0; i < TILES * 4; i++)
            multiply_shared<1, 1>(dq, operand_at(left + i * step, 8, 16),
                                  operand_at(right + i * 16, 8, S::KEYS), i > 0);
        products_commit();
        products_wait<0>();
        pin_registers(dq);
    }

    template <int TILES> __device__ __forceinline__ void process_tiles(void)
    {
        const float factor = here->work.factor;
        const int n = cluster_query_tiles(here->work);
        for (int slot = 0; slot < CLUSTER_SLOTS && slot < n; slot++)
            expect(slot);
#pragma unroll 1
        for (int t = 0; t < n; t++) {
            const int slot = t % CLUSTER_SLOTS;
            barrier_wait(&here->slot_full[slot], t / CLUSTER_SLOTS);
            multiply<TILES>(slot);
            if (t + CLUSTER_SLOTS < n)
                expect(slot);
            __syncwarp();
            if (threadIdx.x % 32 < 2 && t + CLUSTER_SLOTS < n)
                barrier_arrive_in(&here->slot_empty[slot], threadIdx.x % 32);
            if (is_leader())
                stores_read<0>();
#pragma unroll
            for (int i = 0; i < S::UNITS; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    dq[i][j] *= factor;
            if (to) /* missing queries have zeros */
                amax.see(attention_largest(dq, 1.f, GROUP_ROWS).value);
            named_sync(RESULT, GROUP);
            put_rows<S>(here->dq, dq);
            show_products();
            named_sync(RESULT, GROUP);
            if (is_leader())
                store_tile<S>(&here->dq, m.dq, here->work, t * S::QUERIES);
        }
        if (to)
            warp_leave_largest(to, warp_largest(amax));
        if (is_leader())
            stores_read<0>();
    }

    __device__ __forceinline__ void run(void)
    {
        if (tiles == 5)
            process_tiles<5>();
        else if (tiles == 4)
            process_tiles<4>();
        else if (tiles == 3)
            process_tiles<3>();
        else
            process_tiles<2>();
        static_assert(CLUSTER_TILES == 5 && ATTENTION_CLUSTER == S::KEYS, "tiles of keys");
    }
};

/* ---- the kernel ------------------------------------------------------------------------------ */

template <typename S>
__device__ __forceinline__ void init_cluster(cluster_shared<S> *here,
                                             const struct cluster_share &share)
{
    for (int i = 0; i < S::STAGES; i++) {
        barrier_init(&here->tile_full[i], 1);
        barrier_init(&here->tile_empty[i], 4 * (share.n + 1));
    }
    for (int i = 0; i < CLUSTER_KNOWN; i++)
        barrier_init(&here->known[i], 1);
    for (int i = 0; i < CLUSTER_SLOTS; i++) {
        barrier_init(&here->slot_full[i], 4 * share.n + 1);
        barrier_init(&here->slot_empty[i], 4);
    }
    barrier_inits_end();
}

/* A multiprocessor has 64 Ki registers. */
template <typename S>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(CLUSTER_THREADS, 1)
    cluster_backward(const __grid_constant__ attention_args a,
                     const __grid_constant__ cluster_maps m)
{
    static_assert(sizeof(cluster_shared<S>) <= 227 * 1024, "what a block may have");
    cluster_shared<S> *here = (cluster_shared<S> *)attention_shared;
    const int group = group_index(), rank = same_in_warp(cluster_rank());
    const stationary_work &w = here->work;
    if (threadIdx.x == 0) {
        here->work = stationary_work_of(a, blockIdx.x / 2);
        init_cluster(here, cluster_share_of(here->work, rank));
    }
    __syncthreads();
    struct cluster_share share = cluster_share_of(w, rank);
    share.n = same_in_warp(share.n);
    const int n_keys = (int)w.keys.n, first = share.first * GROUP_ROWS;
    load_keys<S::UNITS, CLUSTER_THREADS>(
        here->k.unit, attention_rows_at(a, a.k, w.sequence, w.head, w.keys.first), n_keys);
    load_keys<S::UNITS, CLUSTER_THREADS>(
        here->v.unit, attention_rows_at(a, a.v, w.sequence, w.head, w.keys.first + first),
        n_keys - first);
    copies_wait();
    show_products();
    cluster_sync();
    if (group == CLUSTER_GROUPS) {
        registers_fewer<56>();
        cluster_produce<S>(a, m, here, rank, same_in_warp(threadIdx.x / 32) % 4);
    } else if (group == CLUSTER_GROUPS - 1 && rank == 1) {
        registers_more<152>();
        cluster_queries_group<S> g = {m, here, same_in_warp(share.tiles), share.first, a.most[0]};
        g.run();
    } else {
        registers_more<152>();
        if (group < share.n) {
            cluster_keys_group<S> g = {a,
                                       here,
                                       share.first + group,
                                       share.second,
                                       piece_in_block(here->k.unit) + first + group * GROUP_ROWS,
                                       piece_in_block(here->v.unit) + group * GROUP_ROWS};
            g.run();
            g.finish();
        }
    }
    __syncwarp();
    cluster_sync();
}

/* ---- launching ------------------------------------------------------------------------------- */

typedef cluster_shape<64, 3> cluster_64;
typedef cluster_shape<72, 3> cluster_72;

template <typename S> static bool launch(const struct attention_args &a, cudaStream_t stream)
{
    const int shared = (int)sizeof(cluster_shared<S>);
    const int64_t pairs = a.n_sequences * a.n_heads * a.n_chunks;
    struct cluster_maps m;
    if (!stationary_map_of<S>(&m.q, a, a.q) || !stationary_map_of<S>(&m.d_o, a, a.d_o) ||
        !stationary_map_of<S>(&m.dq, a, a.dq))
        return false;
    cudaFuncSetAttribute(cluster_backward<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    cluster_backward<S><<<(unsigned)(2 * pairs), CLUSTER_THREADS, shared, stream>>>(a, m);
    return true;
}

bool attention_cluster_takes(const struct attention_args &a)
{
    return attention_stationary_dx_takes(a) && a.n_keys <= ATTENTION_CLUSTER;
}

/* Selects the chunks such that none is empty. */
void attention_cluster_divide(struct attention_args &a)
{
    const int64_t tiles = attention_tile_count(a.n_queries, GROUP_ROWS);
    const int64_t parts = attention_parts(2 * a.n_sequences * a.n_heads, tiles, 1, a.n_chunks);
    const int64_t each = attention_tile_count(tiles, parts);
    a.n_chunks = attention_tile_count(tiles, each);
    a.chunk = each * GROUP_ROWS;
}

bool attention_cluster_backward(const struct attention_args &a, cudaStream_t stream)
{
    return a.width == 64 ? launch<cluster_64>(a, stream) : launch<cluster_72>(a, stream);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dq of backward attention of packed keys on Hopper, for heads of 64 and 72
 * (attention_stationary.cuh), if there are more keys than clusters of two blocks support
 * (attention_cluster.cuh).  Keys and values stay in shared memory while queries stream through; if
 * a sequence has too many, STATIONARY at a time are loaded for each tile of queries.  The kernel
 * also writes the statistics of queries for the kernel of dk and dv (attention_onepass.cuh).
 *
 * Scores are issued a chunk of keys ahead, so that the tensor cores have work while exponentials
 * are computed.  Missing keys are zero, so they add nothing to dq.
 *
 * Compiled only for sm_90a, since the PTX of these instructions is not portable.
 */
#include "kernels/cuda/attention/attention_stationary.cuh"
#include "kernels/cuda/attention/attention_workspace.h"

constexpr int STAGES = 2; /* tiles of queries in flight */
constexpr int RESULT = 1; /* first of the warpgroups' named barriers */

extern __shared__ __align__(1024) char attention_shared[];

template <typename S> struct queries_shared {
    typename S::row_tile q[GROUPS][STAGES], d_o[GROUPS][STAGES];
    typename S::row_tile o[GROUPS][STAGES]; /* later dq */
    typename S::key_tile k, v;
    uint64_t full[GROUPS][STAGES];
    struct stationary_work work;
    uint16_t most[THREADS]; /* largest magnitude of each thread's dq */
};

struct queries_maps {
    struct stationary_map q, d_o, o, dq;
};

__device__ __forceinline__ float add_products(float sum, uint32_t x, uint32_t y)
{
    const float2 a = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&x));
    const float2 b = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&y));
    return sum + (a.x * b.x + a.y * b.y);
}

template <typename S> struct queries_group {
    const struct attention_args &a;
    const struct queries_maps &m;
    queries_shared<S> *here;
    int group;
    /* Of the thread's two rows: lse in base 2, delta = sum(o d_o), and lse of the next tile. */
    float lse[2], delta[2], next_lse[2];
    float dq[S::UNITS][4];
    uint32_t q[S::STEPS][4];

    __device__ __forceinline__ bool is_leader(void) const
    {
        return threadIdx.x % GROUP == 0;
    }

    /* Called by one thread.  Without with_o, o is loaded later, because dq may still be stored from
     * its buffer. */
    __device__ __forceinline__ void load_stage(int stage, int row, bool with_o) const
    {
        const uint64_t *full = &here->full[group][stage];
        if (row >= here->work.n)
            return;
        barrier_expect(full, 3 * S::TILE_BYTES);
        load_tile<S>(&here->q[group][stage], m.q, full, here->work, row);
        load_tile<S>(&here->d_o[group][stage], m.d_o, full, here->work, row);
        if (with_o)
            load_tile<S>(&here->o[group][stage], m.o, full, here->work, row);
    }

    __device__ __forceinline__ void load_next_lse(int row)
    {
        const struct stationary_work *w = &here->work;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int mine = row + stationary_row() + half * 8;
            next_lse[half] = mine < w->n ? w->lse[mine * a.lse.row] : 0.f;
        }
    }

    /* Computes delta of the tile, and writes the statistics for the kernel of dk and dv. */
    __device__ __forceinline__ void find_delta(int stage, int row)
    {
        const struct stationary_work *w = &here->work;
        uint32_t d_o[S::STEPS][4], o[S::STEPS][4];
        float sum[2] = {0.f, 0.f};
        load_left<S>(d_o, here->d_o[group][stage]);
        load_left<S>(o, here->o[group][stage]);
#pragma unroll
        for (int k = 0; k < S::STEPS; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[i % 2] = add_products(sum[i % 2], d_o[k][i], o[k][i]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int mine = row + stationary_row() + half * 8;
            delta[half] = quad_sum(sum[half]);
            if (threadIdx.x % 4 == 0)
                w->statistics[mine] =
                    mine < w->n ? float2{lse[half], delta[half]} : float2{0.f, 0.f};
        }
    }

    /* Issues c = d_o values^T; d_o stays in shared memory, since registers are short. */
    template <int N>
    __device__ __forceinline__ void begin_gradients(float (&c)[N][4], int stage, uint32_t values)
    {
        const uint32_t wide = piece_at(here->d_o[group][stage].wide);
        const uint32_t narrow = piece_at(here->d_o[group][stage].narrow);
#pragma unroll
        for (int i = 0; i < S::STEPS; i++)
            multiply_shared<0, 0>(c,
                                  S::NARROW && i == S::STEPS - 1
                                      ? operand_with<SWIZZLE_32>(narrow, 1, 16)
                                      : operand_with<SWIZZLE_128>(wide + 2 * i, 1, 64),
                                  operand_at(values + 2 * i * STATIONARY, STATIONARY, 8), i > 0);
        products_commit();
    }

    /* Processes chunk I of C, whose scores are s; issues the scores of the next chunk. */
    template <int I, int C, int N>
    __device__ __forceinline__ void add_chunk(float (&s)[N][4], int stage, float scale)
    {
        constexpr bool MORE = I + 1 < C;
        constexpr int NEXT = MORE ? (chunk_keys<I + 2> - (I + 1) * CHUNK) / 8 : 1;
        const uint32_t k = piece_at(here->k.unit) + I * CHUNK;
        float ds[N][4], next[NEXT][4];
        uint32_t left[N / 2][4];
        products_begin();
        begin_gradients(ds, stage, piece_at(here->v.unit) + I * CHUNK);
        if constexpr (MORE)
            begin_scores<S>(next, q, k + CHUNK);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = probability(s[n][i] * scale, lse[i / 2]);
        pin_registers(s);
        products_wait<MORE ? 1 : 0>();
        pin_registers(ds);
        pin_registers(dq);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                ds[n][i] = s[n][i] * (ds[n][i] - delta[i / 2]);
#pragma unroll
        for (int step = 0; step < N / 2; step++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                left[step][i] =
                    pack2(ds[2 * step + i / 2][i % 2 * 2], ds[2 * step + i / 2][i % 2 * 2 + 1]);
        products_begin();
#pragma unroll
        for (int step = 0; step < N / 2; step++)
            multiply_registers<1>(dq, left[step], across_keys(k + step * 16), 1);
        products_commit();
        products_wait<MORE ? 1 : 0>();
        if constexpr (MORE) {
            pin_registers(next);
            add_chunk<I + 1, C>(next, stage, scale);
        }
        pin_registers(left);
    }

    /* Processes the C chunks of keys in shared memory; beside() overlaps with the first product. */
    template <int C, typename B>
    __device__ __forceinline__ void add_keys(int stage, float scale, const B &beside)
    {
        float s[(C == CHUNKS && C == 1 ? STATIONARY : CHUNK) / 8][4];
        products_begin();
        begin_scores<S>(s, q, piece_at(here->k.unit));
        beside();
        products_wait<0>();
        pin_registers(s);
        add_chunk<0, C>(s, stage, scale);
        pin_registers(dq);
        pin_registers(q);
    }

    template <typename B>
    __device__ __forceinline__ void add_stationary(int n_keys, int stage, float scale,
                                                   const B &beside)
    {
        if (n_keys > 3 * CHUNK)
            add_keys<4>(stage, scale, beside);
        else if (n_keys > 2 * CHUNK)
            add_keys<3>(stage, scale, beside);
        else if (n_keys > CHUNK)
            add_keys<2>(stage, scale, beside);
        else
            add_keys<1>(stage, scale, beside);
    }

    /* Stores dq of queries from the block's number `row` on. */
    __device__ __forceinline__ void finish(int stage, int row)
    {
        const float factor = here->work.factor;
#pragma unroll
        for (int n = 0; n < S::UNITS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dq[n][i] *= factor;
        if (a.most[0])
            attention_keep_largest(
                here->most, attention_largest(dq, 1.f, here->work.n - row - stationary_row()));
        put_rows<S>(here->o[group][stage], dq);
        show_products();
        named_sync(RESULT + group, GROUP);
        if (is_leader()) {
            store_tile<S>(&here->o[group][stage], m.dq, here->work, row);
            load_stage(stage, row + STAGES * BLOCK_ROWS, false);
        }
    }

    __device__ __forceinline__ void begin(int stage, int round, int row)
    {
        lse[0] = next_lse[0] * ATTENTION_LOG2E;
        lse[1] = next_lse[1] * ATTENTION_LOG2E;
        load_next_lse(row + BLOCK_ROWS);
        barrier_wait(&here->full[group][stage], round);
        load_left<S>(q, here->q[group][stage]);
#pragma unroll
        for (int n = 0; n < S::UNITS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dq[n][i] = 0;
    }

    /* The work that is done once per tile, overlapped with its first product. */
    __device__ __forceinline__ void begin_beside(int stage, int row)
    {
        if (is_leader() && row >= BLOCK_ROWS && row + BLOCK_ROWS < here->work.n) {
            stores_read<0>(); /* until dq has left the buffer for the next o */
            load_tile<S>(&here->o[group][stage ^ 1], m.o, &here->full[group][stage ^ 1], here->work,
                         row + BLOCK_ROWS);
        }
        find_delta(stage, row);
    }

    /* Both warpgroups run the same number of rounds, since they load keys together if these do not
     * all fit. */
    __device__ __forceinline__ void run(void)
    {
        const float scale = here->work.factor * ATTENTION_LOG2E;
        int stage = 0, round = 0;
        attention_keep_none(here->most);
        load_next_lse(group * GROUP_ROWS);
#pragma unroll 1
        for (int row = group * GROUP_ROWS; row - group * GROUP_ROWS < here->work.n;
             row += BLOCK_ROWS) {
            const bool busy = row < here->work.n;
            if (busy)
                begin(stage, round, row);
            if (busy && here->work.keys.n == 0)
                begin_beside(stage, row);
#pragma unroll 1
            for (int key = 0; key < here->work.keys.n; key += STATIONARY) {
                if (here->work.keys.n > STATIONARY) {
                    __syncthreads();
                    load_stationary_keys<S>(a, here->work, here->k, here->v, key);
                }
                if (busy)
                    add_stationary((int)here->work.keys.n - key, stage, scale, [&] {
                        if (key == 0)
                            begin_beside(stage, row);
                    });
            }
            if (busy)
                finish(stage, row);
            round += stage;
            stage ^= 1;
        }
        if (a.most[0])
            attention_leave_kept(a.most[0], here->most);
        if (is_leader())
            stores_read<0>();
    }
};

template <typename S>
__global__ void __launch_bounds__(THREADS, 1)
    stationary_queries(const __grid_constant__ attention_args a,
                       const __grid_constant__ queries_maps m)
{
    static_assert(sizeof(queries_shared<S>) <= 227 * 1024, "what a block may have");
    queries_shared<S> *here = (queries_shared<S> *)attention_shared;
    queries_group<S> g = {a, m, here, group_index()};
    if (threadIdx.x == 0)
        here->work = stationary_work_of(a, blockIdx.x);
    if (g.is_leader()) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(&here->full[g.group][i], 1);
        barrier_inits_end();
    }
    __syncthreads();
    for (int i = 0; g.is_leader() && i < STAGES; i++)
        g.load_stage(i, g.group * GROUP_ROWS + i * BLOCK_ROWS, true);
    load_stationary_keys<S>(a, here->work, here->k, here->v, 0);
    g.run();
}

/* ---- launching ------------------------------------------------------------------------------- */

template <typename S> static bool launch(struct attention_args a, cudaStream_t stream)
{
    const int64_t blocks = stationary_blocks(a, GROUPS);
    const int shared = (int)sizeof(queries_shared<S>);
    struct queries_maps m;
    if (!stationary_map_of<S>(&m.q, a, a.q) || !stationary_map_of<S>(&m.d_o, a, a.d_o) ||
        !stationary_map_of<S>(&m.o, a, a.o) || !stationary_map_of<S>(&m.dq, a, a.dq))
        return false;
    cudaFuncSetAttribute(stationary_queries<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         shared);
    stationary_queries<S><<<(unsigned)blocks, THREADS, shared, stream>>>(a, m);
    return true;
}

/* Can packed keys use the kernels that keep them in shared memory?  Operands that a direction does
 * not have are NULL. */
bool attention_stationary_fits(const struct attention_args &a)
{
    const int64_t limit = INT32_MAX / 4, tiles = attention_tile_count(a.n_queries, GROUP_ROWS);
    return (a.width == 64 || a.width == 72) && a.lens && a.n_queries > 0 && a.n_keys > 0 &&
           a.n_sequences > 0 && a.n_heads > 0 && a.n_queries <= limit && a.n_keys <= limit &&
           a.n_sequences * a.n_heads <= limit / tiles && a.k.vectors && a.v.vectors &&
           attention_box_takes(a, a.q, a.n_queries, a.n_heads, false) && attention_on_hopper();
}

bool attention_stationary_dx_takes(const struct attention_args &a)
{
    const struct attention_operand *x[] = {&a.o, &a.d_o, &a.dq};
    bool takes = attention_stationary_fits(a) && attention_onepass_takes_keys(a);
    for (const struct attention_operand *i : x)
        takes = takes && attention_box_takes(a, *i, a.n_queries, a.n_heads, false);
    return takes;
}

/* Returns false if it launched nothing. */
bool attention_stationary_backward(const struct attention_args &a, cudaStream_t stream)
{
    const bool launched = a.width == 64 ? launch<stationary_shape<64>>(a, stream)
                                        : launch<stationary_shape<72>>(a, stream);
    return launched && attention_onepass_keys(a, stream);
}

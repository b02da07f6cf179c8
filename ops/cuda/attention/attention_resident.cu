/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention forward on Hopper where packed keys stay in shared memory (attention_resident.cuh).
 * All scores of a tile of queries are in registers at once, so that there is one maximum and sums
 * are never brought to a new one.  Their first chunks are looked through while the last one is
 * multiplied, and a chunk's product with values runs while the next one's exponentials are found.
 * Warpgroups multiply for scores in turns.  On an H100 13,800 x 300 of 16 heads of 72 take 65 us
 * so, 75 where keys pass (attention_hopper.cu).
 *
 * Compiled for sm_90a alone, since PTX of these instructions fits no other device.
 */
#include "cuda/attention/attention_resident.cuh"

constexpr int STAGES = 3;                       /* tiles of queries under way */
constexpr int TURN = 1, RESULT = TURN + GROUPS; /* numbered barriers of warpgroups */
constexpr float LN2 = 0.69314718f;

extern __shared__ __align__(1024) char attention_shared[];

template <typename S> struct forward_shared {
    typename S::row_tile q[GROUPS][STAGES], o[GROUPS][2];
    typename S::key_tile k, v;
    uint64_t come[GROUPS][STAGES];
    struct resident_work work;
    uint16_t most[THREADS]; /* of the results of each thread */
};

struct forward_maps {
    struct resident_map q, o;
};

template <typename S> struct forward_group {
    const struct attention_args &a;
    const struct forward_maps &m;
    forward_shared<S> *here;
    int group, n_keys;
    float scale; /* of scores in base 2; positive, so that the largest product has the largest */
    /* Of the thread's two rows: the largest product and its share of the sum of probabilities. */
    float top[2], sum[2];
    float o[S::UNITS][4];

    __device__ __forceinline__ void turn_begin(void) const
    {
        named_sync(TURN + group, THREADS);
    }

    __device__ __forceinline__ void turn_end(void) const
    {
        named_arrive(TURN + (group + 1) % GROUPS, THREADS);
    }

    /* One thread. */
    __device__ __forceinline__ void bring(int stage, int row) const
    {
        const uint64_t *come = &here->come[group][stage];
        if (row >= here->work.n)
            return;
        barrier_expect(come, S::TILE_BYTES);
        load_tile<S>(&here->q[group][stage], m.q, come, here->work, row);
    }

    template <int BEGIN, int END, int ALL>
    static __device__ __forceinline__ void raise(float (&most)[2][4], const float (&s)[ALL][4])
    {
#pragma unroll
        for (int n = BEGIN; n < END; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &x = most[i / 2][n % 2 * 2 + i % 2];
                x = fmaxf(x, s[n][i]);
            }
    }

    /* The maximum of the rows, as the exponents see it. */
    __device__ __forceinline__ void find_top(const float (&most)[2][4], float (&shift)[2])
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float(&x)[4] = most[half];
            top[half] = quad_maximum(fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])));
            shift[half] = top[half] == -INFINITY ? 0.f : top[half] * scale;
            sum[half] = 0;
        }
    }

    /* Steps of 16 keys [BEGIN, END): probabilities, and the product with their values begins. */
    template <int BEGIN, int END, int ALL>
    __device__ __forceinline__ void add_values(float (&s)[ALL][4], uint32_t (&p)[ALL / 2][4],
                                               const float (&shift)[2])
    {
        const uint32_t v = piece_at(here->v.unit);
        float part[2][2] = {};
#pragma unroll
        for (int n = 2 * BEGIN; n < 2 * END; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[n][i] = power2(s[n][i] * scale - shift[i / 2]);
                part[i / 2][i % 2] += s[n][i];
            }
        sum[0] += part[0][0] + part[0][1];
        sum[1] += part[1][0] + part[1][1];
#pragma unroll
        for (int k = BEGIN; k < END; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[k][i] = pack2(s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1]);
        products_begin();
#pragma unroll
        for (int k = BEGIN; k < END; k++)
            multiply_registers<1>(o, p[k], across_keys(v + k * 16), k > 0);
        products_commit();
    }

    /* C chunks of keys are all that there are. */
    template <int C> __device__ __forceinline__ void attend(int stage, int round)
    {
        constexpr int UNITS = chunk_keys<C> / 8, LAST = CHUNK / 8 * (C - 1), STEP = CHUNK / 16;
        const uint32_t k = piece_at(here->k.unit);
        const int end = n_keys - threadIdx.x % 4 * 2;
        uint32_t q[S::STEPS][4], p[UNITS / 2][4];
        float s[UNITS][4], most[2][4], shift[2];
        barrier_wait(&here->come[group][stage], round);
        load_left<S>(q, here->q[group][stage]);
        turn_begin();
        products_begin();
#pragma unroll
        for (int c = 0; c < C - 1; c++)
            begin_scores<S>(units_from<CHUNK / 8>(s, c * (CHUNK / 8)), q, k + c * CHUNK);
        begin_scores<S>(units_from<UNITS - LAST>(s, LAST), q, k + LAST * 8);
#pragma unroll
        for (int i = 0; i < 8; i++)
            most[i / 4][i % 4] = -INFINITY;
        if constexpr (C > 1) {
            products_wait<1>();
            pin_registers(units_from<LAST>(s, 0));
            turn_end();
            raise<0, LAST>(most, s);
        }
        products_wait<0>();
        pin_registers(units_from<UNITS - LAST>(s, LAST));
        pin_registers(q);
        if constexpr (C == 1)
            turn_end();
#pragma unroll
        for (int n = LAST; n < UNITS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (n * 8 + i % 2 >= end)
                    s[n][i] = -INFINITY;
        raise<LAST, UNITS>(most, s);
        find_top(most, shift);
        add_values<0, C == 1 ? UNITS / 2 : STEP>(s, p, shift);
        if constexpr (C > 1)
            add_values<STEP, C == 2 ? UNITS / 2 : 2 * STEP>(s, p, shift);
        if constexpr (C > 2)
            add_values<2 * STEP, C == 3 ? UNITS / 2 : 3 * STEP>(s, p, shift);
        if constexpr (C > 3)
            add_values<3 * STEP, UNITS / 2>(s, p, shift);
        static_assert(CHUNKS == 4, "chunks that are added");
        products_wait<0>();
        pin_registers(p);
        pin_registers(o);
    }

    /* o and lse of the queries from number `row` of the block's on.  Without keys both are zero. */
    __device__ __forceinline__ void finish(int row, int slot)
    {
        const struct resident_work *w = &here->work;
        const int mine = row + resident_row();
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float all = quad_sum(sum[half]);
            if (threadIdx.x % 4 == 0 && mine + half * 8 < w->n)
                w->lse[(mine + half * 8) * a.lse.row] =
                    all == 0.f ? 0.f : top[half] * scale * LN2 + __logf(all);
            factor[half] = all == 0.f ? 0.f : __frcp_rn(all);
        }
#pragma unroll
        for (int n = 0; n < S::UNITS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[n][i] *= factor[i / 2];
        if (a.most[0])
            attention_keep_largest(here->most, attention_largest(o, 1.f, w->n - mine));
        put_rows<S>(here->o[group][slot], o);
        show_products();
        named_sync(RESULT + group, GROUP);
    }

    __device__ __forceinline__ void run(void)
    {
        const bool leads = threadIdx.x % GROUP == 0;
        const int n = here->work.n;
        int stage = 0, round = 0, slot = 0;
        attention_keep_none(here->most);
#pragma unroll 1
        for (int row = group * GROUP_ROWS; row < n; row += BLOCK_ROWS) {
            if (n_keys > 3 * CHUNK)
                attend<4>(stage, round);
            else if (n_keys > 2 * CHUNK)
                attend<3>(stage, round);
            else if (n_keys > CHUNK)
                attend<2>(stage, round);
            else
                attend<1>(stage, round);
            finish(row, slot);
            if (leads) {
                store_tile<S>(&here->o[group][slot], m.o, here->work, row);
                bring(stage, row + STAGES * BLOCK_ROWS);
                stores_read<1>(); /* the other slot is free, which all know behind their turn */
            }
            slot ^= 1;
            if (++stage == STAGES) {
                stage = 0;
                round++;
            }
        }
        if (a.most[0])
            attention_leave_kept(a.most[0], here->most);
        if (leads)
            stores_read<0>();
    }
};

template <typename S>
__global__ void __launch_bounds__(THREADS, 1)
    resident_forward(const __grid_constant__ attention_args a,
                     const __grid_constant__ forward_maps m)
{
    static_assert(sizeof(forward_shared<S>) <= 227 * 1024, "what a block may have");
    forward_shared<S> *here = (forward_shared<S> *)attention_shared;
    const struct resident_work &w = here->work;
    const int group = group_index();
    const bool leads = threadIdx.x % GROUP == 0;
    if (threadIdx.x == 0)
        here->work = resident_work_of(a, blockIdx.x);
    if (leads) {
        for (int i = 0; i < STAGES; i++)
            barrier_init(&here->come[group][i], 1);
        barrier_inits_end();
    }
    __syncthreads();
    const float scale = fmaxf(w.factor * ATTENTION_LOG2E, 1e-30f);
    forward_group<S> g = {a, m, here, group, (int)w.keys.n, scale};
    for (int i = 0; leads && i < STAGES; i++)
        g.bring(i, group * GROUP_ROWS + i * BLOCK_ROWS);
    load_resident_keys<S>(a, w, here->k, here->v, 0);
    /* Turns go round from the first warpgroup; where the second one has a tile fewer, it takes an
     * empty turn. */
    if (group == GROUPS - 1)
        g.turn_end();
    g.run();
    if (group == GROUPS - 1 && (w.n + GROUP_ROWS - 1) / GROUP_ROWS % GROUPS) {
        g.turn_begin();
        g.turn_end();
    }
    if (group == 0) /* what the last one has told */
        g.turn_begin();
}

template <typename S> static bool launch(struct attention_args a, cudaStream_t stream)
{
    const int64_t blocks = resident_blocks(a);
    const int shared = (int)sizeof(forward_shared<S>);
    struct forward_maps m;
    if (!resident_map_of<S>(&m.q, a, a.q) || !resident_map_of<S>(&m.o, a, a.o))
        return false;
    cudaFuncSetAttribute(resident_forward<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    resident_forward<S><<<(unsigned)blocks, THREADS, shared, stream>>>(a, m);
    return true;
}

bool attention_resident_takes(const struct attention_args &a)
{
    return attention_resident_fits(a) && a.n_keys <= RESIDENT && a.scale > 0 &&
           attention_box_takes(a, a.o, a.n_queries, a.n_heads, false);
}

bool attention_resident_forward(const struct attention_args &a, cudaStream_t stream)
{
    return a.width == 64 ? launch<resident_shape<64>>(a, stream)
                         : launch<resident_shape<72>>(a, stream);
}

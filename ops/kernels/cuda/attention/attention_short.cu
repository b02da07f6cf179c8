/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Self attention of many short sequences, up to 32 queries and keys (such as the frames at one
 * position of a video), which is bound by memory.  A block handles four adjacent heads of one
 * sequence, whose rows are contiguous in memory.  From shared memory each warp computes one head
 * alone, and keeps the probabilities in registers.
 */
#include "kernels/cuda/attention/attention_mma.cuh"

constexpr int HEADS = 4;
constexpr int THREADS = 32 * HEADS;
constexpr float LOG2E = 1.44269504f;
constexpr float LN2 = 0.69314718f;

extern __shared__ uint4 attention_shared[];

struct group {
    int64_t sequence, head;
    int n_heads, n_queries, n_keys;
};

__device__ __forceinline__ struct group group_of(const struct attention_args &a, int64_t unit)
{
    struct group g;
    g.head = take_index(unit, (a.n_heads + HEADS - 1) / HEADS) * HEADS;
    g.sequence = unit;
    g.n_heads = a.n_heads - g.head < HEADS ? (int)(a.n_heads - g.head) : HEADS;
    g.n_queries = (int)a.n_queries;
    g.n_keys = (int)a.n_keys;
    return g;
}

/* Elements of the tiles of one operand. */
template <int DP, int R> constexpr int tiles_size = tile_shape<DP>::rows(16 * R * HEADS);

template <int DP, int R>
__device__ __forceinline__ void load_group(const tile_mover<DP, THREADS, HEADS> &mover, bf16 *tile,
                                           const struct attention_operand &x,
                                           const struct attention_args &a, const struct group &g,
                                           int n)
{
    mover.template load<16 * R>(tile, attention_rows_at(a, x, g.sequence, g.head, 0), x.head, n,
                                g.n_heads, a.width);
}

template <int DP, int R>
__device__ __forceinline__ void store_group(const tile_mover<DP, THREADS, HEADS> &mover,
                                            const struct attention_operand &x,
                                            const struct attention_args &a, const struct group &g,
                                            int n, const bf16 *tile, uint32_t *most)
{
    mover.template store<16 * R>(attention_rows_at(a, x, g.sequence, g.head, 0), x.head, n,
                                 g.n_heads, a.width, tile, most);
}

/* Scores in base 2; -infinity in columns from n_keys on. */
template <int DP, int R>
__device__ __forceinline__ void short_scores(float (&s)[R][2 * R][4], const bf16 *q, const bf16 *k,
                                             float scale, int n_keys)
{
    row_fragment<DP> rows[R];
#pragma unroll
    for (int m = 0; m < R; m++)
        load_fragment(rows[m], q + m * 16 * tile_shape<DP>::pitch);
    clear_accumulators(s);
    multiply_transposed(s, rows, k);
#pragma unroll
    for (int m = 0; m < R; m++)
#pragma unroll
        for (int n = 0; n < 2 * R; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = n * 8 + (threadIdx.x & 3) * 2 + i % 2 < n_keys
                                 ? s[m][n][i] * (scale * LOG2E)
                                 : -INFINITY;
}

/* Converts scores to exp(score - maximum), not yet divided by their sum. */
template <int R>
__device__ __forceinline__ void short_softmax(float (&s)[R][2 * R][4], float (&maximum)[R][2],
                                              float (&sum)[R][2])
{
#pragma unroll
    for (int m = 0; m < R; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = -INFINITY, total = 0;
#pragma unroll
            for (int n = 0; n < 2 * R; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            top = quad_maximum(top);
#pragma unroll
            for (int n = 0; n < 2 * R; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = power2(s[m][n][i] - top);
                    total += s[m][n][i];
                }
            maximum[m][half] = top;
            sum[m][half] = quad_sum(total);
        }
}

/* Computes one head of a warp; o replaces q in its tile. */
template <int DP, int R>
__device__ __forceinline__ void short_forward_head(const struct attention_args &a,
                                                   const struct group &g, bf16 *q, const bf16 *k,
                                                   const bf16 *v, float *lse)
{
    const int lane = threadIdx.x & 31;
    float s[R][2 * R][4], maximum[R][2], sum[R][2], o[R][tile_shape<DP>::units][4];
    uint32_t p[R][R][4];
    short_scores<DP, R>(s, q, k, a.scale, g.n_keys);
    short_softmax<R>(s, maximum, sum);
    pack_accumulators(p, s);
    clear_accumulators(o);
    multiply_rows<DP>(o, p, v);
#pragma unroll
    for (int m = 0; m < R; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = m * 16 + half * 8 + lane / 4;
            if (lane % 4 == 0 && row < g.n_queries)
                lse[row * a.lse.row] = maximum[m][half] * LN2 + logf(sum[m][half]);
            sum[m][half] = 1.f / sum[m][half];
        }
    __syncwarp();
    put_accumulators<DP, R>(q, o, sum);
}

template <int DP, int R>
__global__ void __launch_bounds__(THREADS)
    short_forward(const __grid_constant__ attention_args a, int64_t first_unit)
{
    constexpr int size = tiles_size<DP, R>;
    bf16 *q = (bf16 *)attention_shared, *k = q + size, *v = k + size;
    const struct group g = group_of(a, first_unit + blockIdx.x);
    const tile_mover<DP, THREADS, HEADS> mover;
    const int warp = threadIdx.x / 32, own = warp * (size / HEADS);
    load_group<DP, R>(mover, q, a.q, a, g, g.n_queries);
    load_group<DP, R>(mover, k, a.k, a, g, g.n_keys);
    load_group<DP, R>(mover, v, a.v, a, g, g.n_keys);
    copies_wait();
    __syncthreads();
    if (warp < g.n_heads)
        short_forward_head<DP, R>(a, g, q + own, k + own, v + own,
                                  attention_lse_at(a, g.sequence, g.head + warp));
    __syncthreads();
    store_group<DP, R>(mover, a.o, a, g, g.n_queries, q, a.most[0]);
}

/* Converts scores to probabilities with the stored lse. */
template <int R>
__device__ __forceinline__ void short_probabilities(float (&s)[R][2 * R][4],
                                                    const struct attention_args &a,
                                                    const struct group &g, const float *lse)
{
#pragma unroll
    for (int m = 0; m < R; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = m * 16 + half * 8 + (threadIdx.x & 31) / 4;
            float shift = row < g.n_queries ? lse[row * a.lse.row] * LOG2E : 0.f;
#pragma unroll
            for (int n = 0; n < 2 * R; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++)
                    s[m][n][i] = probability(s[m][n][i], shift);
        }
}

/* Replaces dp by ds = p (dp - delta). delta is the sum of p dp, so o is not read. */
template <int R>
__device__ __forceinline__ void short_gradient(float (&dp)[R][2 * R][4],
                                               const float (&p)[R][2 * R][4])
{
#pragma unroll
    for (int m = 0; m < R; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float delta = 0;
#pragma unroll
            for (int n = 0; n < 2 * R; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++)
                    delta += p[m][n][i] * dp[m][n][i];
            delta = quad_sum(delta);
#pragma unroll
            for (int n = 0; n < 2 * R; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++)
                    dp[m][n][i] = p[m][n][i] * (dp[m][n][i] - delta);
        }
}

/* Computes one head of a warp; dq, dv and dk replace q, v and d_o in their tiles as soon as these
 * are no longer needed. */
template <int DP, int R>
__device__ __forceinline__ void short_backward_head(const struct attention_args &a,
                                                    const struct group &g, bf16 *q, const bf16 *k,
                                                    bf16 *v, bf16 *d_o, const float *lse)
{
    float s[R][2 * R][4], dp[R][2 * R][4], sum[R][tile_shape<DP>::units][4];
    uint32_t p[R][R][4], ds[R][R][4], turned[R][R][4];
    row_fragment<DP> rows[R];
    short_scores<DP, R>(s, q, k, a.scale, g.n_keys);
    short_probabilities<R>(s, a, g, lse);
#pragma unroll
    for (int m = 0; m < R; m++)
        load_fragment(rows[m], d_o + m * 16 * tile_shape<DP>::pitch);
    clear_accumulators(dp);
    multiply_transposed(dp, rows, v);
    short_gradient<R>(dp, s);
    pack_accumulators(p, s);
    pack_accumulators(ds, dp);

    transpose_operand(turned, p);
    clear_accumulators(sum);
    multiply_rows<DP>(sum, turned, d_o);
    __syncwarp();
    put_accumulators<DP, R>(v, sum, 1.f);

    transpose_operand(turned, ds);
    clear_accumulators(sum);
    multiply_rows<DP>(sum, turned, q);
    put_accumulators<DP, R>(d_o, sum, a.scale);

    clear_accumulators(sum);
    multiply_rows<DP>(sum, ds, k);
    __syncwarp();
    put_accumulators<DP, R>(q, sum, a.scale);
}

template <int DP, int R>
__global__ void __launch_bounds__(THREADS)
    short_backward(const __grid_constant__ attention_args a, int64_t first_unit)
{
    constexpr int size = tiles_size<DP, R>;
    bf16 *q = (bf16 *)attention_shared, *k = q + size, *v = k + size, *d_o = v + size;
    const struct group g = group_of(a, first_unit + blockIdx.x);
    const tile_mover<DP, THREADS, HEADS> mover;
    const int warp = threadIdx.x / 32, own = warp * (size / HEADS);
    load_group<DP, R>(mover, q, a.q, a, g, g.n_queries);
    load_group<DP, R>(mover, k, a.k, a, g, g.n_keys);
    load_group<DP, R>(mover, v, a.v, a, g, g.n_keys);
    load_group<DP, R>(mover, d_o, a.d_o, a, g, g.n_queries);
    copies_wait();
    __syncthreads();
    if (warp < g.n_heads)
        short_backward_head<DP, R>(a, g, q + own, k + own, v + own, d_o + own,
                                   attention_lse_at(a, g.sequence, g.head + warp));
    __syncthreads();
    store_group<DP, R>(mover, a.dq, a, g, g.n_queries, q, a.most[0]);
    store_group<DP, R>(mover, a.dk, a, g, g.n_keys, d_o, a.most[1]);
    store_group<DP, R>(mover, a.dv, a, g, g.n_keys, v, a.most[2]);
}

static int64_t group_count(const struct attention_args &a)
{
    return a.n_sequences * attention_tile_count(a.n_heads, HEADS);
}

/* Calls launch with the compiled width and the tiles of 16 rows, constants, that heads fit in. */
template <typename F> static void with_shape(const struct attention_args &a, F launch)
{
    attention_with_width(a, [&](auto width) {
        if (a.n_queries <= 16 && a.n_keys <= 16)
            launch(width, std::integral_constant<int, 1>());
        else
            launch(width, std::integral_constant<int, 2>());
    });
}

void attention_short_forward(const struct attention_args &a, cudaStream_t stream)
{
    with_shape(a, [&](auto width, auto tiles) {
        attention_launch(short_forward<width, tiles>, group_count(a), THREADS,
                         3 * tiles_size<width, tiles> * sizeof(bf16), stream, a);
    });
}

void attention_short_backward(const struct attention_args &a, cudaStream_t stream)
{
    with_shape(a, [&](auto width, auto tiles) {
        attention_launch(short_backward<width, tiles>, group_count(a), THREADS,
                         4 * tiles_size<width, tiles> * sizeof(bf16), stream, a);
    });
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of attention's bias on tensor cores: a block has 64 queries and 64 keys of one
 * matrix of the gradient, and loops over the heads that share it, in order (see attention_fold.h);
 * its sums stay in registers.
 */
#include "kernels/cuda/attention/attention_seen.cuh"

constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int SIDE = 16 * WARPS; /* queries, and keys, of a block */

extern __shared__ uint4 attention_shared[];

template <int DP> constexpr int side_tile = tile_shape<DP>::rows(SIDE);

/* The part of a block for one head: the positions and numbers of its rows. */
struct bias_part {
    int64_t sequence, head, shared, query, key;
    int n_queries, n_keys;
    struct attention_keys keys;
};

template <int DP>
__device__ __forceinline__ void load_part(const struct attention_args &a, const bias_part &b,
                                          bf16 *tiles, float2 *statistics)
{
    const tile_mover<DP, THREADS> mover;
    const struct attention_rows row[5] = {
        attention_rows_at(a, a.q, b.sequence, b.head, b.query),
        attention_rows_at(a, a.d_o, b.sequence, b.head, b.query),
        attention_rows_at(a, a.o, b.sequence, b.head, b.query),
        attention_rows_at(a, a.k, b.sequence, b.shared, b.key),
        attention_rows_at(a, a.v, b.sequence, b.shared, b.key),
    };
    const float *lse = attention_lse_at(a, b.sequence, b.head) + b.query * a.lse.row;
    const int mine = threadIdx.x;
#pragma unroll
    for (int i = 0; i < 5; i++)
        mover.template load<SIDE>(tiles + i * side_tile<DP>, row[i], 0,
                                  i < 3 ? b.n_queries : b.n_keys, 1, a.width);
    copies_wait();
    __syncthreads();
    if (mine < SIDE)
        statistics[mine] =
            mine < b.n_queries
                ? row_statistics<DP>(lse[mine * a.lse.row],
                                     tiles + 2 * side_tile<DP> + mine * tile_shape<DP>::pitch,
                                     tiles + side_tile<DP> + mine * tile_shape<DP>::pitch)
                : make_float2(0.f, 0.f);
    __syncthreads();
}

/* sum += the gradient of the scores of the warp's 16 queries. */
template <int DP>
__device__ __forceinline__ void add_part(float (&sum)[1][SIDE / 8][4],
                                         const struct attention_args &a, const bias_part &b,
                                         const bf16 *tiles, const float2 *statistics)
{
    const int row = threadIdx.x / 32 * 16, lane = threadIdx.x & 31;
    float s[1][SIDE / 8][4], ds[1][SIDE / 8][4];
    row_fragment<DP> f[1];
    seen_rows<1> seen;
    find_seen_rows(seen, a, b.sequence, b.query + row, b.query + b.n_queries, b.keys.n, 2);
    clear_accumulators(s);
    clear_accumulators(ds);
    load_fragment(f[0], tiles + row * tile_shape<DP>::pitch);
    multiply_transposed(s, f, tiles + 3 * side_tile<DP>);
    load_fragment(f[0], tiles + side_tile<DP> + row * tile_shape<DP>::pitch);
    multiply_transposed(ds, f, tiles + 4 * side_tile<DP>);
    score_rows(s, seen, a, attention_bias_of(a, b.sequence, b.head), b.query + row, (int)b.key,
               attention_scale(a, b.keys) * ATTENTION_LOG2E);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 of_row = statistics[row + i / 2 * 8 + lane / 4];
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
            sum[0][n][i] += probability(s[0][n][i], of_row.x) * (ds[0][n][i] - of_row.y);
    }
}

template <int DP>
__global__ void __launch_bounds__(THREADS)
    bias_gradient(const __grid_constant__ attention_args a,
                  const __grid_constant__ attention_fold fold, float *out, int64_t first_unit)
{
    bf16 *tiles = (bf16 *)attention_shared;
    float2 *statistics = (float2 *)(tiles + 5 * side_tile<DP>);
    int64_t unit = first_unit + blockIdx.x;
    bias_part b;
    b.key = take_index(unit, (a.n_keys + SIDE - 1) / SIDE) * SIDE;
    b.query = take_index(unit, (a.n_queries + SIDE - 1) / SIDE) * SIDE;
    b.n_queries = a.n_queries - b.query < SIDE ? (int)(a.n_queries - b.query) : SIDE;
    float sum[1][SIDE / 8][4];
    clear_accumulators(sum);
    for (int64_t member = 0; member < fold.members; member++) {
        b.sequence = attention_fold_head(&fold, unit, member);
        b.head = take_index(b.sequence, a.n_heads);
        b.shared = b.head / a.group;
        b.keys = attention_keys_of(a, b.sequence);
        const struct attention_span span =
            attention_span_of_rows(a, b.query, b.query + b.n_queries, b.keys.n);
        if (b.key >= span.end || b.key + SIDE <= span.begin)
            continue; /* for all threads of the block */
        b.n_keys = b.keys.n - b.key < SIDE ? (int)(b.keys.n - b.key) : SIDE;
        __syncthreads(); /* before the tiles of the previous member are overwritten */
        load_part<DP>(a, b, tiles, statistics);
        add_part<DP>(sum, a, b, tiles, statistics);
    }
    const int lane = threadIdx.x & 31, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int query = row + i / 2 * 8;
            const int64_t key = b.key + n * 8 + lane % 4 * 2 + i % 2;
            if (query < b.n_queries && key < a.n_keys)
                out[(unit * a.n_queries + b.query + query) * a.n_keys + key] = sum[0][n][i];
        }
}

void attention_tiles_bias(const struct attention_args &a, const struct attention_fold &fold,
                          float *out, cudaStream_t stream)
{
    const int64_t units =
        fold.units * attention_tile_count(a.n_queries, SIDE) * attention_tile_count(a.n_keys, SIDE);
    attention_with_width(a, [&](auto width) {
        const size_t shared = sizeof(bf16) * 5 * side_tile<width> + sizeof(float2) * SIDE;
        attention_launch(bias_gradient<width>, units, THREADS, shared, stream, a, fold, out);
    });
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward attention on tensor cores, tile by tile with a running maximum and sum (Milakov &
 * Gimelshein 2018; FlashAttention-2, Dao 2023): long self attention and cross attention on packed
 * text.  A block has four warps and a tile of queries of one head.  Each warp keeps its rows of q,
 * the probabilities and o in registers; tiles of 64 keys are loaded one tile ahead.
 */
#include "kernels/cuda/attention/attention_seen.cuh"

constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int KEYS = 64;
constexpr float LN2 = 0.69314718f;

extern __shared__ uint4 attention_shared[];

/* Tiles of 16 queries per warp: two share every load of keys, if they fit in the registers. */
template <int DP> constexpr int warp_tiles = DP <= 72 ? 2 : 1;
template <int DP> constexpr int block_rows = warp_tiles<DP> * 16 * WARPS;
template <int DP> constexpr int key_tile = tile_shape<DP>::rows(KEYS);

/* The state of a warp's rows; maximum is of raw scores, sum is each lane's part. */
template <int DP> struct running {
    static constexpr int M = warp_tiles<DP>;
    float o[M][tile_shape<DP>::units][4], maximum[M][2], sum[M][2];
};

template <int DP> __device__ __forceinline__ void running_open(running<DP> &r)
{
    clear_accumulators(r.o);
#pragma unroll
    for (int m = 0; m < r.M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            r.maximum[m][half] = -INFINITY;
            r.sum[m][half] = 0;
        }
}

/* Converts one half of the rows of raw scores s to exp(score - maximum), and rescales earlier sums;
 * scale: from raw scores to base 2.  A maximum of -infinity, before the first visible key, is not
 * subtracted. */
template <int DP>
__device__ __forceinline__ void softmax_rows(running<DP> &r, float (&s)[KEYS / 8][4], float scale,
                                             int m, int half)
{
    float top = r.maximum[m][half];
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
        top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    top = quad_maximum(top);
    const float base = top == -INFINITY ? 0.f : top;
    float factor = power2((r.maximum[m][half] - base) * scale), sum = r.sum[m][half] * factor;
    const float shift = base * scale;
    r.maximum[m][half] = top;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++) {
            s[n][i] = power2(s[n][i] * scale - shift);
            sum += s[n][i];
        }
    r.sum[m][half] = sum;
#pragma unroll
    for (int n = 0; n < tile_shape<DP>::units; n++) {
        r.o[m][n][2 * half] *= factor;
        r.o[m][n][2 * half + 1] *= factor;
    }
}

template <int DP, int M> __device__ __forceinline__ void negate_fragments(row_fragment<DP> (&f)[M])
{
    const uint32_t signs = 0x80008000u;
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int i = 0; i < 4 * tile_shape<DP>::k16; i++)
            f[m].k16[i / 4][i % 4] ^= signs;
        if constexpr (tile_shape<DP>::k8) {
            f[m].k8[0] ^= signs;
            f[m].k8[1] ^= signs;
        }
    }
}

/* Processes one tile of keys. mask(s) hides scores; scale applies to the values it leaves. */
template <int DP, typename MASK>
__device__ __forceinline__ void
forward_step(running<DP> &r, const row_fragment<DP> (&q)[warp_tiles<DP>], const bf16 *k,
             const bf16 *v, float scale, const MASK &mask)
{
    constexpr int M = warp_tiles<DP>;
    float s[M][KEYS / 8][4];
    uint32_t p[M][KEYS / 16][4];
    clear_accumulators(s);
    multiply_transposed(s, q, k);
    mask(s);
#pragma unroll
    for (int m = 0; m < M; m++) {
        softmax_rows<DP>(r, s[m], scale, m, 0);
        softmax_rows<DP>(r, s[m], scale, m, 1);
    }
    pack_accumulators(p, s);
    multiply_rows<DP>(r.o, p, v);
}

/* Writes o to the warp's rows of a tile, and lse to memory; both are zero for rows that saw no
 * key. */
template <int DP>
__device__ __forceinline__ void forward_finish(running<DP> &r, bf16 *tile, float *lse,
                                               int64_t lse_row, int n_rows, float scale)
{
    constexpr int M = warp_tiles<DP>;
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = quad_sum(r.sum[m][half]);
            const bool none = sum == 0.f;
            int row = m * 16 + half * 8 + lane / 4;
            if (lane % 4 == 0 && row < n_rows)
                lse[row * lse_row] = none ? 0.f : r.maximum[m][half] * scale * LN2 + logf(sum);
            r.sum[m][half] = none ? 0.f : 1.f / sum;
        }
    put_accumulators<DP, M>(tile, r.o, r.sum);
}

template <int DP, bool MASKED>
__global__ void __launch_bounds__(THREADS, 2)
    forward_tiles(const __grid_constant__ attention_args a, int64_t first_unit)
{
    constexpr int M = warp_tiles<DP>, ROWS = block_rows<DP>;
    __shared__ int document;
    bf16 *q_tile = (bf16 *)attention_shared, *k_tile = q_tile + ROWS * tile_shape<DP>::pitch;
    bf16 *v_tile = k_tile + 2 * key_tile<DP>;
    query_block<M> b;
    find_queries<M, ROWS, MASKED>(b, a, first_unit + blockIdx.x, 0, &document);
    const struct attention_rows o = attention_rows_at(a, a.o, b.sequence, b.head, b.first);
    const int row = b.row;
    /* positive, so that the largest product has the largest score */
    const float scale = fmaxf(fabsf(attention_scale(a, b.keys)) * ATTENTION_LOG2E, 1e-30f);
    const tile_mover<DP, THREADS> mover;
    float *lse = attention_lse_at(a, b.sequence, b.head) + (b.first + row) * a.lse.row;
    tile_stream<DP, THREADS, KEYS> k, v;
    row_fragment<DP> q[M];
    running<DP> r;

    k.open(mover, keys_of(a, a.k, b), a.width, k_tile);
    v.open(mover, keys_of(a, a.v, b), a.width, v_tile);
    mover.template load<ROWS>(q_tile, attention_rows_at(a, a.q, b.sequence, b.head, b.first), 0,
                              b.n_rows, 1, a.width);
    int64_t left = b.span.end - b.span.begin;
    int n = left < KEYS ? (int)left : KEYS, stage = 0, key = b.span.begin;
    k.load(mover, 0, n, a.width);
    v.load(mover, 0, n, a.width);
    copies_wait();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M; m++)
        load_fragment(q[m], q_tile + (row + m * 16) * tile_shape<DP>::pitch);
    if (a.scale < 0)
        negate_fragments(q);
    running_open(r);
    for (; left > 0; left -= KEYS, stage ^= 1, key += KEYS) {
        int now = n;
        n = left - KEYS < KEYS ? (int)(left - KEYS) : KEYS;
        copies_wait();
        __syncthreads(); /* this tile has arrived, and no warp still uses the previous one */
        if (n > 0) {
            k.load(mover, stage ^ 1, n, a.width);
            v.load(mover, stage ^ 1, n, a.width);
        }
        if (row >= b.n_rows)
            continue;
        const bf16 *k_now = k_tile + stage * key_tile<DP>, *v_now = v_tile + stage * key_tile<DP>;
        if constexpr (MASKED)
            forward_step<DP>(r, q, k_now, v_now, 1.f, [&](float(&s)[M][KEYS / 8][4]) {
                score_rows(s, b.seen, a, b.bias, b.first + row, key, scale);
            });
        else
            forward_step<DP>(r, q, k_now, v_now, scale,
                             [&](float(&s)[M][KEYS / 8][4]) { fill_after(s, now, -INFINITY); });
    }
    __syncwarp();
    forward_finish<DP>(r, q_tile + row * tile_shape<DP>::pitch, lse, a.lse.row, b.n_rows - row,
                       MASKED ? 1.f : scale);
    __syncthreads();
    mover.template store<ROWS>(o, 0, b.n_rows, 1, a.width, q_tile, a.most[0]);
}

template <int DP> static void launch_forward(const struct attention_args &a, cudaStream_t stream)
{
    size_t shared = sizeof(bf16) * tile_shape<DP>::rows(block_rows<DP> + 4 * KEYS);
    int64_t tiles = attention_tile_count(a.n_queries, block_rows<DP>);
    attention_launch(attention_is_masked(a) ? forward_tiles<DP, true> : forward_tiles<DP, false>,
                     a.n_sequences * a.n_heads * tiles, THREADS, shared, stream, a);
}

void attention_tiles_forward(const struct attention_args &a, cudaStream_t stream)
{
    if (attention_stationary_takes(a) && attention_stationary_forward(a, stream))
        return;
    if (attention_pingpong_takes(a) && attention_pingpong_forward(a, stream))
        return;
    attention_with_width(a, [&](auto width) { launch_forward<width>(a, stream); });
}

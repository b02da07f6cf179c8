/* SPDX-License-Identifier: Apache-2.0 */
/* The computation of one tile of keys by a lane (attention_pingpong.cuh). */
#ifndef CKPT_CUDA_ATTENTION_PINGPONG_TILE_CUH
#define CKPT_CUDA_ATTENTION_PINGPONG_TILE_CUH

#include "kernels/cuda/attention/attention_pingpong.cuh"

/* Sums are rescaled to a new maximum only if a probability would exceed 2^8 otherwise. */
constexpr float RAISE = 8.f;

/* A lane's state of its two rows, 8 apart: the sums o; the raw score with probability 1; the lane's
 * part of the sum of probabilities; and the rounded probabilities of the previous tile. */
template <typename S> struct pingpong_rows {
    float o[S::UNITS][4], top[2], sum[2];
    uint32_t p[S::VALUES / 16][4];
};

template <typename S> __device__ __forceinline__ void open_rows(pingpong_rows<S> &r)
{
    r.top[0] = r.top[1] = -INFINITY;
    r.sum[0] = r.sum[1] = 0.f;
}

template <typename S> __device__ __forceinline__ void clear_sums(pingpong_rows<S> &r)
{
#pragma unroll
    for (int n = 0; n < S::UNITS; n++)
        r.o[n][0] = r.o[n][1] = r.o[n][2] = r.o[n][3] = 0.f;
}

/* Issues the scores of 64 queries, from `row` on, of a tile of ROWS queries. */
template <typename S, int ROWS>
__device__ __forceinline__ void begin_scores(float (&s)[S::KEYS / 8][4], uint32_t q, uint32_t k,
                                             int row)
{
#pragma unroll
    for (int i = 0; i < S::STEPS; i++)
        multiply_shared<0, 0>(s, S::template along<ROWS>(q, row, i),
                              S::template along<S::KEYS>(k, 0, i), i > 0);
    products_commit();
}

template <typename S> __device__ __forceinline__ void begin_sums(pingpong_rows<S> &r, uint32_t v)
{
#pragma unroll
    for (int i = 0; i < S::VALUES / 16; i++)
        multiply_registers<1>(r.o, r.p[i], S::across(v, i), 1);
    products_commit();
}

/* Hide scores from column `end` on, and before column `begin`, for each of the two rows. */
template <int UNITS>
__device__ __forceinline__ void hide_after(float (&s)[UNITS][4], int end0, int end1)
{
#pragma unroll
    for (int n = 0; n < UNITS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (n * 8 + i % 2 >= (i < 2 ? end0 : end1))
                s[n][i] = -INFINITY;
}

template <int UNITS>
__device__ __forceinline__ void hide_before(float (&s)[UNITS][4], int begin0, int begin1)
{
#pragma unroll
    for (int n = 0; n < UNITS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (n * 8 + i % 2 < (i < 2 ? begin0 : begin1))
                s[n][i] = -INFINITY;
}

/* Converts scores to probabilities; returns the factor for the sums so far. */
template <typename S>
__device__ __forceinline__ float find_probabilities(pingpong_rows<S> &r, float (&s)[S::KEYS / 8][4],
                                                    float scale, int half)
{
    float top[2] = {s[0][2 * half], s[0][2 * half + 1]}, sum[2] = {0.f, 0.f}, factor = 1.f;
#pragma unroll
    for (int n = 1; n < S::KEYS / 8; n++) {
        top[0] = fmaxf(top[0], s[n][2 * half]);
        top[1] = fmaxf(top[1], s[n][2 * half + 1]);
    }
    top[0] = quad_maximum(fmaxf(top[0], top[1]));
    if ((top[0] - r.top[half]) * scale > RAISE) {
        factor = power2((r.top[half] - top[0]) * scale);
        r.top[half] = top[0];
    }
    /* Until a row sees its first key, all its scores are -infinity. */
    const float shift = r.top[half] == -INFINITY ? 0.f : r.top[half] * scale;
#pragma unroll
    for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            s[n][2 * half + i] = power2(s[n][2 * half + i] * scale - shift);
            sum[i] += s[n][2 * half + i];
        }
    r.sum[half] = r.sum[half] * factor + (sum[0] + sum[1]);
    return factor;
}

template <typename S>
__device__ __forceinline__ void round_probabilities(pingpong_rows<S> &r,
                                                    const float (&s)[S::KEYS / 8][4])
{
#pragma unroll
    for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            r.p[n / 2][n % 2 * 2 + half] = pack2(s[n][2 * half], s[n][2 * half + 1]);
    if (S::VALUES > S::KEYS)
        r.p[S::VALUES / 16 - 1][2] = r.p[S::VALUES / 16 - 1][3] = 0;
}

template <int UNITS>
__device__ __forceinline__ void multiply_sums(float (&o)[UNITS][4], float upper, float lower)
{
#pragma unroll
    for (int n = 0; n < UNITS; n++) {
        o[n][0] *= upper;
        o[n][1] *= upper;
        o[n][2] *= lower;
        o[n][3] *= lower;
    }
}

/* Prevents the compiler from waiting for products before it computes the probabilities, which
 * should overlap with them.  The compiler moves nothing across a store; this store never executes,
 * since the sum is never negative. */
__device__ __forceinline__ void before_wait(float sum, uint32_t address)
{
    asm volatile("{ .reg .pred p; setp.lt.f32 p, %0, 0f00000000;\n"
                 "@p st.shared.f32 [%1], %0; }" ::"f"(sum),
                 "r"(address)
                 : "memory");
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to rows on the device: their addresses, and their elements in pieces of 16 bytes.
 *
 * The fast kernels keep a whole row in registers, PIECES pieces a lane: lane i has pieces i, i +
 * lanes, i + 2 lanes, ...  They need rows of whole pieces at addresses that are multiples of 16
 * bytes.  Other rows are processed one element at a time.
 */
#ifndef CKPT_CUDA_ROWS_CUH
#define CKPT_CUDA_ROWS_CUH

#include <type_traits>
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/largest.cuh"
#include "rows.h"

constexpr int PIECES = 5;  /* 32 lanes hold 1280 bf16; a row of STDiT-XL, 1152, takes 4.5 a lane */
constexpr int WARPS = 4;   /* warps of a block in which every warp has its own row */
constexpr int WIDE = 1536; /* most pieces of a row that a block keeps in registers */
constexpr int64_t GRID = 1 << 30; /* most blocks of a grid; each loops over its share */

/* An integer constant passed as an argument, to instantiate a kernel with it. */
template <int N> using constant = std::integral_constant<int, N>;

/* n / by, by 32-bit division if both fit, as they nearly always do. */
__device__ __forceinline__ int64_t quotient(int64_t n, int64_t by)
{
    if (((uint64_t)n | (uint64_t)by) >> 32)
        return n / by;
    return (int64_t)((uint32_t)n / (uint32_t)by);
}

/* The addresses of row `row` of the first N operands. */
template <int N>
__device__ __forceinline__ void rows_seek(const struct rows &r, int64_t row, char *(&at)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        at[k] = r.base[k];
#pragma unroll 1
    for (int i = r.ndim - 1; i >= 0; i--) {
        int64_t rest = i ? quotient(row, r.size[i]) : 0, index = row - rest * r.size[i];
#pragma unroll
        for (int k = 0; k < N; k++)
            at[k] += index * r.step[k][i];
        row = rest;
    }
}

/* The address of row `row` of operand k. */
__device__ __forceinline__ char *rows_seek_one(const struct rows &r, int64_t row, int k)
{
    char *at = r.base[k];
#pragma unroll 1
    for (int i = r.ndim - 1; i >= 0; i--) {
        int64_t rest = i ? quotient(row, r.size[i]) : 0;
        at += (row - rest * r.size[i]) * r.step[k][i];
        row = rest;
    }
    return at;
}

/* Finds `row` in the first N operands.  Returns the number of rows from `row` on, below `end`, that
 * follow each other by one step of the last axis. */
template <int N>
__device__ __forceinline__ int rows_ahead(const struct rows &r, int64_t row, int64_t end,
                                          char *(&at)[N])
{
    const int64_t size = r.size[r.ndim - 1], left = size - (row - quotient(row, size) * size);
    rows_seek(r, row, at);
    return (int)(left < end - row ? left : end - row);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* 16 bytes of a row in their memory layout; n elements. */
template <typename T> struct alignas(16) piece {
    static constexpr int n = 16 / (int)sizeof(T);
    uint32_t word[4];

    /* Element i; i must be a constant after unrolling. */
    __device__ __forceinline__ float at(int i) const;
    __device__ __forceinline__ void set(const float (&f)[n]);
};

template <> __device__ __forceinline__ float piece<float>::at(int i) const
{
    return __uint_as_float(word[i]);
}

template <> __device__ __forceinline__ float piece<bf16>::at(int i) const
{
    return __uint_as_float(i & 1 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
}

template <> __device__ __forceinline__ void piece<float>::set(const float (&f)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        word[i] = __float_as_uint(f[i]);
}

template <> __device__ __forceinline__ void piece<bf16>::set(const float (&f)[8])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        word[i] = pack2(f[2 * i], f[2 * i + 1]);
}

template <typename T> __device__ __forceinline__ piece<T> piece_load(const char *row, int i)
{
    uint4 u = reinterpret_cast<const uint4 *>(row)[i];
    return piece<T>{{u.x, u.y, u.z, u.w}};
}

template <typename T>
__device__ __forceinline__ void piece_store(char *row, int i, const float (&f)[piece<T>::n])
{
    piece<T> p;
    p.set(f);
    reinterpret_cast<uint4 *>(row)[i] = make_uint4(p.word[0], p.word[1], p.word[2], p.word[3]);
}

/* Stores a piece and updates the largest magnitude of the result. */
template <typename T>
__device__ __forceinline__ void piece_store(char *row, int i, const float (&f)[piece<T>::n],
                                            largest<T> &amax)
{
    piece<T> p;
    p.set(f);
    reinterpret_cast<uint4 *>(row)[i] = make_uint4(p.word[0], p.word[1], p.word[2], p.word[3]);
    amax.see(p.word);
}

/* Piece i of a row of n pieces; zeros past its end. */
template <typename T>
__device__ __forceinline__ piece<T> piece_within(const char *row, int i, int n)
{
    return i < n ? piece_load<T>(row, i) : piece<T>{{0, 0, 0, 0}};
}

/* Loads this lane's pieces of a row of n pieces; zeros past its end. */
template <typename T, int LANES, int P>
__device__ __forceinline__ void row_load(piece<T> (&p)[P], const char *row, int rank, int n)
{
#pragma unroll
    for (int i = 0; i < P; i++)
        p[i] = piece_within<T>(row, rank + i * LANES, n);
}

/* Loads this lane's pieces as floats.  Use row_load for rows that are prefetched, since packed
 * pieces need fewer registers, and this for a row in use, since unpacking again costs an
 * instruction per element. */
template <typename T, int LANES, int P>
__device__ __forceinline__ void row_floats(float (&x)[P][piece<T>::n], const char *row, int rank,
                                           int n)
{
    piece<T> p[P];
    row_load<T, LANES>(p, row, rank, n);
#pragma unroll
    for (int i = 0; i < P; i++)
#pragma unroll
        for (int j = 0; j < piece<T>::n; j++)
            x[i][j] = p[i].at(j);
}

/* Loads N floats, a multiple of 4, from a multiple of 16 bytes. */
template <int N> __device__ __forceinline__ void floats_load(float (&f)[N], const float *p)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        float4 v = *reinterpret_cast<const float4 *>(p + i);
        f[i] = v.x, f[i + 1] = v.y, f[i + 2] = v.z, f[i + 3] = v.w;
    }
}

template <int N> __device__ __forceinline__ void floats_store(float *p, const float (&f)[N])
{
#pragma unroll
    for (int i = 0; i < N; i += 4)
        *reinterpret_cast<float4 *>(p + i) = make_float4(f[i], f[i + 1], f[i + 2], f[i + 3]);
}

/* The sum over the W warps that share a row; if W > 1, they are the whole block. */
template <int W> __device__ __forceinline__ float row_sum(float x)
{
    if constexpr (W == 1)
        return warp_sum(x);
    else
        return block_sum(x);
}

/* ---- rows that do not consist of whole pieces ------------------------------------------------ */

__device__ __forceinline__ float row_get(const char *row, int64_t i, bool half)
{
    if (half)
        return to_float(reinterpret_cast<const bf16 *>(row)[i]);
    return reinterpret_cast<const float *>(row)[i];
}

__device__ __forceinline__ void row_put(char *row, int64_t i, float x, bool half)
{
    if (half)
        reinterpret_cast<bf16 *>(row)[i] = from_float<bf16>(x);
    else
        reinterpret_cast<float *>(row)[i] = x;
}

/* Stores an element and updates the largest magnitude of the result; magnitudes are compared as
 * fp32. */
__device__ __forceinline__ void row_put(char *row, int64_t i, float x, bool half,
                                        largest<float> &amax)
{
    row_put(row, i, x, half);
    amax.see(__float_as_uint(half ? to_float(from_float<bf16>(x)) : x));
}

/* Rounds the elements of a piece as storing them as T would. bf16 elements are rounded in pairs,
 * which takes one fast instruction; rounding a single one is slow. */
template <typename T> __device__ __forceinline__ void round_piece(float (&f)[piece<T>::n])
{
    piece<T> p;
    p.set(f);
#pragma unroll
    for (int i = 0; i < piece<T>::n; i++)
        f[i] = p.at(i);
}

/* Rounds x as storing it as bf16 would, if half. */
__device__ __forceinline__ float rounded(float x, bool half)
{
    return half ? to_float(from_float<bf16>(x)) : x;
}

/* ---- host ------------------------------------------------------------------------------------ */

static inline int64_t row_width(const struct ckpt_view *v)
{
    return v->desc.shape[v->desc.ndim - 1];
}

static inline bool view_half(const struct ckpt_view *v)
{
    return v->desc.dtype == CKPT_BF16;
}

/* Do rows of c elements of the first n operands consist of whole, aligned pieces? */
static inline bool rows_in_pieces(const struct rows *r, int n, int64_t c, bool half)
{
    bool whole = c % (half ? 8 : 4) == 0;
    for (int k = 0; k < n; k++) {
        whole = whole && aligned16(r->base[k]);
        for (int i = 0; i < r->ndim; i++)
            whole = whole && r->step[k][i] % 16 == 0;
    }
    return whole;
}

/*
 * Calls f(W, P) with two constants: W warps share a row of n pieces (n <= WIDE), P pieces a lane.
 * Selects the fewest warps whose registers hold the row, then the smallest instantiated P.
 */
template <typename F> static int row_shape(int64_t n, const F &f)
{
    if (n <= 32 * 3)
        return f(constant<1>(), constant<3>());
    if (n <= 32 * 5)
        return f(constant<1>(), constant<5>());
    if (n <= 32 * 6)
        return f(constant<1>(), constant<6>());
    if (n <= 64 * 5)
        return f(constant<2>(), constant<5>());
    if (n <= 64 * 6)
        return f(constant<2>(), constant<6>());
    if (n <= 128 * 4)
        return f(constant<4>(), constant<4>());
    if (n <= 128 * 6)
        return f(constant<4>(), constant<6>());
    return f(constant<8>(), constant<6>());
}

static inline unsigned grid_for(int64_t work, int64_t per_block)
{
    return (unsigned)min_i64(GRID, (work + per_block - 1) / per_block);
}

#endif

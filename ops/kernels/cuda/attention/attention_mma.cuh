/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of bf16 rows in shared memory, and their products by the tensor cores of a warp (mma.sync).
 *
 * A fragment is the part of a small matrix that the lanes of a warp hold (PTX ISA, "Matrix
 * fragments for mma.m16n8k16").  With g = lane / 4 and t = lane % 4, a lane holds of a 16 x 8
 * accumulator the columns 2t and 2t + 1 of row g (c[0], c[1]) and of row g + 8 (c[2], c[3]).  Two
 * adjacent accumulators, rounded to bf16, are the 16 x 16 left operand of the next product without
 * any data movement.  A head of 72 is 4 steps of 16 and one of 8, so it needs no padding; other
 * widths are padded.
 */
#ifndef CKPT_CUDA_ATTENTION_MMA_CUH
#define CKPT_CUDA_ATTENTION_MMA_CUH

#include "kernels/cuda/attention/attention_args.cuh"
#include "kernels/cuda/cp_async.cuh"
#include "kernels/cuda/largest.cuh"
#include "kernels/cuda/mma.cuh"

/* DP is the width of a head, rounded up to one for which kernels are instantiated. */
template <int DP> struct tile_shape {
    static constexpr int units = DP / 8; /* pieces of 16 bytes in a row */
    /* Elements from one row to the next: an odd number of units, so that the 8 rows of a matrix
     * load are in different banks. */
    static constexpr int pitch = (units | 1) * 8;
    static constexpr int k16 = DP / 16; /* steps of 16 in a product along the width */
    static constexpr bool k8 = units % 2 == 1;

    /* Elements of a tile of n rows. */
    __host__ __device__ static constexpr int rows(int n)
    {
        return n * pitch;
    }
};

/* ---- probabilities --------------------------------------------------------------------------- */

__device__ __forceinline__ float power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The probability of a score from its lse, both in base 2. lse is rounded like the scores, for
 * example to multiples of 64 at 1e9.  So the probability is clamped to 1; it could otherwise be
 * 2^64. */
__device__ __forceinline__ float probability(float score, float lse)
{
    return power2(at_most_zero(score - lse));
}

/* The sum and the maximum over the four lanes that share a row of an accumulator. */
__device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ __forceinline__ float quad_maximum(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

constexpr float ATTENTION_LOG2E = 1.44269504f;

/* ---- products -------------------------------------------------------------------------------- */

/* 16 rows of a tile as the left operand of a product along the width. */
template <int DP> struct row_fragment {
    uint32_t k16[tile_shape<DP>::k16][4];
    uint32_t k8[2];
};

template <int DP>
__device__ __forceinline__ void load_fragment(row_fragment<DP> &f, const bf16 *tile)
{
    using shape = tile_shape<DP>;
    const int lane = threadIdx.x & 31;
    const bf16 *row = tile + (lane & 15) * shape::pitch;
#pragma unroll
    for (int k = 0; k < shape::k16; k++)
        load_matrix4(f.k16[k], row + k * 16 + (lane >> 4) * 8);
    if constexpr (shape::k8)
        load_matrix2(f.k8, row + shape::k16 * 16);
}

template <int M, int N> __device__ __forceinline__ void clear_accumulators(float (&c)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0;
}

/* Sets all columns from number `columns` on to a value. */
template <int M, int N>
__device__ __forceinline__ void fill_after(float (&c)[M][N][4], int columns, float value)
{
    if (columns >= 8 * N)
        return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (n * 8 + (threadIdx.x & 3) * 2 + i % 2 >= columns)
                    c[m][n][i] = value;
}

/* c [16 M, 8 N] += a x^T; x is the first 8 N rows of a tile. */
template <int DP, int M, int N>
__device__ __forceinline__ void multiply_transposed(float (&c)[M][N][4],
                                                    const row_fragment<DP> (&a)[M], const bf16 *x)
{
    using shape = tile_shape<DP>;
    const int lane = threadIdx.x & 31;
    const bf16 *row = x + ((lane & 7) + (lane >> 4) * 8) * shape::pitch + ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
#pragma unroll
        for (int k = 0; k < shape::k16; k++) {
            uint32_t b[4];
            load_matrix4(b, row + n * 8 * shape::pitch + k * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply16(c[m][n], a[m].k16[k], b[0], b[1]);
                multiply16(c[m][n + 1], a[m].k16[k], b[2], b[3]);
            }
        }
        if constexpr (shape::k8) {
            uint32_t b[2];
            load_matrix2(b, x + (n * 8 + (lane & 15)) * shape::pitch + shape::k16 * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply8(c[m][n], a[m].k8, b[0]);
                multiply8(c[m][n + 1], a[m].k8, b[1]);
            }
        }
    }
}

/* c [16 M, DP] += p x; x is the first 16 K rows of a tile. */
template <int DP, int M, int K>
__device__ __forceinline__ void multiply_rows(float (&c)[M][tile_shape<DP>::units][4],
                                              const uint32_t (&p)[M][K][4], const bf16 *x)
{
    using shape = tile_shape<DP>;
    constexpr int units = shape::units;
    const int lane = threadIdx.x & 31;
    const bf16 *row = x + (lane & 15) * shape::pitch;
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int n = 0; n + 1 < units; n += 2) {
            uint32_t b[4];
            load_matrix4_transposed(b, row + k * 16 * shape::pitch + n * 8 + (lane >> 4) * 8);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply16(c[m][n], p[m][k], b[0], b[1]);
                multiply16(c[m][n + 1], p[m][k], b[2], b[3]);
            }
        }
        if constexpr (shape::k8) {
            uint32_t b[2];
            load_matrix2_transposed(b, row + k * 16 * shape::pitch + (units - 1) * 8);
#pragma unroll
            for (int m = 0; m < M; m++)
                multiply16(c[m][units - 1], p[m][k], b[0], b[1]);
        }
    }
}

/* Rounds accumulators [16 M, 16 K] to left operands. */
template <int M, int K>
__device__ __forceinline__ void pack_accumulators(uint32_t (&p)[M][K][4],
                                                  const float (&c)[M][2 * K][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[m][k][i] =
                    pack2(c[m][2 * k + i / 2][i % 2 * 2], c[m][2 * k + i / 2][i % 2 * 2 + 1]);
}

/* The left operand for p^T from the one for p. */
template <int M, int K>
__device__ __forceinline__ void transpose_operand(uint32_t (&t)[K][M][4],
                                                  const uint32_t (&p)[M][K][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int k = 0; k < K; k++) {
            t[k][m][0] = transpose8(p[m][k][0]);
            t[k][m][1] = transpose8(p[m][k][2]);
            t[k][m][2] = transpose8(p[m][k][1]);
            t[k][m][3] = transpose8(p[m][k][3]);
        }
}

/* Writes accumulators, each row times its factor, to the first 16 M rows of a tile. */
template <int DP, int M>
__device__ __forceinline__ void put_accumulators(bf16 *tile,
                                                 const float (&c)[M][tile_shape<DP>::units][4],
                                                 const float (&factor)[M][2])
{
    using shape = tile_shape<DP>;
    const int lane = threadIdx.x & 31;
    bf16 *at = tile + (lane >> 2) * shape::pitch + (lane & 3) * 2;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < shape::units; n++)
                *reinterpret_cast<uint32_t *>(at + (m * 16 + half * 8) * shape::pitch + n * 8) =
                    pack2(c[m][n][half * 2] * factor[m][half],
                          c[m][n][half * 2 + 1] * factor[m][half]);
}

template <int DP, int M>
__device__ __forceinline__ void
put_accumulators(bf16 *tile, const float (&c)[M][tile_shape<DP>::units][4], float factor)
{
    float factors[M][2];
#pragma unroll
    for (int m = 0; m < M; m++)
        factors[m][0] = factors[m][1] = factor;
    put_accumulators<DP, M>(tile, c, factors);
}

/* The statistics of a query for the backward pass: its lse in base 2, and delta = sum(o d_o); o and
 * d_o are rows of tiles. */
template <int DP>
__device__ __forceinline__ float2 row_statistics(float lse, const bf16 *o, const bf16 *d_o)
{
    float2 s = {lse * ATTENTION_LOG2E, 0.f};
#pragma unroll
    for (int unit = 0; unit < tile_shape<DP>::units; unit++) {
        float x[8], y[8];
        load_floats(x, o + unit * 8);
        load_floats(y, d_o + unit * 8);
#pragma unroll
        for (int i = 0; i < 8; i++)
            s.y += x[i] * y[i];
    }
    return s;
}

/* ---- rows between global memory and tiles ---------------------------------------------------- */

/*
 * How THREADS threads share the rows of a tile that holds HEADS heads, one below the other.  A
 * thread handles one 16-byte piece of a row and goes down the rows, so its addresses need only
 * additions.  Adjacent threads handle adjacent pieces of a row, then those of the next head, which
 * usually follow in memory.
 */
template <int DP, int THREADS, int HEADS = 1> struct tile_mover {
    using shape = tile_shape<DP>;
    static constexpr int line = shape::units * HEADS;
    static constexpr int step = THREADS / line; /* rows per pass */
    static_assert(step > 0, "a row needs as many threads as it has pieces");
    int row, head, column; /* the thread's first row; beyond all tiles if it has none */

    __device__ __forceinline__ tile_mover()
    {
        int piece = threadIdx.x % line;
        row = threadIdx.x < step * line ? (int)threadIdx.x / line : 1 << 20;
        head = piece / shape::units;
        column = piece % shape::units * 8;
    }

    /* Loads rows [0, n) of x, whose heads are `apart` elements from each other, into tiles of ROWS
     * rows; clears the remaining rows. */
    template <int ROWS>
    __device__ __forceinline__ void load(bf16 *tile, const attention_rows &x, int64_t apart, int n,
                                         int n_heads, int width) const
    {
        if (!x.vectors) {
            load_elements<ROWS>(tile, x, apart, n, n_heads, width);
            return;
        }
        const char *from = (const char *)x.data + 2 * (row * x.row + head * apart + column);
        copy<ROWS>(shared_address(tile) + 2 * ((head * ROWS + row) * shape::pitch + column), from,
                   x.row, n, head < n_heads && column < width);
    }

    /* Copies the thread's pieces; `from` is the piece in its first row.  Addresses out of range are
     * computed but not read. */
    template <int ROWS>
    __device__ __forceinline__ void copy(uint32_t to, const char *from, int64_t stride, int n,
                                         bool inside) const
    {
        if (row >= ROWS)
            return;
#pragma unroll
        for (int i = 0; i < (ROWS + step - 1) / step; i++)
            if ((i + 1) * step <= ROWS || row + i * step < ROWS)
                copy16(to + i * step * shape::pitch * 2, from + i * step * 2 * stride,
                       inside && row + i * step < n);
    }

    /* Any strides and dtype; not inlined, since it is rare. */
    template <int ROWS>
    static __device__ __noinline__ void load_elements(bf16 *tile, attention_rows x, int64_t apart,
                                                      int n, int n_heads, int width)
    {
        for (int i = threadIdx.x; i < HEADS * ROWS * DP; i += THREADS) {
            int d = i % DP, r = i / DP % ROWS, h = i / DP / ROWS;
            bool valid = h < n_heads && r < n && d < width;
            tile[(h * ROWS + r) * shape::pitch + d] =
                from_float<bf16>(valid ? attention_element(x, r * x.row + h * apart + d) : 0.f);
        }
    }

    /* to: the address for the largest magnitude, or NULL. */
    template <int ROWS>
    __device__ __forceinline__ void store(const attention_rows &x, int64_t apart, int n,
                                          int n_heads, int width, const bf16 *tile,
                                          uint32_t *to) const
    {
        largest<bf16> amax(to);
        if (!x.vectors)
            store_elements<ROWS>(x, apart, n, n_heads, width, tile, amax);
        else if (head < n_heads && column < width)
            store_pieces<ROWS>(x, apart, n, tile, amax);
        if (to)
            warp_leave_largest(to, warp_largest(amax));
    }

    template <int ROWS>
    __device__ __forceinline__ void store_pieces(const attention_rows &x, int64_t apart, int n,
                                                 const bf16 *tile, largest<bf16> &amax) const
    {
        bf16 *to = (bf16 *)x.data + row * x.row + head * apart + column;
        const bf16 *from = tile + (head * ROWS + row) * shape::pitch + column;
#pragma unroll
        for (int i = 0; i < (ROWS + step - 1) / step; i++)
            if (row + i * step < n) {
                const uint4 v = *reinterpret_cast<const uint4 *>(from + i * step * shape::pitch);
                *reinterpret_cast<uint4 *>(to + i * step * x.row) = v;
                amax.see({v.x, v.y, v.z, v.w});
            }
    }

    template <int ROWS>
    static __device__ __noinline__ void store_elements(attention_rows x, int64_t apart, int n,
                                                       int n_heads, int width, const bf16 *tile,
                                                       largest<bf16> &amax)
    {
        for (int i = threadIdx.x; i < HEADS * ROWS * DP; i += THREADS) {
            int d = i % DP, r = i / DP % ROWS, h = i / DP / ROWS;
            if (h < n_heads && r < n && d < width) {
                const bf16 v = tile[(h * ROWS + r) * shape::pitch + d];
                attention_set_element(x, r * x.row + h * apart + d, to_float(v));
                amax.see((uint32_t)__bfloat16_as_ushort(v));
            }
        }
    }
};

/*
 * Loads the rows of one operand tile by tile, alternately into two tiles of ROWS rows.  A thread
 * keeps one address, which every tile increments.
 */
template <int DP, int THREADS, int ROWS> struct tile_stream {
    attention_rows x; /* starts at the next tile */
    const char *from; /* the thread's first piece in it */
    bf16 *tiles;
    bool inside;

    __device__ __forceinline__ void open(const tile_mover<DP, THREADS> &mover,
                                         const attention_rows &rows, int width, bf16 *to)
    {
        x = rows;
        tiles = to;
        from = (const char *)x.data + 2 * (mover.row * x.row + mover.column);
        inside = mover.column < width;
    }

    /* Loads the next tile, with n valid rows, into buffer `which`. */
    __device__ __forceinline__ void load(const tile_mover<DP, THREADS> &mover, int which, int n,
                                         int width)
    {
        bf16 *to = tiles + which * tile_shape<DP>::rows(ROWS);
        if (x.vectors)
            mover.template copy<ROWS>(shared_address(to) +
                                          2 * (mover.row * tile_shape<DP>::pitch + mover.column),
                                      from, x.row, n, inside);
        else
            mover.template load_elements<ROWS>(to, x, 0, n, 1, width);
        from += 2 * ROWS * x.row;
        x.data = (char *)x.data + (x.f32 ? 4 : 2) * ROWS * x.row;
    }
};

#endif

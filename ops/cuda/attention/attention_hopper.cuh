/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of a warpgroup (four warps) by the tensor cores of Hopper, for heads of 72.
 *
 * Operands stand in shared memory as cores of 8 rows by 16 bytes, which are 128 bytes in a row
 * (PTX ISA, "wgmma", matrices without swizzling).  A column of cores holds one piece of 16 bytes of
 * all rows of a tile.  The same tile serves as an operand along the width, and transposed as one
 * along the rows: only the strides change places.
 *
 * 72 are 4 steps of 16 and one of 8.  A tile that is a left operand has a tenth column, of zeros,
 * before the last one; the right operand's last step begins one column early, so that the column
 * that it has seen before meets the zeros.
 *
 * Accumulators are those of hopper_product.cuh.
 */
#ifndef CKPT_CUDA_ATTENTION_HOPPER_CUH
#define CKPT_CUDA_ATTENTION_HOPPER_CUH

#include "cuda/attention/attention_mma.cuh"
#include "cuda/hopper.cuh"

constexpr int HOPPER_WIDTH = 72;
constexpr int UNITS = HOPPER_WIDTH / 8; /* pieces of 16 bytes in a row */
constexpr int STEPS = 5;                /* along the width */

/* ---- products ------------------------------------------------------------------------------ */

/* c [64, 64] = x y^T: 64 rows of a left and of a right tile, told by their first pieces; their
 * columns are LEFT and RIGHT pieces apart. */
template <int LEFT, int RIGHT>
__device__ __forceinline__ void begin_scores(float (&c)[8][4], uint32_t x, uint32_t y)
{
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        const int column = k < STEPS - 1 ? 2 * k : UNITS - 2;
        multiply_shared<0, 0>(c, operand_at(x + 2 * k * LEFT, LEFT, 8),
                              operand_at(y + column * RIGHT, RIGHT, 8), k > 0);
    }
    products_commit();
}

/* c [64, 72] += p y for 16 rows of y, a right tile, from row 16 k on; p is in registers.  Goes into
 * the batch that is committed next. */
template <int RIGHT>
__device__ __forceinline__ void multiply_rows(float (&c)[UNITS][4], const uint32_t (&p)[4],
                                              uint32_t y, int k)
{
    multiply_registers<1>(c, p, operand_at(y + k * 16, 8, RIGHT), 1);
}

/* Columns 16 k to 16 k + 15 of accumulators rounded to a left operand. */
__device__ __forceinline__ void round_operand(uint32_t (&p)[4], const float (&c)[8][4], int k)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        p[i] = pack2(c[2 * k + i / 2][i % 2 * 2], c[2 * k + i / 2][i % 2 * 2 + 1]);
}

template <int N> __device__ __forceinline__ void clear_registers(float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[n][i] = 0;
}

#endif

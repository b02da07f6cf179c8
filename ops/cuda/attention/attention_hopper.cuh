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
 * Accumulators lie in each warp as those of mma.m16n8k16 do (attention_mma.cuh), warp w holding
 * rows 16w to 16w + 15 of the 64; rounded they are left operands too.
 */
#ifndef CKPT_CUDA_ATTENTION_HOPPER_CUH
#define CKPT_CUDA_ATTENTION_HOPPER_CUH

#include "cuda/attention/attention_mma.cuh"

constexpr int HOPPER_WIDTH = 72;
constexpr int UNITS = HOPPER_WIDTH / 8; /* pieces of 16 bytes in a row */
constexpr int GROUP = 128;              /* threads of a warpgroup */
constexpr int GROUP_ROWS = 64;          /* rows of its products */
constexpr int STEPS = 5;                /* along the width */

/* ---- instructions -------------------------------------------------------------------------- */

/* Before the first product: registers are as the program left them. */
__device__ __forceinline__ void products_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Products begun so far are one batch. */
__device__ __forceinline__ void products_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most N batches are under way. */
template <int N> __device__ __forceinline__ void products_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* What was written to shared memory may be read by products, once a barrier has passed. */
__device__ __forceinline__ void show_products(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Registers keep their place in the order of the program: products come and go behind its back. */
template <int N> __device__ __forceinline__ void pin_registers(float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}

template <int N> __device__ __forceinline__ void pin_registers(uint32_t (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+r"(c[n][0]), "+r"(c[n][1]), "+r"(c[n][2]), "+r"(c[n][3])::"memory");
}

/* Where an operand is: the piece of 16 bytes at which its first core begins, and how many pieces on
 * the next one is along the summed axis, and along the other.  Shared memory has fewer pieces than
 * the first field holds, so that steps can be added to a whole. */
__device__ __forceinline__ uint64_t operand_at(uint32_t piece, int summed, int other)
{
    return (uint64_t)other << 32 | (uint64_t)(piece + ((uint32_t)summed << 16));
}

__device__ __forceinline__ uint32_t piece_at(const void *p)
{
    return shared_address(p) / 16;
}

#define ACCUMULATORS(c) "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])

/* c [64, 64] = a [64, 16] b [64, 16]^T, or += that. */
__device__ __forceinline__ void multiply_widths(float (&c)[8][4], uint64_t a, uint64_t b, int add)
{
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, add, 1, 1, 0, 0; }"
                 : ACCUMULATORS(c[0]), ACCUMULATORS(c[1]), ACCUMULATORS(c[2]), ACCUMULATORS(c[3]),
                   ACCUMULATORS(c[4]), ACCUMULATORS(c[5]), ACCUMULATORS(c[6]), ACCUMULATORS(c[7])
                 : "l"(a), "l"(b), "r"(add));
}

/* The same, a in registers. */
__device__ __forceinline__ void multiply_width(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b,
                                               int add)
{
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, add, 1, 1, 0; }"
                 : ACCUMULATORS(c[0]), ACCUMULATORS(c[1]), ACCUMULATORS(c[2]), ACCUMULATORS(c[3]),
                   ACCUMULATORS(c[4]), ACCUMULATORS(c[5]), ACCUMULATORS(c[6]), ACCUMULATORS(c[7])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

/* c [64, 72] += a [64, 16] b [16, 72], a in registers. */
__device__ __forceinline__ void multiply_sixteen(float (&c)[UNITS][4], const uint32_t (&a)[4],
                                                 uint64_t b)
{
    asm volatile("{ .reg .pred add; setp.eq.b32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
                 "%34, %35}, {%36, %37, %38, %39}, %40, add, 1, 1, 1; }"
                 : ACCUMULATORS(c[0]), ACCUMULATORS(c[1]), ACCUMULATORS(c[2]), ACCUMULATORS(c[3]),
                   ACCUMULATORS(c[4]), ACCUMULATORS(c[5]), ACCUMULATORS(c[6]), ACCUMULATORS(c[7]),
                   ACCUMULATORS(c[8])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef ACCUMULATORS

/* ---- products ------------------------------------------------------------------------------ */

/* c [64, 64] = x y^T: 64 rows of a left and of a right tile, told by their first pieces; their
 * columns are LEFT and RIGHT pieces apart. */
template <int LEFT, int RIGHT>
__device__ __forceinline__ void begin_scores(float (&c)[8][4], uint32_t x, uint32_t y)
{
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        const int column = k < STEPS - 1 ? 2 * k : UNITS - 2;
        multiply_widths(c, operand_at(x + 2 * k * LEFT, LEFT, 8),
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
    multiply_sixteen(c, p, operand_at(y + k * 16, 8, RIGHT));
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

/* The block's warpgroup that the thread is in, the same for a warp as the compiler can see. */
__device__ __forceinline__ int group_index(void)
{
    return __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0);
}

#endif

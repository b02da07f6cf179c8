/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of a warpgroup (four warps) on Hopper's tensor cores (wgmma; see hopper.cuh).  A product
 * is c [64, N] += a [64, 16] b [16, N], bf16 with fp32 sums.  Each warp has accumulators in the
 * layout of mma.m16n8k16, warp w for rows 16w to 16w + 15.  Rounded, they can be left operands in
 * registers.
 *
 * Operands in shared memory are described by a descriptor (PTX ISA, "wgmma"): the start address,
 * the swizzle, and two strides.  An operand is K-major ("along" the sum) if the 16 summed elements
 * are contiguous, else MN-major ("across" it).
 *
 * Without swizzle a tile consists of core matrices, 8 rows of 16 bytes in 128 contiguous bytes.
 * With a swizzle of W bytes (128, 64 or 32) rows of W bytes follow each other, their 16-byte pieces
 * permuted as TMA copies do it, and tiles begin at multiples of 8 W bytes.
 */
#ifndef CKPT_CUDA_HOPPER_PRODUCT_CUH
#define CKPT_CUDA_HOPPER_PRODUCT_CUH

#include "kernels/cuda/cuda.cuh"

constexpr int GROUP = 128;     /* threads of a warpgroup */
constexpr int GROUP_ROWS = 64; /* rows of its products */

/* Tells the compiler that x is uniform in a warp. */
__device__ __forceinline__ int same_in_warp(int x)
{
    return __shfl_sync(0xffffffffu, x, 0);
}

/* The index of the calling thread's warpgroup. */
__device__ __forceinline__ int group_index(void)
{
    return same_in_warp(threadIdx.x / GROUP);
}

/* An address in shared memory in units of 16 bytes, as in descriptors. */
__device__ __forceinline__ uint32_t piece_at(const void *p)
{
    return shared_address(p) / 16;
}

/* ---- order of products ----------------------------------------------------------------------- */

/* Call before the first product: orders it after earlier accesses to its registers. */
__device__ __forceinline__ void products_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Makes a group of the products issued so far. */
__device__ __forceinline__ void products_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most N groups are in flight. */
template <int N> __device__ __forceinline__ void products_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Makes the thread's writes to shared memory visible to products and TMA copies, once a barrier has
 * been passed. */
__device__ __forceinline__ void show_products(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Prevents the compiler from moving accesses to c across this point; it does not know that products
 * access registers asynchronously. */
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

/* ---- operands -------------------------------------------------------------------------------- */

/* The swizzle field of a descriptor. */
enum hopper_swizzle { CORES = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

/*
 * Both strides are in units of 16 bytes.
 *
 *   cores:              first: to the next core along the sum; second: along the other axis
 *   swizzled, along:    first: unused (1); second: to the next 8 rows
 *   swizzled, across:   first: to the next W bytes of the other axis; second: to the next 8 along
 *                       the sum
 *
 * Shared memory has fewer pieces than the address field holds, so a step can be added to a whole
 * descriptor.
 */
template <int SWIZZLE>
__device__ __forceinline__ uint64_t operand_with(uint32_t piece, int first, int second)
{
    return (uint64_t)SWIZZLE << 62 | (uint64_t)second << 32 |
           (uint64_t)(piece + ((uint32_t)first << 16));
}

/* A descriptor of core matrices. */
__device__ __forceinline__ uint64_t operand_at(uint32_t piece, int summed, int other)
{
    return operand_with<CORES>(piece, summed, other);
}

/* ---- products -------------------------------------------------------------------------------- */

/* c [64, N] = a b, or += a b if add is not 0.  AA, BA: the operand in shared memory is MN-major.
 * of_shared reads a from shared memory, of_registers from registers. */
template <int N> struct hopper_product;

#define HOPPER_C(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define HOPPER_C0 HOPPER_C(0)
#define HOPPER_R0 "%0, %1, %2, %3"
#define HOPPER_C1 HOPPER_C0, HOPPER_C(1)
#define HOPPER_C2 HOPPER_C1, HOPPER_C(2)
#define HOPPER_C3 HOPPER_C2, HOPPER_C(3)
#define HOPPER_C4 HOPPER_C3, HOPPER_C(4)
#define HOPPER_C5 HOPPER_C4, HOPPER_C(5)
#define HOPPER_C6 HOPPER_C5, HOPPER_C(6)
#define HOPPER_C7 HOPPER_C6, HOPPER_C(7)
#define HOPPER_C8 HOPPER_C7, HOPPER_C(8)
#define HOPPER_C9 HOPPER_C8, HOPPER_C(9)
#define HOPPER_C10 HOPPER_C9, HOPPER_C(10)
#define HOPPER_C11 HOPPER_C10, HOPPER_C(11)
#define HOPPER_C12 HOPPER_C11, HOPPER_C(12)
#define HOPPER_C13 HOPPER_C12, HOPPER_C(13)
#define HOPPER_C14 HOPPER_C13, HOPPER_C(14)
#define HOPPER_C15 HOPPER_C14, HOPPER_C(15)
#define HOPPER_C16 HOPPER_C15, HOPPER_C(16)
#define HOPPER_C17 HOPPER_C16, HOPPER_C(17)
#define HOPPER_C18 HOPPER_C17, HOPPER_C(18)
#define HOPPER_C19 HOPPER_C18, HOPPER_C(19)
#define HOPPER_C20 HOPPER_C19, HOPPER_C(20)
#define HOPPER_C21 HOPPER_C20, HOPPER_C(21)
#define HOPPER_C22 HOPPER_C21, HOPPER_C(22)
#define HOPPER_C23 HOPPER_C22, HOPPER_C(23)
#define HOPPER_C24 HOPPER_C23, HOPPER_C(24)
#define HOPPER_C25 HOPPER_C24, HOPPER_C(25)
#define HOPPER_C26 HOPPER_C25, HOPPER_C(26)
#define HOPPER_C27 HOPPER_C26, HOPPER_C(27)
#define HOPPER_C28 HOPPER_C27, HOPPER_C(28)
#define HOPPER_C29 HOPPER_C28, HOPPER_C(29)
#define HOPPER_C30 HOPPER_C29, HOPPER_C(30)
#define HOPPER_C31 HOPPER_C30, HOPPER_C(31)
#define HOPPER_R1 HOPPER_R0 ", %4, %5, %6, %7"
#define HOPPER_R2 HOPPER_R1 ", %8, %9, %10, %11"
#define HOPPER_R3 HOPPER_R2 ", %12, %13, %14, %15"
#define HOPPER_R4 HOPPER_R3 ", %16, %17, %18, %19"
#define HOPPER_R5 HOPPER_R4 ", %20, %21, %22, %23"
#define HOPPER_R6 HOPPER_R5 ", %24, %25, %26, %27"
#define HOPPER_R7 HOPPER_R6 ", %28, %29, %30, %31"
#define HOPPER_R8 HOPPER_R7 ", %32, %33, %34, %35"
#define HOPPER_R9 HOPPER_R8 ", %36, %37, %38, %39"
#define HOPPER_R10 HOPPER_R9 ", %40, %41, %42, %43"
#define HOPPER_R11 HOPPER_R10 ", %44, %45, %46, %47"
#define HOPPER_R12 HOPPER_R11 ", %48, %49, %50, %51"
#define HOPPER_R13 HOPPER_R12 ", %52, %53, %54, %55"
#define HOPPER_R14 HOPPER_R13 ", %56, %57, %58, %59"
#define HOPPER_R15 HOPPER_R14 ", %60, %61, %62, %63"
#define HOPPER_R16 HOPPER_R15 ", %64, %65, %66, %67"
#define HOPPER_R17 HOPPER_R16 ", %68, %69, %70, %71"
#define HOPPER_R18 HOPPER_R17 ", %72, %73, %74, %75"
#define HOPPER_R19 HOPPER_R18 ", %76, %77, %78, %79"
#define HOPPER_R20 HOPPER_R19 ", %80, %81, %82, %83"
#define HOPPER_R21 HOPPER_R20 ", %84, %85, %86, %87"
#define HOPPER_R22 HOPPER_R21 ", %88, %89, %90, %91"
#define HOPPER_R23 HOPPER_R22 ", %92, %93, %94, %95"
#define HOPPER_R24 HOPPER_R23 ", %96, %97, %98, %99"
#define HOPPER_R25 HOPPER_R24 ", %100, %101, %102, %103"
#define HOPPER_R26 HOPPER_R25 ", %104, %105, %106, %107"
#define HOPPER_R27 HOPPER_R26 ", %108, %109, %110, %111"
#define HOPPER_R28 HOPPER_R27 ", %112, %113, %114, %115"
#define HOPPER_R29 HOPPER_R28 ", %116, %117, %118, %119"
#define HOPPER_R30 HOPPER_R29 ", %120, %121, %122, %123"
#define HOPPER_R31 HOPPER_R30 ", %124, %125, %126, %127"

/* N columns, LAST = N / 8 - 1; I0 to I6 are the asm operand numbers after the N / 2
 * accumulators. */
#define HOPPER_PRODUCT(N, LAST, I0, I1, I2, I3, I4, I5, I6)                                        \
    template <> struct hopper_product<N> {                                                         \
        template <int AA, int BA>                                                                  \
        static __device__ __forceinline__ void of_shared(float (&c)[N / 8][4], uint64_t a,         \
                                                         uint64_t b, int add)                      \
        {                                                                                          \
            asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #I2 ", 0;\n"                       \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "               \
                         "{" HOPPER_R##LAST "}, %" #I0 ", %" #I1 ", add, 1, 1, %" #I3 ", %" #I4    \
                         "; }"                                                                     \
                         : HOPPER_C##LAST                                                          \
                         : "l"(a), "l"(b), "r"(add), "n"(AA), "n"(BA));                            \
        }                                                                                          \
        template <int BA>                                                                          \
        static __device__ __forceinline__ void                                                     \
        of_registers(float (&c)[N / 8][4], const uint32_t (&a)[4], uint64_t b, int add)            \
        {                                                                                          \
            asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #I5 ", 0;\n"                       \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "               \
                         "{" HOPPER_R##LAST "}, {%" #I0 ", %" #I1 ", %" #I2 ", %" #I3 "}, %" #I4   \
                         ", add, 1, 1, %" #I6 "; }"                                                \
                         : HOPPER_C##LAST                                                          \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(BA)); \
        }                                                                                          \
    };

HOPPER_PRODUCT(8, 0, 4, 5, 6, 7, 8, 9, 10)
HOPPER_PRODUCT(16, 1, 8, 9, 10, 11, 12, 13, 14)
HOPPER_PRODUCT(24, 2, 12, 13, 14, 15, 16, 17, 18)
HOPPER_PRODUCT(32, 3, 16, 17, 18, 19, 20, 21, 22)
HOPPER_PRODUCT(40, 4, 20, 21, 22, 23, 24, 25, 26)
HOPPER_PRODUCT(48, 5, 24, 25, 26, 27, 28, 29, 30)
HOPPER_PRODUCT(64, 7, 32, 33, 34, 35, 36, 37, 38)
HOPPER_PRODUCT(72, 8, 36, 37, 38, 39, 40, 41, 42)
HOPPER_PRODUCT(80, 9, 40, 41, 42, 43, 44, 45, 46)
HOPPER_PRODUCT(96, 11, 48, 49, 50, 51, 52, 53, 54)
HOPPER_PRODUCT(104, 12, 52, 53, 54, 55, 56, 57, 58)
HOPPER_PRODUCT(112, 13, 56, 57, 58, 59, 60, 61, 62)
HOPPER_PRODUCT(120, 14, 60, 61, 62, 63, 64, 65, 66)
HOPPER_PRODUCT(128, 15, 64, 65, 66, 67, 68, 69, 70)
HOPPER_PRODUCT(136, 16, 68, 69, 70, 71, 72, 73, 74)
HOPPER_PRODUCT(144, 17, 72, 73, 74, 75, 76, 77, 78)
HOPPER_PRODUCT(152, 18, 76, 77, 78, 79, 80, 81, 82)
HOPPER_PRODUCT(160, 19, 80, 81, 82, 83, 84, 85, 86)
HOPPER_PRODUCT(176, 21, 88, 89, 90, 91, 92, 93, 94)
HOPPER_PRODUCT(184, 22, 92, 93, 94, 95, 96, 97, 98)
HOPPER_PRODUCT(192, 23, 96, 97, 98, 99, 100, 101, 102)
HOPPER_PRODUCT(208, 25, 104, 105, 106, 107, 108, 109, 110)
HOPPER_PRODUCT(256, 31, 128, 129, 130, 131, 132, 133, 134)

#undef HOPPER_PRODUCT

/* The same, with N deduced from the accumulators. */
template <int AA, int BA, int UNITS>
__device__ __forceinline__ void multiply_shared(float (&c)[UNITS][4], uint64_t a, uint64_t b,
                                                int add)
{
    hopper_product<UNITS * 8>::template of_shared<AA, BA>(c, a, b, add);
}

template <int BA, int UNITS>
__device__ __forceinline__ void multiply_registers(float (&c)[UNITS][4], const uint32_t (&a)[4],
                                                   uint64_t b, int add)
{
    hopper_product<UNITS * 8>::template of_registers<BA>(c, a, b, add);
}

/* ---- 8-bit products -------------------------------------------------------------------------- */

/* c [64, N] = a [64, 32] b [32, N], or += if add is not 0.  Both operands are K-major in shared
 * memory; b is e4m3, and a is e4m3 or e5m2, as the name says.  The sums of 32 products and c have
 * 14 bits. */
template <int N> struct hopper_product_fp8;

/* As above, N columns; I0 to I2 are the asm operand numbers after the accumulators. */
#define HOPPER_FUNCTION_FP8(A, N, LAST, I0, I1, I2)                                                \
    static __device__ __forceinline__ void of_##A(float (&c)[N / 8][4], uint64_t a, uint64_t b,    \
                                                  int add)                                         \
    {                                                                                              \
        asm volatile("{ .reg .pred add; setp.ne.b32 add, %" #I2 ", 0;\n"                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." #A ".e4m3 "                 \
                     "{" HOPPER_R##LAST "}, %" #I0 ", %" #I1 ", add, 1, 1; }"                      \
                     : HOPPER_C##LAST                                                              \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }
#define HOPPER_PRODUCT_FP8(N, LAST, I0, I1, I2)                                                    \
    template <> struct hopper_product_fp8<N> {                                                     \
        HOPPER_FUNCTION_FP8(e4m3, N, LAST, I0, I1, I2)                                             \
        HOPPER_FUNCTION_FP8(e5m2, N, LAST, I0, I1, I2)                                             \
    };

HOPPER_PRODUCT_FP8(128, 15, 64, 65, 66)
HOPPER_PRODUCT_FP8(192, 23, 96, 97, 98)

#undef HOPPER_PRODUCT_FP8
#undef HOPPER_FUNCTION_FP8

template <int UNITS>
__device__ __forceinline__ void multiply_e4m3(float (&c)[UNITS][4], uint64_t a, uint64_t b, int add)
{
    hopper_product_fp8<UNITS * 8>::of_e4m3(c, a, b, add);
}

/* The left operand is e5m2. */
template <int UNITS>
__device__ __forceinline__ void multiply_e5m2(float (&c)[UNITS][4], uint64_t a, uint64_t b, int add)
{
    hopper_product_fp8<UNITS * 8>::of_e5m2(c, a, b, add);
}

#endif

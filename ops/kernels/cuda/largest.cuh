/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the largest magnitude of a result in the kernel that writes it, so that rounding to 8
 * bits (fp8.cu) needs no pass of its own.  It is the largest of the rounded values.  Magnitudes are
 * compared as bits: these order as the values do, with NaN above all.  So the order of blocks
 * cannot change the result.
 */
#ifndef CKPT_CUDA_LARGEST_CUH
#define CKPT_CUDA_LARGEST_CUH

#include "extra.h"
#include "kernels/cuda/cuda.cuh"

/* The maximum of each of two pairs of 16-bit halves. */
__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b)
{
#if __CUDA_ARCH__ >= 900
    uint32_t c;
    asm("max.u16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
#else
    return __vmaxu2(a, b);
#endif
}

/* The running maximum of one thread over words of memory that hold elements of T.  A kernel that
 * passes the address of the result skips the work if the address is NULL. */
template <typename T> struct largest {
    uint32_t value = 0;
    bool requested = true;

    __device__ __forceinline__ largest()
    {
    }

    __device__ __forceinline__ explicit largest(const uint32_t *to) : requested(to != nullptr)
    {
    }

    __device__ __forceinline__ void see(uint32_t word)
    {
        if constexpr (sizeof(T) == 2)
            value = larger_pair(value, word & 0x7fff7fffu);
        else
            value = max(value, word & 0x7fffffffu);
    }

    template <int N> __device__ __forceinline__ void see(const uint32_t (&words)[N])
    {
        if (!requested)
            return;
#pragma unroll
        for (int i = 0; i < N; i++)
            see(words[i]);
    }

    template <int N> __device__ __forceinline__ void see(const vec<T, N> &v)
    {
        if constexpr (sizeof(vec<T, N>) % 4 == 0)
            see(*reinterpret_cast<const uint32_t(*)[sizeof(vec<T, N>) / 4]>(&v));
        else
            see((uint32_t) * reinterpret_cast<const uint16_t *>(&v));
    }

    /* The maximum as the bits of an fp32. */
    __device__ __forceinline__ uint32_t bits(void) const
    {
        if constexpr (sizeof(T) == 2)
            return max(value & 0xffffu, value >> 16) << 16;
        else
            return value;
    }
};

/* The maximum over the threads of a block (a multiple of 32, at most 1024), valid in the first
 * warp.  All threads must call it, once. */
__device__ __forceinline__ uint32_t block_largest(uint32_t x)
{
    __shared__ uint32_t part[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
#pragma unroll
    for (int offset = 16; offset; offset >>= 1)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, offset));
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    x = lane < warps ? part[lane] : 0;
#pragma unroll
    for (int offset = 16; offset; offset >>= 1)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

/* Raises *to to the maximum of a block; does nothing if `to` is NULL.  All threads must call it,
 * once.  Few blocks write: a block whose maximum is not above *to skips the atomic. */
template <typename T>
__device__ __forceinline__ void leave_largest(uint32_t *to, const largest<T> &mine)
{
    if (!to)
        return;
    const uint32_t x = block_largest(mine.bits());
    if (threadIdx.x == 0 && x > __ldcg(to))
        atomicMax(to, x);
}

/* The maximum over a warp; all of its lanes must call it. */
template <typename T> __device__ __forceinline__ uint32_t warp_largest(const largest<T> &mine)
{
    return __reduce_max_sync(0xffffffffu, mine.bits());
}

/* Raises *to to x, the maximum of a warp. */
__device__ __forceinline__ void warp_leave_largest(uint32_t *to, uint32_t x)
{
    if (threadIdx.x % 32 == 0 && x > __ldcg(to))
        atomicMax(to, x);
}

/* Sets the largest magnitude at `to` to 0 and returns `to`, which may be NULL. */
static inline uint32_t *largest_zero(const struct ckpt_kernel_args *a, void *to)
{
    if (to)
        cudaMemsetAsync(to, 0, sizeof(uint32_t), stream_of(a));
    return static_cast<uint32_t *>(to);
}

/* Returns where an op writes the largest magnitude of a result, and sets it to 0; NULL if it was
 * not requested. */
static inline uint32_t *largest_begin(const struct ckpt_kernel_args *a, int result = 0)
{
    return largest_zero(a, extra_output(a, EXTRA_LARGEST + result));
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous copies from global to shared memory (cp.async). */
#ifndef CKPT_CUDA_CP_ASYNC_CUH
#define CKPT_CUDA_CP_ASYNC_CUH

#include "kernels/cuda/cuda.cuh"

/* Starts a copy of 16 bytes to shared memory; clears them if not valid. */
__device__ __forceinline__ void copy16(uint32_t dst, const void *src, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy8(uint32_t dst, const void *src, bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dst), "l"(src),
                 "r"(valid ? 8 : 0)
                 : "memory");
}

/* Waits for all copies of this thread; other threads see them after a barrier. */
__device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* copies_commit makes a group of the copies begun so far; copies_wait_but waits until at most N
 * groups are in flight. */
__device__ __forceinline__ void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ __forceinline__ void copies_wait_but(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif

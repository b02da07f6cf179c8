/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Largest magnitudes of attention results, computed by the kernels that write them
 * (cuda/largest.cuh).  These kernels are short of registers, so a thread keeps its running maximum
 * in a word of shared memory.
 */
#ifndef CKPT_CUDA_ATTENTION_LARGEST_CUH
#define CKPT_CUDA_ATTENTION_LARGEST_CUH

#include "kernels/cuda/attention/attention_mma.cuh"

/* The largest magnitude of accumulators, of two rows 8 apart, multiplied by `times`.  `left` is the
 * number of valid rows from the upper one on. */
template <int UNITS>
__device__ __forceinline__ largest<bf16> attention_largest(const float (&c)[UNITS][4], float times,
                                                           int left, int first = 0)
{
    largest<bf16> amax;
#pragma unroll
    for (int n = 0; n < UNITS; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (half * 8 < left && n >= first)
                amax.see(pack2(c[n][2 * half] * times, c[n][2 * half + 1] * times));
    return amax;
}

/* `word` has an entry per thread of the block: the upper half of an fp32, which is a bf16.  Warps
 * reduce them only at the end of the kernel, so that no tile waits for a reduction. */
__device__ __forceinline__ void attention_keep_none(uint16_t *word)
{
    word[threadIdx.x] = 0;
}

__device__ __forceinline__ void attention_keep_largest(uint16_t *word, const largest<bf16> &amax)
{
    word[threadIdx.x] = max(word[threadIdx.x], (uint16_t)(amax.bits() >> 16));
}

/* Raises *to to the largest magnitude that the warp's threads have kept. */
__device__ __forceinline__ void attention_leave_kept(uint32_t *to, const uint16_t *word)
{
    largest<bf16> amax;
    amax.value = word[threadIdx.x];
    warp_leave_largest(to, warp_largest(amax));
}

#endif

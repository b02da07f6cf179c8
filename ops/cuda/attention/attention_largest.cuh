/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Largest magnitudes of results of attention, from the kernels that write them (cuda/largest.cuh).
 * They are short of registers, so a thread keeps what it has seen in a word of shared memory.
 */
#ifndef CKPT_CUDA_ATTENTION_LARGEST_CUH
#define CKPT_CUDA_ATTENTION_LARGEST_CUH

#include "cuda/attention/attention_mma.cuh"

/* The largest of accumulators, two rows 8 apart, times what they are stored times: as far as rows
 * are there, `left` from the upper one on. */
template <int UNITS>
__device__ __forceinline__ largest<bf16> attention_largest(const float (&c)[UNITS][4], float times,
                                                           int left, int first = 0)
{
    largest<bf16> most;
#pragma unroll
    for (int n = 0; n < UNITS; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (half * 8 < left && n >= first)
                most.see(pack2(c[n][2 * half] * times, c[n][2 * half + 1] * times));
    return most;
}

/* The thread's word of those of a block, an fp32's upper half, as bf16 has it.  Warps look for the
 * largest of theirs in the end: no tile waits for that. */
__device__ __forceinline__ void attention_keep_none(uint16_t *word)
{
    word[threadIdx.x] = 0;
}

__device__ __forceinline__ void attention_keep_largest(uint16_t *word, const largest<bf16> &most)
{
    word[threadIdx.x] = max(word[threadIdx.x], (uint16_t)(most.bits() >> 16));
}

/* Raises *to to the largest that the warp's threads have kept. */
__device__ __forceinline__ void attention_leave_kept(uint32_t *to, const uint16_t *word)
{
    largest<bf16> most;
    most.most = word[threadIdx.x];
    warp_leave_largest(to, warp_largest(most));
}

#endif

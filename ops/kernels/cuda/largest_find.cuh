/* SPDX-License-Identifier: Apache-2.0 */
/* The largest magnitude of a tensor in memory. */
#ifndef CKPT_CUDA_LARGEST_FIND_CUH
#define CKPT_CUDA_LARGEST_FIND_CUH

#include "kernels/cuda/largest.cuh"

/* Raises *to to the largest magnitude of x, whose last axis must be dense. */
void largest_find(const struct ckpt_view &x, uint32_t *to, cudaStream_t stream);

#endif

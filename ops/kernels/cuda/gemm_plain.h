/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products on Hopper by libckpt's kernels (gemm_plain.cu): c = a b + bias + addend in bf16; a and b
 * are bf16, or 8-bit with one scale per tensor. cuda_gemm() uses them where they are faster than
 * cuBLASLt's proposals, mostly for short sums.
 *
 * Sums are taken in the order of the summed axis, whatever the sizes; in fp32, or for 8-bit
 * operands in the precision of the tensor cores' accumulators.  Wherever they were compared, they
 * had the bits of cuBLASLt's results.
 */
#ifndef CKPT_CUDA_GEMM_PLAIN_H
#define CKPT_CUDA_GEMM_PLAIN_H

#include "shapes/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Can the current device compute this product? */
bool cuda_gemm_plain_takes(const struct gemm *g);

/* Is a product that it takes usually faster than cuBLASLt's?  Depends on the sizes and the device
 * alone. */
bool cuda_gemm_plain_is_fast(const struct gemm *g);

/* Returns 0 or CKPT_EDEVICE. */
int cuda_gemm_plain(const struct gemm *g, void *stream);

#ifdef __cplusplus
}
#endif
#endif

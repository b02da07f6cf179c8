/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products on Hopper, c = a b + bias + addend of bf16, a and b of that or of 8 bits with a scale
 * for the whole, by kernels of our own (gemm_plain.cu): what cuda_gemm() uses where they are faster
 * than what cuBLASLt proposes, which is with short sums.  Sums are taken in the order of the summed
 * axis, whatever the sizes, in fp32, or of 8 bits as the accumulators of the tensor cores keep
 * them, and have had the bits of cuBLASLt's wherever they were compared.
 */
#ifndef CKPT_CUDA_GEMM_PLAIN_H
#define CKPT_CUDA_GEMM_PLAIN_H

#include "cpu/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the current device has these products, and takes operands like these. */
bool cuda_gemm_plain_takes(const struct gemm *g);

/* Whether a product that it takes is as a rule faster so.  Depends on sizes and device alone. */
bool cuda_gemm_plain_is_fast(const struct gemm *g);

/* Returns 0 or CKPT_EDEVICE. */
int cuda_gemm_plain(const struct gemm *g, void *stream);

#ifdef __cplusplus
}
#endif
#endif

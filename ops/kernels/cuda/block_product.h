/* SPDX-License-Identifier: Apache-2.0 */
/* Products of e4m3 operands with a scale per block, on Hopper: see block_product.cu. */
#ifndef CKPT_CUDA_BLOCK_PRODUCT_H
#define CKPT_CUDA_BLOCK_PRODUCT_H

#include "shapes/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Computes g on a's stream, with a's workspace; its operands have scales per block and are K-major
 * (b transposed).  Returns 0, or CKPT_EDEVICE if there is no such product or the launch failed. */
int cuda_block_product(const struct ckpt_kernel_args *a, const struct gemm *g);

#ifdef __cplusplus
}
#endif
#endif

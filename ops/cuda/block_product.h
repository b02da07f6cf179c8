/* SPDX-License-Identifier: Apache-2.0 */
/* Products of e4m3 operands with a scale for each block, on Hopper: see block_product.cu. */
#ifndef CKPT_CUDA_BLOCK_PRODUCT_H
#define CKPT_CUDA_BLOCK_PRODUCT_H

#include "cpu/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs g, whose operands have scales by block and lie along the sum (b transposed), on the stream
 * and with the workspace of a.  Returns 0, or CKPT_EDEVICE: no such product, or not launched. */
int cuda_block_product(const struct ckpt_kernel_args *a, const struct gemm *g);

#ifdef __cplusplus
}
#endif
#endif

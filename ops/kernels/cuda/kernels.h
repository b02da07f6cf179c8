/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels: the functions of kernels.def, and two that others call. */
#ifndef CKPT_CUDA_KERNELS_H
#define CKPT_CUDA_KERNELS_H

#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KERNEL(op, run, workspace) int run(const struct ckpt_kernel_args *a);
#include "kernels/cuda/kernels.def"
#undef KERNEL

/* For any rows; that of RMS norm with an addend. */
int cuda_rms_norm_rows_dx(const struct ckpt_kernel_args *a);
int cuda_layer_norm_rows_affine_dx(const struct ckpt_kernel_args *a);

#ifdef __cplusplus
}
#endif
#endif

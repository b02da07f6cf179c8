/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels of ops.def, and three that others call. */
#ifndef CKPT_CUDA_KERNELS_H
#define CKPT_CUDA_KERNELS_H

#include "extra.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OP_BY(name, kernel) int cuda_##kernel(const struct ckpt_kernel_args *a);
#define OP(name)            OP_BY(name, name)
#define OP_ALONE(name)
#include "ops.def"

/* For any rows; that of RMS norm with an addend. */
int cuda_rms_norm_rows_dx(const struct ckpt_kernel_args *a);
int cuda_layer_norm_rows_affine_dx(const struct ckpt_kernel_args *a);
int cuda_stopwatch(const struct ckpt_kernel_args *a); /* kernel_stopwatch */

#ifdef __cplusplus
}
#endif
#endif

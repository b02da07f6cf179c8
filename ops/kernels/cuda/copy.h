/* SPDX-License-Identifier: Apache-2.0 */
/* Copying and filling views, for kernels of several families. */
#ifndef CKPT_CUDA_COPY_H
#define CKPT_CUDA_COPY_H

#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x, bit by bit; x is broadcast to y.  Only launches kernels; does nothing if y is empty. */
int cuda_copy_view(const struct ckpt_kernel_args *a, const struct ckpt_view *y,
                   const struct ckpt_view *x);

/* Fills y with a value. */
int cuda_fill_view(const struct ckpt_kernel_args *a, const struct ckpt_view *y, float value);

#ifdef __cplusplus
}
#endif
#endif

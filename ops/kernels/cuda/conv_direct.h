/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA convolutions without cuDNN: those that cuDNN refuses, and depthwise ones. */
#ifndef CKPT_CUDA_CONV_DIRECT_H
#define CKPT_CUDA_CONV_DIRECT_H

#include "shapes/conv.h"

#ifdef __cplusplus
extern "C" {
#endif

int cuda_conv_direct(const struct ckpt_kernel_args *a, const struct conv_shape *s);
int cuda_conv_dx_direct(const struct ckpt_kernel_args *a, const struct conv_shape *s);
int cuda_conv_dw_direct(const struct ckpt_kernel_args *a, const struct conv_shape *s);

int cuda_depthwise(const struct ckpt_kernel_args *a, const struct conv_shape *s);
int cuda_depthwise_dx(const struct ckpt_kernel_args *a, const struct conv_shape *s);
int cuda_depthwise_dw(const struct ckpt_kernel_args *a, const struct conv_shape *s);

/* out [n], fp32, = or += the sum of `parts` partial results, in order. */
int cuda_conv_add_parts(const struct ckpt_kernel_args *a, const float *part, int64_t parts,
                        int64_t n);

/* out[0], fp32, = or += the bf16 values at the front of the workspace. */
int cuda_conv_widen(const struct ckpt_kernel_args *a);

#ifdef __cplusplus
}
#endif
#endif

/*
 * The CUDA kernels, one per op that computes something; ops/<family>.c points at them.  Without the
 * toolkit there are none: the slots are NULL.
 */
#ifndef CKPT_CUDA_KERNELS_H
#define CKPT_CUDA_KERNELS_H

#include "ckpt_op.h"

#ifdef HAVE_CUDA
#define CUDA_KERNEL(fn) (fn)
#else
#define CUDA_KERNEL(fn) NULL
#endif

#ifdef __cplusplus
extern "C" {
#endif

int cuda_linear(const struct ckpt_kernel_args *a);
int cuda_linear_dx(const struct ckpt_kernel_args *a);
int cuda_linear_dw(const struct ckpt_kernel_args *a);
int cuda_column_sum(const struct ckpt_kernel_args *a);

int cuda_gelu(const struct ckpt_kernel_args *a);
int cuda_gelu_dx(const struct ckpt_kernel_args *a);
int cuda_silu(const struct ckpt_kernel_args *a);
int cuda_silu_dx(const struct ckpt_kernel_args *a);

int cuda_attention(const struct ckpt_kernel_args *a);
int cuda_attention_dx(const struct ckpt_kernel_args *a);
int cuda_cross_attention(const struct ckpt_kernel_args *a);
int cuda_cross_attention_dx(const struct ckpt_kernel_args *a);
int cuda_layer_norm(const struct ckpt_kernel_args *a);
int cuda_layer_norm_dx(const struct ckpt_kernel_args *a);
int cuda_rms_norm(const struct ckpt_kernel_args *a);
int cuda_rms_norm_dx(const struct ckpt_kernel_args *a);
int cuda_modulate(const struct ckpt_kernel_args *a);
int cuda_modulate_dx(const struct ckpt_kernel_args *a);
int cuda_layer_norm_modulate(const struct ckpt_kernel_args *a);
int cuda_layer_norm_modulate_dx(const struct ckpt_kernel_args *a);
int cuda_gated_residual(const struct ckpt_kernel_args *a);
int cuda_gated_residual_dx(const struct ckpt_kernel_args *a);
int cuda_rope(const struct ckpt_kernel_args *a);
int cuda_rms_norm_rope(const struct ckpt_kernel_args *a);
int cuda_rms_norm_rope_dx(const struct ckpt_kernel_args *a);

#ifdef __cplusplus
}
#endif
#endif

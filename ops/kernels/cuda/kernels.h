/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA kernels, one per op that computes something; the tables in ops/<family>.c refer to them.
 * Without the CUDA toolkit the entries are NULL.
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
int cuda_linear_gelu(const struct ckpt_kernel_args *a);
int cuda_linear_dx_gelu(const struct ckpt_kernel_args *a);
int cuda_linear_gated(const struct ckpt_kernel_args *a);
int cuda_linear_dx_gated(const struct ckpt_kernel_args *a);
int cuda_to_fp8(const struct ckpt_kernel_args *a);
int cuda_to_fp8_largest(const struct ckpt_kernel_args *a);
int cuda_to_fp8_blocks(const struct ckpt_kernel_args *a);
int cuda_to_int8(const struct ckpt_kernel_args *a);
int cuda_from_int8(const struct ckpt_kernel_args *a);
int cuda_linear_fp8(const struct ckpt_kernel_args *a);
int cuda_linear_fp8_dx(const struct ckpt_kernel_args *a);
int cuda_linear_fp8_dx_gelu(const struct ckpt_kernel_args *a);
int cuda_linear_fp8_dw(const struct ckpt_kernel_args *a);
int cuda_dequantize(const struct ckpt_kernel_args *a);
int cuda_column_sum(const struct ckpt_kernel_args *a);

int cuda_expr(const struct ckpt_kernel_args *a);
int cuda_add(const struct ckpt_kernel_args *a);
int cuda_sub(const struct ckpt_kernel_args *a);
int cuda_mul(const struct ckpt_kernel_args *a);
int cuda_affine(const struct ckpt_kernel_args *a);
int cuda_where(const struct ckpt_kernel_args *a);
int cuda_sum_to(const struct ckpt_kernel_args *a);
int cuda_accumulate(const struct ckpt_kernel_args *a);
int cuda_accumulate_narrow(const struct ckpt_kernel_args *a);
int cuda_gelu(const struct ckpt_kernel_args *a);
int cuda_gelu_dx(const struct ckpt_kernel_args *a);
int cuda_gelu_dx_sums(const struct ckpt_kernel_args *a);
int cuda_silu(const struct ckpt_kernel_args *a);
int cuda_silu_dx(const struct ckpt_kernel_args *a);

int cuda_attention(const struct ckpt_kernel_args *a);
int cuda_attention_dx(const struct ckpt_kernel_args *a);
int cuda_attention_dbias(const struct ckpt_kernel_args *a);
int cuda_cross_attention(const struct ckpt_kernel_args *a);
int cuda_cross_attention_dx(const struct ckpt_kernel_args *a);
int cuda_layer_norm(const struct ckpt_kernel_args *a);
int cuda_layer_norm_dx(const struct ckpt_kernel_args *a);
int cuda_layer_norm_dx_sums(const struct ckpt_kernel_args *a);
int cuda_rms_norm(const struct ckpt_kernel_args *a);
int cuda_rms_norm_dx(const struct ckpt_kernel_args *a);
int cuda_rms_norm_dx_sums(const struct ckpt_kernel_args *a);
int cuda_rms_norm_rows_dx(const struct ckpt_kernel_args *a); /* any rows, with an addend */
int cuda_modulate(const struct ckpt_kernel_args *a);
int cuda_modulate_dx(const struct ckpt_kernel_args *a);
int cuda_layer_norm_modulate(const struct ckpt_kernel_args *a);
int cuda_layer_norm_modulate_dx(const struct ckpt_kernel_args *a);
int cuda_layer_norm_modulate_dx_sums(const struct ckpt_kernel_args *a);
int cuda_gated_residual(const struct ckpt_kernel_args *a);
int cuda_gated_residual_dx(const struct ckpt_kernel_args *a);
int cuda_gated_residual_dx_sums(const struct ckpt_kernel_args *a);
int cuda_rope(const struct ckpt_kernel_args *a);
int cuda_rms_norm_rope(const struct ckpt_kernel_args *a);
int cuda_rms_norm_rope_dx(const struct ckpt_kernel_args *a);
int cuda_pack(const struct ckpt_kernel_args *a);
int cuda_unpack(const struct ckpt_kernel_args *a);

int cuda_timestep_embedding(const struct ckpt_kernel_args *a);
int cuda_patchify(const struct ckpt_kernel_args *a);
int cuda_unpatchify(const struct ckpt_kernel_args *a);

int cuda_concat(const struct ckpt_kernel_args *a);
int cuda_copy(const struct ckpt_kernel_args *a);
int cuda_pad(const struct ckpt_kernel_args *a);
int cuda_cast(const struct ckpt_kernel_args *a);
int cuda_sum(const struct ckpt_kernel_args *a);
int cuda_broadcast(const struct ckpt_kernel_args *a);
int cuda_randn(const struct ckpt_kernel_args *a);
int cuda_fill(const struct ckpt_kernel_args *a);

int cuda_mse(const struct ckpt_kernel_args *a);
int cuda_mse_dx(const struct ckpt_kernel_args *a);
int cuda_cross_entropy(const struct ckpt_kernel_args *a);
int cuda_cross_entropy_dx(const struct ckpt_kernel_args *a);
int cuda_cross_entropy_both(const struct ckpt_kernel_args *a);
int cuda_cross_entropy_count(const struct ckpt_kernel_args *a);

int cuda_layer_norm_affine_dx(const struct ckpt_kernel_args *a);
int cuda_layer_norm_rows_affine_dx(const struct ckpt_kernel_args *a); /* the same, any rows */
int cuda_layer_norm_affine_dx_sums(const struct ckpt_kernel_args *a);
int cuda_index_select(const struct ckpt_kernel_args *a);
int cuda_index_add(const struct ckpt_kernel_args *a);
int cuda_gather(const struct ckpt_kernel_args *a);
int cuda_scatter(const struct ckpt_kernel_args *a);
int cuda_amax(const struct ckpt_kernel_args *a);
int cuda_amin(const struct ckpt_kernel_args *a);
int cuda_prod(const struct ckpt_kernel_args *a);
int cuda_logsumexp(const struct ckpt_kernel_args *a);
int cuda_argmax(const struct ckpt_kernel_args *a);
int cuda_softmax(const struct ckpt_kernel_args *a);
int cuda_softmax_dx(const struct ckpt_kernel_args *a);
int cuda_cumsum(const struct ckpt_kernel_args *a);
int cuda_argsort(const struct ckpt_kernel_args *a);
int cuda_matmul(const struct ckpt_kernel_args *a);

int cuda_sum_squares(const struct ckpt_kernel_args *a);
int cuda_clip_coefficient(const struct ckpt_kernel_args *a);
int cuda_update(const struct ckpt_kernel_args *a);
int cuda_assign(const struct ckpt_kernel_args *a);
int cuda_moving_average(const struct ckpt_kernel_args *a);

int cuda_all_gather(const struct ckpt_kernel_args *a);
int cuda_reduce_scatter(const struct ckpt_kernel_args *a);
int cuda_all_reduce(const struct ckpt_kernel_args *a);
int cuda_flatten(const struct ckpt_kernel_args *a);
int cuda_requests(const struct ckpt_kernel_args *a);

int cuda_conv(const struct ckpt_kernel_args *a);
int cuda_conv_dx(const struct ckpt_kernel_args *a);
int cuda_conv_dw(const struct ckpt_kernel_args *a);
int cuda_group_norm(const struct ckpt_kernel_args *a);
int cuda_group_norm_dx(const struct ckpt_kernel_args *a);
int cuda_upsample_nearest(const struct ckpt_kernel_args *a);
int cuda_upsample_nearest_dx(const struct ckpt_kernel_args *a);
int cuda_l1(const struct ckpt_kernel_args *a);
int cuda_l1_dx(const struct ckpt_kernel_args *a);
int cuda_kl_normal(const struct ckpt_kernel_args *a);
int cuda_kl_normal_dx(const struct ckpt_kernel_args *a);
int cuda_sample_normal(const struct ckpt_kernel_args *a);
int cuda_sample_normal_dx(const struct ckpt_kernel_args *a);
int cuda_relu(const struct ckpt_kernel_args *a);
int cuda_relu_dx(const struct ckpt_kernel_args *a);
int cuda_max_pool(const struct ckpt_kernel_args *a);
int cuda_max_pool_dx(const struct ckpt_kernel_args *a);
int cuda_avg_pool(const struct ckpt_kernel_args *a);
int cuda_avg_pool_dx(const struct ckpt_kernel_args *a);
int cuda_feature_distance(const struct ckpt_kernel_args *a);
int cuda_feature_distance_dx(const struct ckpt_kernel_args *a);
int cuda_quantize(const struct ckpt_kernel_args *a);
int cuda_quantize_dx(const struct ckpt_kernel_args *a);
int cuda_group_norm_moments(const struct ckpt_kernel_args *a);
int cuda_group_norm_join(const struct ckpt_kernel_args *a);
int cuda_group_norm_apply(const struct ckpt_kernel_args *a);

#ifdef __cplusplus
}
#endif
#endif

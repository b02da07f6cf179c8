/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU kernels, one per op that computes something; the op definitions refer to them. */
#ifndef CKPT_CPU_KERNELS_H
#define CKPT_CPU_KERNELS_H

#include "ckpt_op.h"

int cpu_linear(const struct ckpt_kernel_args *a);
int cpu_linear_dx(const struct ckpt_kernel_args *a);
int cpu_linear_dw(const struct ckpt_kernel_args *a);
int cpu_linear_gelu(const struct ckpt_kernel_args *a);
int cpu_linear_dx_gelu(const struct ckpt_kernel_args *a);
int cpu_linear_gated(const struct ckpt_kernel_args *a);
int cpu_linear_dx_gated(const struct ckpt_kernel_args *a);
int cpu_to_fp8(const struct ckpt_kernel_args *a);
int cpu_to_fp8_largest(const struct ckpt_kernel_args *a);
int cpu_to_fp8_blocks(const struct ckpt_kernel_args *a);
/* Called at the end of a kernel with n outputs that returned rc: if the call has an extra output,
 * writes the largest magnitude of output 0, whose rows are dense (ops_leave_largest). */
int cpu_write_largest(const struct ckpt_kernel_args *a, int n, int rc);

/* The same for gradients of attention: writes the largest magnitudes that `left` lists. */
void cpu_write_attention_largest(const struct ckpt_kernel_args *a, uint16_t left);

/* Runs the gradient kernel dx with n outputs, then writes the column sums of output 0, as stored
 * and dense, to output n. */
int cpu_with_dx_sums(const struct ckpt_kernel_args *a, int n, ckpt_kernel dx);
int cpu_to_int8(const struct ckpt_kernel_args *a);
int cpu_from_int8(const struct ckpt_kernel_args *a);
int cpu_linear_fp8(const struct ckpt_kernel_args *a);
int cpu_linear_fp8_dx(const struct ckpt_kernel_args *a);
int cpu_linear_fp8_dx_gelu(const struct ckpt_kernel_args *a);
int cpu_linear_fp8_dw(const struct ckpt_kernel_args *a);
int cpu_dequantize(const struct ckpt_kernel_args *a);
int cpu_column_sum(const struct ckpt_kernel_args *a);

int cpu_expr(const struct ckpt_kernel_args *a);
int cpu_add(const struct ckpt_kernel_args *a);
int cpu_sub(const struct ckpt_kernel_args *a);
int cpu_mul(const struct ckpt_kernel_args *a);
int cpu_affine(const struct ckpt_kernel_args *a);
int cpu_where(const struct ckpt_kernel_args *a);
int cpu_sum_to(const struct ckpt_kernel_args *a);
int cpu_accumulate(const struct ckpt_kernel_args *a);
int cpu_accumulate_narrow(const struct ckpt_kernel_args *a);
int cpu_gelu(const struct ckpt_kernel_args *a);
int cpu_gelu_dx(const struct ckpt_kernel_args *a);
int cpu_gelu_dx_sums(const struct ckpt_kernel_args *a);
int cpu_silu(const struct ckpt_kernel_args *a);
int cpu_silu_dx(const struct ckpt_kernel_args *a);

int cpu_layer_norm(const struct ckpt_kernel_args *a);
int cpu_layer_norm_dx(const struct ckpt_kernel_args *a);
int cpu_layer_norm_dx_sums(const struct ckpt_kernel_args *a);
int cpu_rms_norm(const struct ckpt_kernel_args *a);
int cpu_rms_norm_dx(const struct ckpt_kernel_args *a);
int cpu_rms_norm_dx_sums(const struct ckpt_kernel_args *a);
int cpu_modulate(const struct ckpt_kernel_args *a);
int cpu_modulate_dx(const struct ckpt_kernel_args *a);
int cpu_layer_norm_modulate(const struct ckpt_kernel_args *a);
int cpu_layer_norm_modulate_dx(const struct ckpt_kernel_args *a);
int cpu_layer_norm_modulate_dx_sums(const struct ckpt_kernel_args *a);
int cpu_gated_residual(const struct ckpt_kernel_args *a);
int cpu_gated_residual_dx(const struct ckpt_kernel_args *a);
int cpu_gated_residual_dx_sums(const struct ckpt_kernel_args *a);
int cpu_rope(const struct ckpt_kernel_args *a);
int cpu_rms_norm_rope(const struct ckpt_kernel_args *a);
int cpu_rms_norm_rope_dx(const struct ckpt_kernel_args *a);

int cpu_attention(const struct ckpt_kernel_args *a);
int cpu_attention_dx(const struct ckpt_kernel_args *a);
int cpu_attention_dbias(const struct ckpt_kernel_args *a);
int cpu_cross_attention(const struct ckpt_kernel_args *a);
int cpu_cross_attention_dx(const struct ckpt_kernel_args *a);
int cpu_pack(const struct ckpt_kernel_args *a);
int cpu_unpack(const struct ckpt_kernel_args *a);

int cpu_timestep_embedding(const struct ckpt_kernel_args *a);
int cpu_patchify(const struct ckpt_kernel_args *a);
int cpu_unpatchify(const struct ckpt_kernel_args *a);

int cpu_all_gather(const struct ckpt_kernel_args *a);
int cpu_all_reduce(const struct ckpt_kernel_args *a);
int cpu_flatten(const struct ckpt_kernel_args *a);
int cpu_requests(const struct ckpt_kernel_args *a);
int cpu_reduce_scatter(const struct ckpt_kernel_args *a);

int cpu_concat(const struct ckpt_kernel_args *a);
int cpu_copy(const struct ckpt_kernel_args *a);
int cpu_pad(const struct ckpt_kernel_args *a);
int cpu_cast(const struct ckpt_kernel_args *a);
int cpu_sum(const struct ckpt_kernel_args *a);
int cpu_broadcast(const struct ckpt_kernel_args *a);
int cpu_randn(const struct ckpt_kernel_args *a);
int cpu_fill(const struct ckpt_kernel_args *a);

int cpu_mse(const struct ckpt_kernel_args *a);
int cpu_mse_dx(const struct ckpt_kernel_args *a);
int cpu_cross_entropy(const struct ckpt_kernel_args *a);
int cpu_cross_entropy_dx(const struct ckpt_kernel_args *a);
int cpu_cross_entropy_both(const struct ckpt_kernel_args *a);
int cpu_cross_entropy_count(const struct ckpt_kernel_args *a);

int cpu_conv(const struct ckpt_kernel_args *a);
int cpu_conv_dx(const struct ckpt_kernel_args *a);
int cpu_conv_dw(const struct ckpt_kernel_args *a);
int cpu_group_norm(const struct ckpt_kernel_args *a);
int cpu_group_norm_dx(const struct ckpt_kernel_args *a);
int cpu_upsample_nearest(const struct ckpt_kernel_args *a);
int cpu_upsample_nearest_dx(const struct ckpt_kernel_args *a);
int cpu_l1(const struct ckpt_kernel_args *a);
int cpu_l1_dx(const struct ckpt_kernel_args *a);
int cpu_kl_normal(const struct ckpt_kernel_args *a);
int cpu_kl_normal_dx(const struct ckpt_kernel_args *a);
int cpu_sample_normal(const struct ckpt_kernel_args *a);
int cpu_sample_normal_dx(const struct ckpt_kernel_args *a);
int cpu_relu(const struct ckpt_kernel_args *a);
int cpu_relu_dx(const struct ckpt_kernel_args *a);
int cpu_max_pool(const struct ckpt_kernel_args *a);
int cpu_max_pool_dx(const struct ckpt_kernel_args *a);
int cpu_avg_pool(const struct ckpt_kernel_args *a);
int cpu_avg_pool_dx(const struct ckpt_kernel_args *a);
int cpu_feature_distance(const struct ckpt_kernel_args *a);
int cpu_feature_distance_dx(const struct ckpt_kernel_args *a);
int cpu_quantize(const struct ckpt_kernel_args *a);
int cpu_quantize_dx(const struct ckpt_kernel_args *a);
int cpu_group_norm_moments(const struct ckpt_kernel_args *a);
int cpu_group_norm_join(const struct ckpt_kernel_args *a);
int cpu_group_norm_apply(const struct ckpt_kernel_args *a);

int cpu_layer_norm_affine_dx(const struct ckpt_kernel_args *a);
int cpu_layer_norm_affine_dx_sums(const struct ckpt_kernel_args *a);
int cpu_index_select(const struct ckpt_kernel_args *a);
int cpu_index_add(const struct ckpt_kernel_args *a);
int cpu_gather(const struct ckpt_kernel_args *a);
int cpu_scatter(const struct ckpt_kernel_args *a);
int cpu_amax(const struct ckpt_kernel_args *a);
int cpu_amin(const struct ckpt_kernel_args *a);
int cpu_prod(const struct ckpt_kernel_args *a);
int cpu_logsumexp(const struct ckpt_kernel_args *a);
int cpu_argmax(const struct ckpt_kernel_args *a);
int cpu_softmax(const struct ckpt_kernel_args *a);
int cpu_softmax_dx(const struct ckpt_kernel_args *a);
int cpu_cumsum(const struct ckpt_kernel_args *a);
int cpu_argsort(const struct ckpt_kernel_args *a);
int cpu_matmul(const struct ckpt_kernel_args *a);

int cpu_sum_squares(const struct ckpt_kernel_args *a);
int cpu_clip_coefficient(const struct ckpt_kernel_args *a);
int cpu_update(const struct ckpt_kernel_args *a);
int cpu_assign(const struct ckpt_kernel_args *a);
int cpu_moving_average(const struct ckpt_kernel_args *a);

#endif

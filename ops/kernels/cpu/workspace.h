/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch sizes of the CPU kernels, in bytes. */
#ifndef CKPT_CPU_WORKSPACE_H
#define CKPT_CPU_WORKSPACE_H

#include "shapes/conv.h"
#include "core/base.h"
#include "gemm.h"
#include "shapes/group_norm.h"

/* column_sum on [rows, cols]. */
int64_t column_sum_workspace(int64_t rows, int64_t cols);

/* Partial sums to reduce x to the shape of y (aligned at the last axis). */
int64_t cpu_reduce_workspace(const struct ckpt_desc *x, const struct ckpt_desc *y);

int64_t cpu_conv_workspace(const struct conv_shape *s, enum ckpt_dtype dtype);
int64_t cpu_conv_dx_workspace(const struct conv_shape *s, enum ckpt_dtype dtype);
int64_t cpu_conv_dw_workspace(const struct conv_shape *s, enum ckpt_dtype dtype);

int64_t cpu_group_norm_workspace(const struct group_norm_shape *s);
int64_t cpu_group_norm_dx_workspace(const struct group_norm_shape *s);
int64_t cpu_group_norm_apply_workspace(const struct group_norm_shape *s);

/* matmul: with at least 8 products, threads take whole products, each with its own slot of
 * workspace; fewer products are split among threads. */
static inline int64_t matmul_slots(int64_t products)
{
    return products >= 8 ? min_i64(products, 16) : 1;
}

static inline int64_t matmul_slot_bytes(const struct gemm *g)
{
    return round_up(gemm_workspace(g), 64);
}

#endif

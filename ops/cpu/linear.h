/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix products of the linear family, for shape rules (scratch) and kernels alike. */
#ifndef CKPT_CPU_LINEAR_H
#define CKPT_CPU_LINEAR_H

#include "gemm.h"

/* Rows of a tensor seen as a matrix: the product of all axes but the last. */
int64_t linear_rows(const struct ckpt_desc *x);

/* The products without their data. */
struct gemm linear_gemm(const struct ckpt_desc *x, const struct ckpt_desc *w);
struct gemm linear_dx_gemm(const struct ckpt_desc *dy, const struct ckpt_desc *w);
struct gemm linear_dw_gemm(const struct ckpt_desc *dy, const struct ckpt_desc *x,
                           enum ckpt_dtype dtype);

/* c = a b^T of 8-bit operands: qa [.., K], its scale or scales, qb [N, K], its, in this order. */
struct gemm fp8_gemm(const struct ckpt_view *in, enum ckpt_dtype dtype);

/* linear_gelu and linear_dx_gelu, of 8 bits too, by kernels of their parts.  Of the latter: dx,
 * dx_sums; and which input GELU is of, behind the operands of the product, which are at most
 * LINEAR_DX_OPERANDS. */
enum { LINEAR_DX_OPERANDS = 4 };
struct linear_gelu_parts {
    ckpt_kernel product, gelu, dx, dx_sums;
    int pre;
};
int linear_gelu_by_parts(const struct ckpt_kernel_args *a, const struct linear_gelu_parts *parts);
int linear_dx_gelu_by_parts(const struct ckpt_kernel_args *a,
                            const struct linear_gelu_parts *parts);

/* linear_gated and linear_dx_gated by kernels of their parts; silu_dx: of the latter alone.  With
 * h but not up, or gradients but not h, they need a matrix like gate, linear_gated_scratch() bytes,
 * in front of the product's scratch, and fail without. */
enum { GATED_ALIGN = 256 }; /* bytes: of what stands behind that matrix */
struct linear_gated_parts {
    ckpt_kernel product, silu, mul, silu_dx;
};
int64_t linear_gated_scratch(const struct ckpt_desc *gate);
int linear_gated_by_parts(const struct ckpt_kernel_args *a, const struct linear_gated_parts *parts);
int linear_dx_gated_by_parts(const struct ckpt_kernel_args *a,
                             const struct linear_gated_parts *parts);

/* Scratch of column_sum on [rows, cols]. */
int64_t column_sum_workspace(int64_t rows, int64_t cols);

#endif

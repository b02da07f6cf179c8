/* SPDX-License-Identifier: Apache-2.0 */
/* Products with an epilogue as separate kernels, of any device. */
#ifndef CKPT_KERNELS_PARTS_H
#define CKPT_KERNELS_PARTS_H

#include "ckpt_op.h"

/* linear_gelu and linear_dx_gelu, also 8-bit, as separate kernels.  dx and pre are for the
 * gradient: pre is the index of the input of GELU, after the at most LINEAR_DX_OPERANDS operands of
 * the product. */
enum { LINEAR_DX_OPERANDS = 4 };
struct linear_gelu_parts {
    ckpt_kernel product, gelu, dx;
    int pre;
};
int linear_gelu_by_parts(const struct ckpt_kernel_args *a, const struct linear_gelu_parts *parts);
int linear_dx_gelu_by_parts(const struct ckpt_kernel_args *a,
                            const struct linear_gelu_parts *parts);

/* linear_gated and linear_dx_gated as separate kernels; silu_dx is for the gradient.  With h but no
 * up, or gradients but no h, they need a matrix like gate, linear_gated_scratch() bytes, before the
 * workspace of the product, and fail without it. */
enum { GATED_ALIGN = 256 }; /* in bytes: alignment of the workspace after that matrix */
struct linear_gated_parts {
    ckpt_kernel product, silu, mul, silu_dx;
};
int64_t linear_gated_scratch(const struct ckpt_desc *gate);
int linear_gated_by_parts(const struct ckpt_kernel_args *a, const struct linear_gated_parts *parts);
int linear_dx_gated_by_parts(const struct ckpt_kernel_args *a,
                             const struct linear_gated_parts *parts);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix products of linear layers: [..., K] viewed as rows of K. */
#ifndef CKPT_SHAPES_LINEAR_H
#define CKPT_SHAPES_LINEAR_H

#include "shapes/gemm.h"

/* Rows of a tensor viewed as a matrix: the product of all axes but the last. */
int64_t linear_rows(const struct ckpt_desc *x);

/* The products, without data pointers. */
struct gemm linear_gemm(const struct ckpt_desc *x, const struct ckpt_desc *w);
struct gemm linear_dx_gemm(const struct ckpt_desc *dy, const struct ckpt_desc *w);
struct gemm linear_dw_gemm(const struct ckpt_desc *dy, const struct ckpt_desc *x,
                           enum ckpt_dtype dtype);

/* c = a b^T with 8-bit operands; in: qa [.., K], its scale, qb [N, K], its scale. */
struct gemm fp8_gemm(const struct ckpt_view *in, enum ckpt_dtype dtype);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix product as every device sees it: sizes, operands, what is added. */
#ifndef CKPT_SHAPES_GEMM_H
#define CKPT_SHAPES_GEMM_H

#include "ckpt_op.h"

/* Writes rows [row, row + n_rows) and columns [col, col + n_cols) of a matrix to dst, dense. */
typedef void (*gemm_fill)(const void *ctx, float *dst, int64_t row, int64_t col, int64_t n_rows,
                          int64_t n_cols);

/*
 * A row-major operand; transposed: stored as its transpose.  With `fill` it is not stored: fill
 * produces its blocks.
 *
 * 8-bit values are multiplied by their scale, a power of two for the whole matrix.
 */
struct gemm_operand {
    const void *data;
    enum ckpt_dtype dtype;
    bool transposed;
    int64_t ld; /* pitch of the stored rows in elements; 0: dense */
    const float *scale;
    gemm_fill fill;
    const void *ctx; /* argument of fill */
};

/* c [rows, cols] = a [rows, inner] b [inner, cols] + bias [cols] + addend, or accumulated into
 * c. */
struct gemm {
    int64_t rows, cols, inner;
    /* 0, or a divisor of rows: each unit of this many rows is divided alike and separately, so its
     * bits do not depend on the number of units. */
    int64_t unit;
    struct gemm_operand a, b;
    void *c;
    enum ckpt_dtype c_dtype;
    bool accumulate;    /* add to c; requires fp32 c and no bias */
    bool short_sums;    /* 8-bit operands: partial sums may keep 14 bits, see fp8.h */
    const void *bias;   /* in the dtype of c, or NULL */
    const void *addend; /* matrix like c that is added to the product, or NULL */
};

#endif

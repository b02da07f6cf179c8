/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products over all cores: fixed tiles, one OpenBLAS call (of one thread) per tile. */
#ifndef CKPT_CPU_GEMM_H
#define CKPT_CPU_GEMM_H

#include "ckpt_op.h"

/* Writes rows [row, row + n_rows) and columns [col, col + n_cols) of a matrix to dst, dense. */
typedef void (*gemm_fill)(const void *ctx, float *dst, int64_t row, int64_t col, int64_t n_rows,
                          int64_t n_cols);

/* What a scale of an 8-bit operand is for: all of it, 128 elements along the summed axis, or 128 x
 * 128. */
enum gemm_scaling { SCALE_ALL, SCALE_ROWS, SCALE_BLOCKS };

/* A row-major matrix; transposed: it is stored the other way round.  With fill it is not stored:
 * its blocks are asked for.  Of 8-bit dtypes the values are those stored times their scale, a power
 * of two: for SCALE_ROWS scale[k / 128][i], for SCALE_BLOCKS scale[i / 128][k / 128], k along the
 * summed axis, which is dense. */
struct gemm_operand {
    const void *data;
    enum ckpt_dtype dtype;
    bool transposed;
    int64_t ld; /* elements from row to row as it is stored; 0: dense */
    const float *scale;
    enum gemm_scaling scaling;
    int64_t scale_ld; /* from the first of a row of scales to that of the next */
    gemm_fill fill;
    const void *ctx; /* of fill */
};

/* c [rows, cols] = a [rows, inner] b [inner, cols] + bias [cols], or added to c. */
struct gemm {
    int64_t rows, cols, inner;
    /* 0, or a divisor of rows: every unit of so many rows is cut alike and apart from the others,
     * so that its bits do not depend on how many units there are. */
    int64_t unit;
    struct gemm_operand a, b;
    void *c;
    enum ckpt_dtype c_dtype;
    bool accumulate;    /* only where c is fp32 and there is no bias */
    bool short_sums;    /* of 8-bit operands: sums may keep 14 bits on the way, see fp8.h */
    const void *bias;   /* of c's dtype, or NULL */
    const void *addend; /* a matrix like c that is added to the product, or NULL */
};

/* Scratch bytes of a product; sizes and dtypes of g are looked at, and whether there is a fill. */
int64_t gemm_workspace(const struct gemm *g);

void gemm_run(const struct gemm *g, void *workspace);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of x and, in the same pass, of one or two vectors that stand still along some axes of
 * x: sums over the rows that share a vector, made of fixed chunks of rows added in order.
 */
#ifndef CKPT_CPU_ROW_SUMS_H
#define CKPT_CPU_ROW_SUMS_H

#include "rows.h"

#define ROW_SUMS_BLOCK 64 /* rows added in fp32 before the sum moves to the next level */

/*
 * Sums of a leaf over the rows of one run, c columns from a first one.  run: x, dy, the vector
 * (scale or gate), dx, the sums of vector 0 and 1, then what else the kernel reads of each row.
 */
struct row_sums {
    float *first, *second;
    int64_t width; /* of whole rows */
};

/* At most ROW_SUMS_BLOCK rows. */
typedef void (*row_sums_leaf)(const struct row_run *run, int64_t column, int64_t c, bool half,
                              bool dy_half, const struct row_sums *sums);

/* x: the operand of dx; v: the vector; in[0] is dy, out[0] is dx, the n_sums sums follow; more:
 * n_more further operands. */
int row_sums_backward(const struct ckpt_kernel_args *a, const struct ckpt_view *x,
                      const struct ckpt_view *v, int n_more, const struct ckpt_view *const *more,
                      int n_sums, row_sums_leaf leaf);

#endif

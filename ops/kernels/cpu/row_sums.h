/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of x and, in the same pass, of one or two vectors that broadcast along some axes of x.
 * A vector's gradient is a sum over the rows that share it, made of fixed chunks of rows added in
 * order.
 */
#ifndef CKPT_CPU_ROW_SUMS_H
#define CKPT_CPU_ROW_SUMS_H

#include "rows.h"

#define ROW_SUMS_BLOCK 64 /* rows added in fp32 before the sum moves to the next level */

/*
 * Where a leaf adds its sums over the rows of one run, for c columns.  run: x, dy, the vector
 * (scale or gate), dx, the sums of vectors 0 and 1, then further operands of the kernel.
 */
struct row_sums {
    float *first, *second;
    int64_t width; /* elements of a whole row */
};

/* run has at most ROW_SUMS_BLOCK rows. */
typedef void (*row_sums_leaf)(const struct row_run *run, int64_t column, int64_t c, bool half,
                              bool dy_half, const struct row_sums *sums);

/* x: the operand of dx; v: the vector.  in[0] is dy, out[0] is dx, followed by n_sums sums; more:
 * n_more further operands. */
int row_sums_backward(const struct ckpt_kernel_args *a, const struct ckpt_view *x,
                      const struct ckpt_view *v, int n_more, const struct ckpt_view *const *more,
                      int n_sums, row_sums_leaf leaf);

#endif

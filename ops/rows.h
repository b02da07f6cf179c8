/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that work row by row: the last axis is dense, the other axes have any strides.
 *
 * A struct rows walks the outer axes of several operands together.  Axes are put in the memory
 * order of the first operand and merged where every operand allows it, so that a kernel gets long
 * runs of rows with one constant step per operand.  CUDA kernels take it as a parameter.
 */
#ifndef CKPT_OPS_ROWS_H
#define CKPT_OPS_ROWS_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROWS_OPERANDS 8

struct rows {
    int ndim, n;   /* axes, operands */
    int64_t count; /* of rows */
    int64_t size[CKPT_MAX_DIMS];
    int64_t step[ROWS_OPERANDS][CKPT_MAX_DIMS]; /* bytes */
    char *base[ROWS_OPERANDS];
};

/* n rows; row i of operand k starts at at[k] + i * step[k]. */
struct row_run {
    int64_t n;
    char *at[ROWS_OPERANDS];
    int64_t step[ROWS_OPERANDS];
};

/* Every axis of x but the last; x becomes operand 0. */
void rows_begin(struct rows *r, const struct ckpt_view *x);

/* Adds an operand with the same outer axes; where its size is 1 it stands still.  Returns its
 * number. */
int rows_operand(struct rows *r, const struct ckpt_view *v);

/* One vector [D] as an operand of rows with so many axes: it stands still on all but the last. */
static inline struct ckpt_view rows_vector(struct ckpt_view v, int ndim)
{
    struct ckpt_desc d = v.desc;
    v.desc.ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        v.desc.shape[i] = i == ndim - 1 ? d.shape[0] : 1;
        v.desc.stride[i] = i == ndim - 1 ? d.stride[0] : d.shape[0];
    }
    return v;
}

/* Adds an operand that is not there: all its rows start at NULL. */
int rows_absent(struct rows *r);

/* Sorts and merges the axes. */
void rows_finish(struct rows *r);

/* The same, but axes on which operand k stands still come last.  Returns how many consecutive rows
 * share one row of operand k. */
int64_t rows_finish_reduction(struct rows *r, int k);

/* Finds rows row, row + 1, ... as far as one step per operand reaches them, at most up to end. */
void rows_run(const struct rows *r, int64_t row, int64_t end, struct row_run *run);

#ifdef __cplusplus
}
#endif
#endif

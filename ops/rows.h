/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row-wise kernels: the last axis is dense, the other axes have any strides.  A struct rows
 * iterates over the outer axes of several operands together.  Axes are sorted in the memory order
 * of the first operand and merged where every operand permits it, so a kernel gets long runs of
 * rows with one constant step per operand.  CUDA kernels take it as a parameter.
 */
#ifndef CKPT_OPS_ROWS_H
#define CKPT_OPS_ROWS_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROWS_OPERANDS 8

struct rows {
    int ndim, n;   /* number of outer axes, of operands */
    int64_t count; /* number of rows */
    int64_t size[CKPT_MAX_DIMS];
    int64_t step[ROWS_OPERANDS][CKPT_MAX_DIMS]; /* in bytes */
    char *base[ROWS_OPERANDS];
};

/* n rows; row i of operand k starts at at[k] + i * step[k]. */
struct row_run {
    int64_t n;
    char *at[ROWS_OPERANDS];
    int64_t step[ROWS_OPERANDS];
};

/* Starts with the axes of x except the last; x becomes operand 0. */
void rows_begin(struct rows *r, const struct ckpt_view *x);

/* Adds an operand with the same outer axes; it broadcasts where its size is 1.  Returns its
 * index. */
int rows_operand(struct rows *r, const struct ckpt_view *v);

/* A vector [D] as an operand of rows with ndim axes: it broadcasts on all but the last. */
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

/* Adds an absent operand: all its rows are NULL. */
int rows_absent(struct rows *r);

/* Sorts and merges the axes. */
void rows_finish(struct rows *r);

/* The same, but axes on which operand k broadcasts come last.  Returns the number of consecutive
 * rows that share one row of operand k. */
int64_t rows_finish_reduction(struct rows *r, int k);

/* Returns the longest run from `row`, up to `end`, that one step per operand describes. */
void rows_run(const struct rows *r, int64_t row, int64_t end, struct row_run *run);

#ifdef __cplusplus
}
#endif
#endif

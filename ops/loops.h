/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over views of any strides: which axes to walk, and where.  Host side of both devices. */
#ifndef CKPT_LOOPS_H
#define CKPT_LOOPS_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOOPS_OPERANDS 13 /* of an expression: the result, what it reads, leaves with a place */

/*
 * A nest of loops over a few operands, outermost first.  stride[k][i] is what operand k moves, in
 * elements, per step of axis i; 0 where it is broadcast.  There is always at least one axis.
 */
struct loops {
    int ndim, n;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t stride[LOOPS_OPERANDS][CKPT_MAX_DIMS];
};

/*
 * Loops over the shape of d[0]; the others are broadcast to it, aligned at the last axis.  The
 * order is that of d[0] in memory; axes of size 1 are left out and adjacent axes that every operand
 * walks as one are merged.
 */
void loops_init(struct loops *l, int n, const struct ckpt_desc *const *d);

/* The element offsets of every operand at position i of the first `axes` axes, row-major. */
void loops_seek(const struct loops *l, int axes, int64_t i, int64_t *offset);

/* Product of shape[from .. to - 1]. */
int64_t loops_count(const struct loops *l, int from, int to);

/* The last axis along which operand k is dense, or -1. */
int loops_dense_axis(const struct loops *l, int k);

/* Makes axis i the last but one; the order of the others stays.  i is not the last. */
void loops_move_axis(struct loops *l, int i);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Loop nests over views of any strides: axes, sizes and offsets.  Host code of both devices. */
#ifndef CKPT_LOOPS_H
#define CKPT_LOOPS_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOOPS_OPERANDS 13 /* of an expression: result, inputs, positioned leaves */

/*
 * A loop nest over several operands, outermost axis first.  stride[k][i] is the stride of operand k
 * on axis i in elements, 0 where it broadcasts.  There is always at least one axis.
 */
struct loops {
    int ndim, n;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t stride[LOOPS_OPERANDS][CKPT_MAX_DIMS];
};

/*
 * Loops over the shape of d[0].  The other operands broadcast to it, aligned at the last axis.
 * Axes are sorted by the strides of d[0], axes of size 1 are dropped, and adjacent axes that are
 * contiguous for every operand are merged.
 */
void loops_init(struct loops *l, int n, const struct ckpt_desc *const *d);

/* The element offset of every operand at row-major position i of the first `axes` axes. */
void loops_seek(const struct loops *l, int axes, int64_t i, int64_t *offset);

/* The number of positions of the first `axes` axes. */
int64_t loops_count(const struct loops *l, int axes);

/* The innermost axis with stride 1 in operand 1, or -1. */
int loops_dense_axis(const struct loops *l);

/* Makes axis i, which must not be the last, the last but one.  The others keep their order. */
void loops_move_axis(struct loops *l, int i);

#ifdef __cplusplus
}
#endif
#endif

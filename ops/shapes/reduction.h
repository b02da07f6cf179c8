/* SPDX-License-Identifier: Apache-2.0 */
/* Iteration over a tensor that is summed over some axes.  Host code of both devices. */
#ifndef CKPT_SHAPES_REDUCTION_H
#define CKPT_SHAPES_REDUCTION_H

#include "loops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct reduction {
    struct loops kept;       /* operand 0: the results, dense; operand 1: x */
    struct loops reduced;    /* operand 0: x */
    int64_t results, length; /* number of results, and of elements per result */
    bool columns; /* the last kept axis has the smaller stride in x: add rows to rows of sums */
};

/* x is summed to the shape of y, whose axes align with the last axes of x. */
void reduction_init(struct reduction *r, const struct ckpt_desc *x, const struct ckpt_desc *y);

#ifdef __cplusplus
}
#endif
#endif

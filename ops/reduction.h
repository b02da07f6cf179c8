/* SPDX-License-Identifier: Apache-2.0 */
/* How a sum over some axes of a tensor walks it.  Host side of both devices. */
#ifndef CKPT_OPS_REDUCTION_H
#define CKPT_OPS_REDUCTION_H

#include "loops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct reduction {
    struct loops kept;       /* operand 0: the results, dense; operand 1: x */
    struct loops reduced;    /* over x alone */
    int64_t results, length; /* products of their shapes */
    bool columns; /* the last kept axis is the denser one in x: add rows to rows of sums */
};

/* x is summed to the shape of y, whose axes are aligned with its last ones. */
void reduction_init(struct reduction *r, const struct ckpt_desc *x, const struct ckpt_desc *y);

#ifdef __cplusplus
}
#endif
#endif

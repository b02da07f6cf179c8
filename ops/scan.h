/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of softmax and cumsum. */
#ifndef CKPT_OPS_SCAN_H
#define CKPT_OPS_SCAN_H

#include "ckpt_op.h"

/* softmax, softmax_dx: over the last axis. */
struct softmax_attr {
    int32_t log; /* 1: log-softmax */
};

/* cumsum: along n of a dense [outer, n, inner]. */
struct cumsum_attr {
    int32_t axis, reverse; /* reverse: from the end */
};

struct cumsum_shape {
    int64_t outer, n, inner;
};

static inline struct cumsum_shape cumsum_shape_of(const struct ckpt_desc *x, int axis)
{
    struct cumsum_shape s = {1, 1, 1};
    for (int i = 0; i < x->ndim; i++)
        *(i < axis ? &s.outer : i == axis ? &s.n : &s.inner) *= x->shape[i];
    return s;
}

#endif

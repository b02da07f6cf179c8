/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookup along an axis by i32 indices, and its adjoint.  Dense operands are viewed as [outer, size,
 * inner] and [outer, n, inner]: n of `size` positions on the axis are selected.
 */
#ifndef CKPT_OPS_INDEX_SHAPE_H
#define CKPT_OPS_INDEX_SHAPE_H

#include "ckpt_op.h"

struct index_attr {
    int64_t axis;
    int64_t size; /* adjoint: size of the axis in the result; otherwise 0 */
    int64_t skip; /* index without a gradient (padding), or -1 */
};

struct index_shape {
    int64_t outer, size, n, inner;
};

/* x [A, size, B] and index [...]: the same indices for all of A and B. */
static inline struct index_shape index_rows(const struct ckpt_desc *x,
                                            const struct ckpt_desc *index, int64_t axis,
                                            int64_t size, int64_t axes)
{
    struct index_shape s = {1, size, 1, 1};
    for (int i = 0; i < index->ndim; i++)
        s.n *= index->shape[i];
    for (int i = 0; i < x->ndim; i++)
        if (i < axis)
            s.outer *= x->shape[i];
        else if (i >= axis + axes)
            s.inner *= x->shape[i];
    return s;
}

/* index [A, n, B]: separate indices for every element of A and B. */
static inline struct index_shape index_lanes(const struct ckpt_desc *index, int64_t axis,
                                             int64_t size)
{
    struct index_shape s = {1, size, index->shape[axis], 1};
    for (int i = 0; i < index->ndim; i++)
        if (i < axis)
            s.outer *= index->shape[i];
        else if (i > axis)
            s.inner *= index->shape[i];
    return s;
}

#endif

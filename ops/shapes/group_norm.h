/* SPDX-License-Identifier: Apache-2.0 */
/* Group norm: attributes, and x [n, ..., c] viewed as samples, rows and channels. */
#ifndef CKPT_SHAPES_GROUP_NORM_H
#define CKPT_SHAPES_GROUP_NORM_H

#include "core/base.h"

struct group_norm_attr {
    int32_t groups;
    float eps;
    int32_t silu; /* 1: SiLU follows */
};

struct group_norm_shape {
    int64_t n, rows, c, groups, width; /* width: channels per group */
};

static inline struct group_norm_shape group_norm_shape(const struct ckpt_desc *x,
                                                       const struct group_norm_attr *attr)
{
    struct group_norm_shape s = {.n = x->shape[0], .c = x->shape[x->ndim - 1]};
    s.rows = desc_numel(x) / s.n / s.c;
    s.groups = attr->groups;
    s.width = s.c / s.groups;
    return s;
}

/* The same with each row along the first spatial axis as a sample. */
static inline struct group_norm_shape group_norm_row_shape(const struct ckpt_desc *x,
                                                           const struct group_norm_attr *attr)
{
    struct group_norm_shape s = group_norm_shape(x, attr);
    s.n *= x->shape[1];
    s.rows /= x->shape[1];
    return s;
}

/* The moments of one row and group.  Merging them gives the mean and 1 / sqrt(var + eps). */
enum { MOMENT_MEAN, MOMENT_SQUARES, MOMENT_COUNT, MOMENTS };

#endif

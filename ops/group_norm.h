/* SPDX-License-Identifier: Apache-2.0 */
/* Group norm: attributes, and x [n, ..., c] seen as samples of rows of channels. */
#ifndef CKPT_OPS_GROUP_NORM_H
#define CKPT_OPS_GROUP_NORM_H

#include "core/base.h"

struct group_norm_attr {
    int32_t groups;
    float eps;
    int32_t silu; /* is the result followed by SiLU? */
};

struct group_norm_shape {
    int64_t n, rows, c, groups, width; /* width: channels of a group */
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

/* Rows along the first spatial axis as samples of their own. */
static inline struct group_norm_shape group_norm_row_shape(const struct ckpt_desc *x,
                                                           const struct group_norm_attr *attr)
{
    struct group_norm_shape s = group_norm_shape(x, attr);
    s.n *= x->shape[1];
    s.rows /= x->shape[1];
    return s;
}

/* What is known of a row of a group; all are joined to its mean and 1 / sqrt(var + eps). */
enum { MOMENT_MEAN, MOMENT_SQUARES, MOMENT_COUNT, MOMENTS };

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch of the CPU kernels. */
int64_t cpu_group_norm_workspace(const struct group_norm_shape *s);
int64_t cpu_group_norm_dx_workspace(const struct group_norm_shape *s);
int64_t cpu_group_norm_apply_workspace(const struct group_norm_shape *s);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Nearest-neighbour upsampling: x [n, size..., c] becomes [n, (size factor)..., c]. */
#ifndef CKPT_OPS_UPSAMPLE_H
#define CKPT_OPS_UPSAMPLE_H

#include "core/base.h"

/* Always three spatial axes, outermost first; absent ones have factor 1. */
struct upsample_attr {
    int64_t factor[3];
};

struct upsample_shape {
    int64_t n, c;
    int64_t size[3], factor[3]; /* size: of x */
    int64_t step[3];            /* positions of the result per plane and per row */
};

/* Computed from the shape of x. */
static inline struct upsample_shape upsample_shape(const struct ckpt_desc *x,
                                                   const struct upsample_attr *attr)
{
    struct upsample_shape s = {.n = x->shape[0], .c = x->shape[x->ndim - 1], .step = {1, 1, 1}};
    int absent = 5 - x->ndim;
    for (int i = 0; i < 3; i++) {
        s.size[i] = i < absent ? 1 : x->shape[1 + i - absent];
        s.factor[i] = attr->factor[i];
    }
    s.step[1] = s.size[2] * s.factor[2];
    s.step[0] = s.size[1] * s.factor[1] * s.step[1];
    return s;
}

/* Number of positions of x, and of copies of each in the result. */
static inline int64_t upsample_places(const struct upsample_shape *s)
{
    return s->n * s->size[0] * s->size[1] * s->size[2];
}

static inline int64_t upsample_copies(const struct upsample_shape *s)
{
    return s->factor[0] * s->factor[1] * s->factor[2];
}

#endif

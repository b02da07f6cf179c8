/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling and feature distances: attributes and sizes, for shape rules and kernels. */
#ifndef CKPT_OPS_PERCEPTUAL_H
#define CKPT_OPS_PERCEPTUAL_H

#include "core/base.h"

#define POOL_TAPS 64 /* of a window, at most */

/* Always three spatial axes, outermost first; the missing ones have windows of 1. */
struct pool_attr {
    int64_t window[3];
};

struct pool_shape {
    int64_t n, c;
    int64_t from[3], size[3], window[3]; /* sizes of x and of the result */
};

/* From the shape of x. */
static inline struct pool_shape pool_shape(const struct ckpt_desc *x, const struct pool_attr *attr)
{
    struct pool_shape s = {.n = x->shape[0], .c = x->shape[x->ndim - 1]};
    int absent = 5 - x->ndim;
    for (int i = 0; i < 3; i++) {
        s.from[i] = i < absent ? 1 : x->shape[1 + i - absent];
        s.window[i] = attr->window[i];
        s.size[i] = s.from[i] / s.window[i];
    }
    return s;
}

/* Places of the result, and how many of x are in a window. */
static inline int64_t pool_places(const struct pool_shape *s)
{
    return s->n * s->size[0] * s->size[1] * s->size[2];
}

static inline int64_t pool_taps(const struct pool_shape *s)
{
    return s->window[0] * s->window[1] * s->window[2];
}

/* Are there places of x that fill no window? */
static inline bool pool_leaves_some(const struct pool_shape *s)
{
    for (int i = 0; i < 3; i++)
        if (s->size[i] * s->window[i] != s->from[i])
            return true;
    return false;
}

/* A feature distance is summed in double, so many rows to a partial sum. */
#define DISTANCE_ROWS 256

static inline int64_t distance_chunks(int64_t rows)
{
    return (rows + DISTANCE_ROWS - 1) / DISTANCE_ROWS;
}

#endif

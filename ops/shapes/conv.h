/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions: attributes and sizes, for the shape rules and the kernels of all devices. */
#ifndef CKPT_SHAPES_CONV_H
#define CKPT_SHAPES_CONV_H

#include "ckpt_op.h"

/* Always three spatial axes, outermost first.  With one or two axes the leading ones have size 1
 * and no padding. */
struct conv_attr {
    int64_t stride[3], before[3], after[3];
    int64_t size[3]; /* of the result (conv_dx, conv_transpose), of the kernel (conv_dw); conv: 0 */
    int64_t invariant; /* conv: see struct ckpt_conv_spec; 0 or 1 */
    int64_t dilation[3], groups;
    int64_t more[3]; /* conv_transpose: output padding beyond what cancels padding at the end */
};

/* x [n, in..., c], w [k, kernel..., c / groups], y [n, out..., k] */
struct conv_shape {
    int64_t n, c, k;
    int64_t in[3], kernel[3], out[3];
    int64_t stride[3], before[3], after[3];
    int64_t invariant; /* rows [out[2], k] of y do not depend on the number of rows */
    int64_t dilation[3], groups;
};

/*
 * The im2col matrix of one group.  A row is a position of a sample, a column is a tap and a
 * channel.  Along an axis, tap t of position p reads source index
 * (p scale + shift + t turn) / divide, or zero if that is not an integer or out of range.
 */
struct conv_gather {
    int64_t channels, pitch; /* of the group; elements between adjacent source positions */
    int64_t source[3], positions[3], taps[3];
    int64_t scale[3], shift[3], turn[3], divide[3];
};

#ifdef __cplusplus
extern "C" {
#endif

/* The spatial sizes of a tensor [n, ..., c], extended to three axes with leading 1s. */
void conv_spatial(const struct ckpt_desc *d, int64_t *size);

/* From the operands of each op: {x, w}, {dy, w}, {dy, x}. */
struct conv_shape conv_shape_forward(const struct ckpt_desc *in, const struct conv_attr *attr);
struct conv_shape conv_shape_dx(const struct ckpt_desc *in, const struct conv_attr *attr);
struct conv_shape conv_shape_dw(const struct ckpt_desc *in, const struct conv_attr *attr);

/* The gather of x for the positions of y, and of dy for the positions of x, for the first group. */
struct conv_gather conv_gather_x(const struct conv_shape *s);
struct conv_gather conv_gather_dy(const struct conv_shape *s);

#ifdef __cplusplus
}
#endif

static inline int64_t conv_volume(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

/* Extent of the dilated kernel along an axis, first to last tap inclusive. */
static inline int64_t conv_extent(const struct conv_shape *s, int axis)
{
    return (s->kernel[axis] - 1) * s->dilation[axis] + 1;
}

/* Channels of x and of y in one group. */
static inline int64_t conv_group_c(const struct conv_shape *s)
{
    return s->c / s->groups;
}

static inline int64_t conv_group_k(const struct conv_shape *s)
{
    return s->k / s->groups;
}

/* One input channel per group: sums over taps instead of matrix products. */
static inline bool conv_is_depthwise(const struct conv_shape *s)
{
    return s->groups > 1 && s->groups == s->c;
}

/* The source index that tap t of a position reads along an axis, or -1. */
static inline int64_t conv_gather_at(const struct conv_gather *g, int axis, int64_t position,
                                     int64_t t)
{
    int64_t at = position * g->scale[axis] + g->shift[axis] + t * g->turn[axis];
    if (at < 0)
        return -1;
    if (g->divide[axis] > 1) {
        if (at % g->divide[axis])
            return -1;
        at /= g->divide[axis];
    }
    return at < g->source[axis] ? at : -1;
}

/* A plain matrix product: one tap, every position, no padding. */
static inline bool conv_is_pointwise(const struct conv_shape *s)
{
    for (int i = 0; i < 3; i++)
        if (s->kernel[i] != 1 || s->stride[i] != 1 || s->in[i] != s->out[i])
            return false;
    return true;
}

#endif

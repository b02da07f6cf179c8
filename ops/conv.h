/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions: attributes and sizes, for shape rules and the kernels of every device. */
#ifndef CKPT_OPS_CONV_H
#define CKPT_OPS_CONV_H

#include "ckpt_op.h"

/* Always three spatial axes, outermost first; of one or two the first are missing: size 1, no
 * padding. */
struct conv_attr {
    int64_t stride[3], before[3], after[3];
    int64_t size[3];   /* conv_dx, conv_transpose: of x; conv_dw: of the kernel; conv: zeros */
    int64_t invariant; /* conv: see struct ckpt_conv_spec; 0 or 1 */
    int64_t dilation[3], groups;
    int64_t more[3]; /* conv_transpose: what of the output padding the far end does not give */
};

/* x [n, in..., c], w [k, kernel..., c / groups], y [n, out..., k] */
struct conv_shape {
    int64_t n, c, k;
    int64_t in[3], kernel[3], out[3];
    int64_t stride[3], before[3], after[3];
    int64_t invariant; /* rows [out[2], k] of y do not depend on how many there are */
    int64_t dilation[3], groups;
};

/*
 * The matrix of what the taps see of one group.  Row: a position of every sample; column: tap and
 * channel.  Along an axis the tap t of position p reads the source at
 * (p scale + shift + t turn) / divide, and zero where that is no whole number or outside.
 */
struct conv_gather {
    int64_t channels, pitch; /* of the group; from place to place of the source */
    int64_t source[3], positions[3], taps[3];
    int64_t scale[3], shift[3], turn[3], divide[3];
};

#ifdef __cplusplus
extern "C" {
#endif

/* From the operands of each op: {x, w}, {dy, w}, {dy, x}. */
struct conv_shape conv_shape_forward(const struct ckpt_desc *in, const struct conv_attr *attr);
struct conv_shape conv_shape_dx(const struct ckpt_desc *in, const struct conv_attr *attr);
struct conv_shape conv_shape_dw(const struct ckpt_desc *in, const struct conv_attr *attr);

/* x as the positions of y see it, and dy as those of x do; of the first group. */
struct conv_gather conv_gather_x(const struct conv_shape *s);
struct conv_gather conv_gather_dy(const struct conv_shape *s);

/* h, mixed with what of the attributes costs time and does not follow from the shapes. */
uint64_t conv_hash(uint64_t h, const struct conv_attr *a);

#ifdef __cplusplus
}
#endif

static inline int64_t conv_volume(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

/* Places from the first tap to the last one, both included. */
static inline int64_t conv_extent(const struct conv_shape *s, int axis)
{
    return (s->kernel[axis] - 1) * s->dilation[axis] + 1;
}

/* Of one group: channels of x and of y. */
static inline int64_t conv_group_c(const struct conv_shape *s)
{
    return s->c / s->groups;
}

static inline int64_t conv_group_k(const struct conv_shape *s)
{
    return s->k / s->groups;
}

/* One channel of x to a group: sums of taps, no products of matrices. */
static inline bool conv_is_depthwise(const struct conv_shape *s)
{
    return s->groups > 1 && s->groups == s->c;
}

/* Where tap t of a position reads along an axis, or -1. */
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

/* A product of matrices as they stand: one tap, every position, no padding. */
static inline bool conv_is_pointwise(const struct conv_shape *s)
{
    for (int i = 0; i < 3; i++)
        if (s->kernel[i] != 1 || s->stride[i] != 1 || s->in[i] != s->out[i])
            return false;
    return true;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions: attributes and sizes, for shape rules and the kernels of every device. */
#ifndef CKPT_OPS_CONV_H
#define CKPT_OPS_CONV_H

#include "ckpt_op.h"

/* Always three spatial axes, outermost first; of two the first is missing: size 1, no padding. */
struct conv_attr {
    int64_t stride[3], before[3], after[3];
    int64_t size[3]; /* conv_dx: of x; conv_dw: of the kernel; conv: zeros */
    int64_t invariant; /* conv: see struct ckpt_conv_spec; 0 or 1 */
};

/* x [n, in..., c], w [k, kernel..., c], y [n, out..., k] */
struct conv_shape {
    int64_t n, c, k;
    int64_t in[3], kernel[3], out[3];
    int64_t stride[3], before[3], after[3];
    int64_t invariant; /* rows [out[2], k] of y do not depend on how many there are */
};

/*
 * The matrix of what the taps see.  Row: a position of every sample; column: tap and channel.
 * Along an axis the tap t of position p reads the source at (p scale + shift + t turn) / divide,
 * and zero where that is no whole number or outside.
 */
struct conv_gather {
    int64_t channels;
    int64_t source[3], positions[3], taps[3];
    int64_t scale[3], shift[3], turn, divide[3];
};

#ifdef __cplusplus
extern "C" {
#endif

/* From the operands of each op: {x, w}, {dy, w}, {dy, x}. */
struct conv_shape conv_shape_forward(const struct ckpt_desc *in, const struct conv_attr *attr);
struct conv_shape conv_shape_dx(const struct ckpt_desc *in, const struct conv_attr *attr);
struct conv_shape conv_shape_dw(const struct ckpt_desc *in, const struct conv_attr *attr);

/* x as the positions of y see it, and dy as those of x do. */
struct conv_gather conv_gather_x(const struct conv_shape *s);
struct conv_gather conv_gather_dy(const struct conv_shape *s);

/* Scratch of the CPU kernels. */
int64_t cpu_conv_workspace(const struct conv_shape *s, enum ckpt_dtype dtype);
int64_t cpu_conv_dx_workspace(const struct conv_shape *s, enum ckpt_dtype dtype);
int64_t cpu_conv_dw_workspace(const struct conv_shape *s, enum ckpt_dtype dtype);

#ifdef __cplusplus
}
#endif

static inline int64_t conv_volume(const int64_t *size)
{
    return size[0] * size[1] * size[2];
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

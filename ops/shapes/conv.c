/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of convolutions: see conv.h. */
#include "shapes/conv.h"
#include <string.h>

void conv_spatial(const struct ckpt_desc *d, int64_t *size)
{
    int absent = 5 - d->ndim;
    for (int i = 0; i < 3; i++)
        size[i] = i < absent ? 1 : d->shape[1 + i - absent];
}

static int64_t last_size(const struct ckpt_desc *d)
{
    return d->shape[d->ndim - 1];
}

static struct conv_shape shape_of(const struct conv_attr *attr)
{
    struct conv_shape s = {.n = 0};
    memcpy(s.stride, attr->stride, sizeof s.stride);
    memcpy(s.before, attr->before, sizeof s.before);
    memcpy(s.after, attr->after, sizeof s.after);
    memcpy(s.dilation, attr->dilation, sizeof s.dilation);
    s.groups = attr->groups;
    return s;
}

struct conv_shape conv_shape_forward(const struct ckpt_desc *in, const struct conv_attr *attr)
{
    struct conv_shape s = shape_of(attr);
    s.n = in[0].shape[0];
    s.c = last_size(&in[0]);
    s.k = in[1].shape[0];
    s.invariant = attr->invariant;
    conv_spatial(&in[0], s.in);
    conv_spatial(&in[1], s.kernel);
    for (int i = 0; i < 3; i++)
        s.out[i] = (s.in[i] + s.before[i] + s.after[i] - conv_extent(&s, i)) / s.stride[i] + 1;
    return s;
}

struct conv_shape conv_shape_dx(const struct ckpt_desc *in, const struct conv_attr *attr)
{
    struct conv_shape s = shape_of(attr);
    s.n = in[0].shape[0];
    s.c = last_size(&in[1]) * s.groups;
    s.k = in[1].shape[0];
    memcpy(s.in, attr->size, sizeof s.in);
    conv_spatial(&in[1], s.kernel);
    conv_spatial(&in[0], s.out);
    return s;
}

struct conv_shape conv_shape_dw(const struct ckpt_desc *in, const struct conv_attr *attr)
{
    struct conv_shape s = shape_of(attr);
    s.n = in[0].shape[0];
    s.c = last_size(&in[1]);
    s.k = last_size(&in[0]);
    conv_spatial(&in[1], s.in);
    memcpy(s.kernel, attr->size, sizeof s.kernel);
    conv_spatial(&in[0], s.out);
    return s;
}

struct conv_gather conv_gather_x(const struct conv_shape *s)
{
    struct conv_gather g = {.channels = conv_group_c(s), .pitch = s->c};
    for (int i = 0; i < 3; i++) {
        g.source[i] = s->in[i];
        g.positions[i] = s->out[i];
        g.taps[i] = s->kernel[i];
        g.scale[i] = s->stride[i];
        g.shift[i] = -s->before[i];
        g.turn[i] = s->dilation[i];
        g.divide[i] = 1;
    }
    return g;
}

/* Every tap of every position is gathered; with stride s only 1 of s taps hits an element of dy. */
struct conv_gather conv_gather_dy(const struct conv_shape *s)
{
    struct conv_gather g = {.channels = conv_group_k(s), .pitch = s->k};
    for (int i = 0; i < 3; i++) {
        g.source[i] = s->out[i];
        g.positions[i] = s->in[i];
        g.taps[i] = s->kernel[i];
        g.scale[i] = 1;
        g.shift[i] = s->before[i];
        g.turn[i] = -s->dilation[i];
        g.divide[i] = s->stride[i];
    }
    return g;
}

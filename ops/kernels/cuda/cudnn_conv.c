/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions as cuDNN graphs, in channels-last layout.  Asymmetric padding needs no copy. */
#include "kernels/cuda/cudnn_conv.h"

/* Adds a tensor [n, c, size...], channels last in memory. */
static cudnn_tensor add_tensor(struct cudnn_graph *g, const struct cudnn_conv_graph *k, int64_t uid,
                               bool wide, int64_t n, int64_t c, const int64_t *size)
{
    int ndim = (int)k->spatial + 2;
    int64_t stride = c;
    struct cudnn_tensor_spec t = {.uid = uid, .ndim = ndim, .shape = {n, c}, .stride = {0, 1}};
    t.type = k->dtype == CKPT_F32 || wide ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
    for (int i = ndim - 1; i >= 2; i--) {
        t.shape[i] = size[3 - ndim + i];
        t.stride[i] = stride;
        stride *= t.shape[i];
    }
    t.stride[0] = stride;
    return cudnn_graph_tensor(g, &t);
}

static struct cudnn_conv_spec spec_of(const struct cudnn_conv_graph *k)
{
    struct cudnn_conv_spec spec = {.ndim = (int)k->spatial, .beta = k->add ? 1.f : 0.f};
    for (int i = 0; i < spec.ndim; i++) {
        int axis = 3 - spec.ndim + i;
        spec.before[i] = k->s.before[axis];
        spec.after[i] = k->s.after[axis];
        spec.stride[i] = k->s.stride[axis];
        spec.dilation[i] = k->s.dilation[axis];
    }
    return spec;
}

/* cuDNN derives the number of groups from the channels of x and w. */
void cudnn_conv_describe(struct cudnn_graph *g, const void *graph)
{
    static const int64_t one[3] = {1, 1, 1};
    const struct cudnn_conv_graph *k = graph;
    const struct conv_shape *s = &k->s;
    struct cudnn_conv_spec spec = spec_of(k);
    cudnn_tensor x = add_tensor(g, k, CUDNN_CONV_UID_X, false, s->n, s->c, s->in);
    cudnn_tensor w = add_tensor(g, k, CUDNN_CONV_UID_W, false, s->k, conv_group_c(s), s->kernel);
    cudnn_tensor y = add_tensor(g, k, k->bias ? 0 : CUDNN_CONV_UID_Y, k->bias, s->n, s->k, s->out);
    cudnn_graph_conv(g, (enum cudnn_conv_kind)k->kind, &spec, x, w, y);
    if (!k->bias)
        return;
    cudnn_tensor b = add_tensor(g, k, CUDNN_CONV_UID_BIAS, false, 1, s->k, one);
    cudnn_tensor sum = add_tensor(g, k, CUDNN_CONV_UID_Y, false, s->n, s->k, s->out);
    cudnn_graph_pointwise(g, CUDNN_POINTWISE_ADD, y, b, sum);
}

/* If the convolution does nothing along the first axis, folds that axis into the samples. */
static struct conv_shape fold_first_axis(struct conv_shape s)
{
    if (s.kernel[0] != 1 || s.stride[0] != 1 || s.in[0] != s.out[0])
        return s;
    s.n *= s.in[0];
    s.in[0] = s.out[0] = 1;
    return s;
}

struct cudnn_conv_graph cudnn_conv_graph(const struct conv_shape *s, enum ckpt_dtype dtype,
                                         enum cudnn_conv_kind kind)
{
    struct cudnn_conv_graph k = {.s = fold_first_axis(*s), .kind = kind, .dtype = dtype};
    k.spatial = k.s.in[0] == 1 && k.s.out[0] == 1 && k.s.kernel[0] == 1 ? 2 : 3;
    return k;
}

static struct cudnn_conv_graph resized(struct cudnn_conv_graph k, int64_t frames, int64_t side)
{
    struct conv_shape *s = &k.s;
    s->n = 1;
    for (int i = 0; i < 3; i++) {
        s->out[i] = i ? side : frames;
        s->in[i] = (s->out[i] - 1) * s->stride[i] + conv_extent(s, i);
        s->before[i] = s->after[i] = 0;
    }
    return k;
}

/* The first size fills every tile, as the large sizes do that take most of the time. */
void cudnn_conv_like(const struct cudnn_conv_graph *k, struct cudnn_conv_graph like[CUDNN_LIKE])
{
    like[0] = resized(*k, k->spatial == 3 ? 16 : 1, 256);
    like[1] = resized(*k, 1, 16);
}

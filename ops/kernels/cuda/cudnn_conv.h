/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions as cuDNN graphs: the key that describes one, and the ids of its tensors. */
#ifndef CKPT_CUDA_CUDNN_CONV_H
#define CKPT_CUDA_CUDNN_CONV_H

#include "shapes/conv.h"
#include "kernels/cuda/cudnn_graph.h"

/* Ids of the tensors. x, w or y may be a gradient, depending on the kind. */
enum { CUDNN_CONV_UID_X = 1, CUDNN_CONV_UID_W, CUDNN_CONV_UID_Y, CUDNN_CONV_UID_BIAS };

/* No padding bytes: the bytes of the struct are a cache key. */
struct cudnn_conv_graph {
    struct conv_shape s;
    int64_t kind, spatial, dtype;
    int64_t bias; /* y has a bias, which is added before y is rounded */
    int64_t add;  /* adds to the previous content of the result */
};

struct cudnn_conv_graph cudnn_conv_graph(const struct conv_shape *s, enum ckpt_dtype dtype,
                                         enum cudnn_conv_kind kind);

/* The convolutions whose engine an invariant convolution k uses (struct ckpt_conv_spec): the same
 * weights over a picture of one fixed size, and over a small one.  The small size is there to
 * reject engines that would split the sum for it: where such splits are depends on the size.  The
 * scratch that cuda_conv_workspace grants to invariant convolutions has no room for split sums. */
void cudnn_conv_like(const struct cudnn_conv_graph *k, struct cudnn_conv_graph like[CUDNN_LIKE]);

/* The `describe` callback of a recipe whose spec is a struct cudnn_conv_graph. */
void cudnn_conv_describe(struct cudnn_graph *g, const void *graph);

#endif

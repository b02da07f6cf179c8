/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions as cuDNN graphs: what is described, under which names. */
#ifndef CKPT_CUDA_CUDNN_CONV_H
#define CKPT_CUDA_CUDNN_CONV_H

#include "conv.h"
#include "cuda/cudnn_graph.h"

/* Names of the tensors; x, w and y may be gradients, and the kind says which. */
enum { CUDNN_CONV_UID_X = 1, CUDNN_CONV_UID_W, CUDNN_CONV_UID_Y, CUDNN_CONV_UID_BIAS };

/* Without padding: the bytes are a key. */
struct cudnn_conv_graph {
    struct conv_shape s;
    int64_t kind, spatial, dtype;
    int64_t bias; /* of y: added before it is rounded */
    int64_t add;  /* to what the result was */
};

struct cudnn_conv_graph cudnn_conv_graph(const struct conv_shape *s, enum ckpt_dtype dtype,
                                         enum cudnn_conv_kind kind);

/* The convolutions whose engine k takes where it has to be invariant (struct ckpt_conv_spec): the
 * same weights over a picture of one fixed size, and over a small one, where engines that sum in
 * parts would have to.  Such parts are not the same for every size: the scratch that
 * cuda_conv_workspace gives to invariant ones has no room for them. */
void cudnn_conv_like(const struct cudnn_conv_graph *k, struct cudnn_conv_graph like[CUDNN_LIKE]);

/* The description for a recipe whose spec is such a graph. */
void cudnn_conv_describe(struct cudnn_graph *g, const void *graph);

#endif

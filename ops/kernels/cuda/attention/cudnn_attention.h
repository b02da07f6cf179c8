/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as cuDNN graphs: the functions that describe them, and the ids of their tensors. */
#ifndef CKPT_CUDA_CUDNN_ATTENTION_H
#define CKPT_CUDA_CUDNN_ATTENTION_H

#include "kernels/cuda/cudnn_graph.h"

/* The tensors of the graphs; the id by which a tensor is bound is its value plus one. */
enum cudnn_attention_tensor {
    CUDNN_ATTENTION_Q, /* the operands of the op */
    CUDNN_ATTENTION_K,
    CUDNN_ATTENTION_V,
    CUDNN_ATTENTION_O,
    CUDNN_ATTENTION_LSE,
    CUDNN_ATTENTION_D_O, /* from here on backward only */
    CUDNN_ATTENTION_DQ,
    CUDNN_ATTENTION_DK,
    CUDNN_ATTENTION_DV,
    CUDNN_ATTENTION_OPERANDS,
    CUDNN_ATTENTION_SCALE = CUDNN_ATTENTION_OPERANDS, /* a scalar */
    CUDNN_ATTENTION_ONE,                              /* a scalar, 1 */
    CUDNN_ATTENTION_HIDDEN,                           /* a scalar, -infinity */
    CUDNN_ATTENTION_WINDOW,                           /* a scalar, int32 */
    CUDNN_ATTENTION_DELTA,                            /* scratch: fp32 [batch, heads, queries] */
    CUDNN_ATTENTION_DQ_SUM,                           /* scratch: fp32 [..., queries, width] */
    CUDNN_ATTENTION_TENSORS
};

/*
 * bf16 q [batch, queries, heads, width], k and v [batch, keys, shared, width], fp32 lse [batch,
 * heads, queries]; o, d_o and gradients have the shapes of their counterparts. stride: elements
 * from one batch, head or row to the next; the width is dense, and so are the rows of lse.
 * `shared` divides heads. causal and window as in struct attention_attr, with as many queries as
 * keys.
 */
struct cudnn_attention_spec {
    int64_t batch, heads, shared, queries, keys, width;
    int64_t causal, window;
    struct {
        int64_t batch, head, row;
    } stride[CUDNN_ATTENTION_OPERANDS];
};

/*
 * The `describe` callbacks of a cudnn_recipe; spec is a struct cudnn_attention_spec.  Two for the
 * backward pass: one adds to sums of dq in the order in which blocks finish; the ordered one has no
 * CUDNN_ATTENTION_DQ_SUM, but the gradients of all scores in its workspace, in bf16.
 */
void cudnn_attention_forward(struct cudnn_graph *g, const void *spec);
void cudnn_attention_backward(struct cudnn_graph *g, const void *spec);
void cudnn_attention_ordered(struct cudnn_graph *g, const void *spec);

#endif

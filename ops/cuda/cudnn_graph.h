/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN graphs from C.  A recipe describes tensors and the operations between them; cuDNN offers
 * engines for the whole; the first that keeps the limits is compiled and kept with the device:
 *
 *     const struct cudnn_plan *plan;
 *     int rc = cudnn_plan_get(libs, stream, &recipe, &plan);
 *     if (!rc)
 *         rc = cudnn_plan_run(libs, stream, plan, n, uids, pointers, workspace);
 *
 * Tensors have the axes in cuDNN's order: N, C, then space for convolutions (filters K, C, space),
 * batch, head, row, column for matrices; the layout in memory is a matter of strides.
 */
#ifndef CKPT_CUDA_CUDNN_GRAPH_H
#define CKPT_CUDA_CUDNN_GRAPH_H

#include <cudnn.h>
#include "cuda/libs.h"

enum {
    CUDNN_GRAPH_NDIM = 8, /* axes at most */
    CUDNN_LIKE = 2        /* recipes that another one computes like, at most */
};

/* ---- describing ---------------------------------------------------------------------------- */

/* The first failure sticks to the graph, later calls do nothing. */
struct cudnn_graph;

/* A tensor of a graph, made by the functions below; an operand that is absent is CUDNN_NO_TENSOR.
 */
typedef int cudnn_tensor;
#define CUDNN_NO_TENSOR (-1)

struct cudnn_tensor_spec {
    int64_t uid; /* its name when pointers are bound, > 0; 0: it exists inside the graph only */
    cudnnDataType_t type;
    int ndim;
    int64_t shape[CUDNN_GRAPH_NDIM];
    int64_t stride[CUDNN_GRAPH_NDIM]; /* elements; all 0: dense in the order of the axes */
    int64_t alignment;                /* of its address, in bytes; 0: 16 */
};

cudnn_tensor cudnn_graph_tensor(struct cudnn_graph *g, const struct cudnn_tensor_spec *spec);
/* A number that is read on the host when the plan runs; ndim axes of size 1. */
cudnn_tensor cudnn_graph_scalar(struct cudnn_graph *g, int64_t uid, cudnnDataType_t type, int ndim);

/* Operations compute in fp32.  The last tensor is the result. */
void cudnn_graph_matmul(struct cudnn_graph *g, cudnn_tensor a, cudnn_tensor b, cudnn_tensor c);
/* y = mode(x), or mode(x, b), where b may have size 1 on any axis. */
void cudnn_graph_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnn_tensor x,
                           cudnn_tensor b, cudnn_tensor y);
/* The index along an axis of x, int32. */
void cudnn_graph_index(struct cudnn_graph *g, cudnn_tensor x, int64_t axis, cudnn_tensor y);
/* x + b of indices. */
void cudnn_graph_add_index(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor b, cudnn_tensor y);
/* Comparisons, to boolean. */
void cudnn_graph_compare(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnn_tensor x,
                         cudnn_tensor b, cudnn_tensor y);
/* t ? x : b */
void cudnn_graph_select(struct cudnn_graph *g, cudnn_tensor t, cudnn_tensor x, cudnn_tensor b,
                        cudnn_tensor y);
/* Over the axes on which y has size 1 and x has not. */
void cudnn_graph_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t op, cudnn_tensor x,
                        cudnn_tensor y);
/* y is x with other shape and strides on the same elements: a transposition, for one. */
void cudnn_graph_reshape(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y);

/* Which of the three is the result. */
enum cudnn_conv_kind { CUDNN_CONV_Y, CUDNN_CONV_DX, CUDNN_CONV_DW };

/* A cross-correlation over ndim spatial axes. */
struct cudnn_conv_spec {
    int ndim;
    int64_t before[CUDNN_GRAPH_NDIM], after[CUDNN_GRAPH_NDIM]; /* padding with zeros */
    int64_t stride[CUDNN_GRAPH_NDIM];
    int64_t dilation[CUDNN_GRAPH_NDIM]; /* 1: none */
    float beta;                         /* the result is added to beta times what it was */
};

/* x [N, C, ...], w [K, C, ...], y [N, K, ...], or their gradients. */
void cudnn_graph_conv(struct cudnn_graph *g, enum cudnn_conv_kind kind,
                      const struct cudnn_conv_spec *spec, cudnn_tensor x, cudnn_tensor w,
                      cudnn_tensor y);

/* ---- compiling and running ----------------------------------------------------------------- */

/* What an engine must keep to be chosen. */
struct cudnn_limits {
    int64_t workspace;  /* bytes at most: what the op's shape rule asked for */
    bool deterministic; /* the same bits every time */
    bool exact;         /* fp32 keeps its digits: no TF32, no Winograd or Fourier transform */
};

struct cudnn_plan;

/*
 * describe must depend on the bytes of spec alone (so zero its padding), and on itself: its address
 * and these bytes are the key by which a plan is found again.
 */
struct cudnn_recipe {
    void (*describe)(struct cudnn_graph *g, const void *spec);
    const void *spec;
    size_t spec_size;
    struct cudnn_limits limits;
    /* Recipes whose engine and settings this one takes, so that calls that differ in sizes only
     * compute alike: the first that is offered for like[0] and takes all of them.  Where it does
     * not take this graph, none does.  They must follow from the bytes of spec. */
    const struct cudnn_recipe *like;
    int n_like; /* CUDNN_LIKE at most; 0: none */
};

/*
 * The plan of a recipe, compiled now if it was not before.  Returns 0, CKPT_ENOMEM, or CKPT_EDEVICE
 * if the device does not work.  That cuDNN has no engine for it is not a failure yet, but
 * remembered: cudnn_plan_accepted tells, and running such a plan fails with cuDNN's reason.
 */
int cudnn_plan_get(struct cuda_libs *libs, void *stream, const struct cudnn_recipe *recipe,
                   const struct cudnn_plan **plan);
bool cudnn_plan_accepted(const struct cudnn_plan *plan);

/* Runs on stream with the tensors of these uids at these addresses (scalars: host addresses).
 * Returns 0 or CKPT_EDEVICE, the reason kept in libs. */
int cudnn_plan_run(struct cuda_libs *libs, void *stream, const struct cudnn_plan *plan, int n,
                   const int64_t *uids, void *const *pointers, void *workspace);

/*
 * What is behind cudnn_plan_get: compiles for the device of a handle, or for one that is not there
 * and is described by the JSON text in which cuDNN writes the properties of devices.  NULL: no
 * memory.
 */
struct cudnn_plan *cudnn_plan_make(const struct cudnn_recipe *recipe, void *handle,
                                   const char *device);
void cudnn_plan_free(void *call);
/* An engine was found, but the device could not load it. */
bool cudnn_plan_broken(const struct cudnn_plan *plan);
/* Bytes of scratch, unless it was refused; why it does not run, or "". */
int64_t cudnn_plan_workspace(const struct cudnn_plan *plan);
const char *cudnn_plan_reason(const struct cudnn_plan *plan);

#endif

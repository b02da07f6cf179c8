/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN graphs from C.  A recipe describes tensors and the operations between them. cuDNN offers
 * engines for the whole graph; the first one within the limits is compiled and cached with the
 * device:
 *
 *      const struct cudnn_plan *plan;
 *      int rc = cudnn_plan_get(libs, stream, &recipe, &plan);
 *      if (!rc)
 *          rc = cudnn_plan_run(libs, stream, plan, n, uids, pointers, workspace);
 *
 * Axes are in cuDNN's order: N, C, then the spatial axes for convolutions (K, C, spatial axes for
 * filters); batch, head, row, column for matrices.  Strides define the layout in memory.
 */
#ifndef CKPT_CUDA_CUDNN_GRAPH_H
#define CKPT_CUDA_CUDNN_GRAPH_H

#include <cudnn.h>
#include "kernels/cuda/libs.h"

enum {
    CUDNN_GRAPH_NDIM = 8, /* most axes of a tensor */
    CUDNN_LIKE = 2        /* most recipes in `like` */
};

/* ---- describing ---------------------------------------------------------------------------- */

/* The first failure is kept in the graph; later calls do nothing. */
struct cudnn_graph;

/* A tensor of a graph, made by the functions below; CUDNN_NO_TENSOR is an absent operand. */
typedef int cudnn_tensor;
#define CUDNN_NO_TENSOR (-1)

struct cudnn_tensor_spec {
    int64_t uid; /* > 0: the id by which pointers are bound; 0: virtual, inside the graph only */
    cudnnDataType_t type;
    int ndim;
    int64_t shape[CUDNN_GRAPH_NDIM];
    int64_t stride[CUDNN_GRAPH_NDIM]; /* in elements; all 0: dense, in the order of the axes */
    int64_t alignment;                /* of the address, in bytes; 0: 16 */
};

cudnn_tensor cudnn_graph_tensor(struct cudnn_graph *g, const struct cudnn_tensor_spec *spec);
/* A scalar that is read from host memory when the plan runs; it has ndim axes of size 1. */
cudnn_tensor cudnn_graph_scalar(struct cudnn_graph *g, int64_t uid, cudnnDataType_t type, int ndim);

/* Operations compute in fp32.  The last argument is the result. */
void cudnn_graph_matmul(struct cudnn_graph *g, cudnn_tensor a, cudnn_tensor b, cudnn_tensor c);
/* y = mode(x), or mode(x, b); b may have size 1 on any axis. */
void cudnn_graph_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnn_tensor x,
                           cudnn_tensor b, cudnn_tensor y);
/* The index along an axis of x, int32. */
void cudnn_graph_index(struct cudnn_graph *g, cudnn_tensor x, int64_t axis, cudnn_tensor y);
/* x + b of indices. */
void cudnn_graph_add_index(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor b, cudnn_tensor y);
/* Comparison; y is boolean. */
void cudnn_graph_compare(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnn_tensor x,
                         cudnn_tensor b, cudnn_tensor y);
/* t ? x : b */
void cudnn_graph_select(struct cudnn_graph *g, cudnn_tensor t, cudnn_tensor x, cudnn_tensor b,
                        cudnn_tensor y);
/* Reduces over the axes on which y has size 1 and x has not. */
void cudnn_graph_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t op, cudnn_tensor x,
                        cudnn_tensor y);
/* y has the elements of x with another shape and other strides, for example transposed. */
void cudnn_graph_reshape(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y);

/* Which of the three tensors is the result. */
enum cudnn_conv_kind { CUDNN_CONV_Y, CUDNN_CONV_DX, CUDNN_CONV_DW };

/* A cross-correlation over ndim spatial axes. */
struct cudnn_conv_spec {
    int ndim;
    int64_t before[CUDNN_GRAPH_NDIM], after[CUDNN_GRAPH_NDIM]; /* zero padding */
    int64_t stride[CUDNN_GRAPH_NDIM];
    int64_t dilation[CUDNN_GRAPH_NDIM]; /* 1: none */
    float beta;                         /* the result is added to beta times its previous content */
};

/* x [N, C, ...], w [K, C, ...], y [N, K, ...], or their gradients. */
void cudnn_graph_conv(struct cudnn_graph *g, enum cudnn_conv_kind kind,
                      const struct cudnn_conv_spec *spec, cudnn_tensor x, cudnn_tensor w,
                      cudnn_tensor y);

/* ---- compiling and running ------------------------------------------------------------------- */

/* The conditions for an engine to be selected. */
struct cudnn_limits {
    int64_t workspace;  /* most bytes of scratch: the size that the op's shape rule requested */
    bool deterministic; /* bit-exact repeatability */
    bool exact;         /* full fp32 precision: no TF32, no Winograd, no Fourier transform */
};

struct cudnn_plan;

/*
 * The address of describe and the bytes of spec are the key by which a plan is cached.  So describe
 * must depend on the bytes of spec alone, and padding in spec must be zero.
 */
struct cudnn_recipe {
    void (*describe)(struct cudnn_graph *g, const void *spec);
    const void *spec;
    size_t spec_size;
    struct cudnn_limits limits;
    /* Recipes whose engine and settings this one must use, so that calls that differ only in sizes
     * compute alike.  The engine is the first that is offered for like[0] and supports all of
     * `like`.  If it does not support this graph, the plan is refused.  They must be a function of
     * the bytes of spec. */
    const struct cudnn_recipe *like;
    int n_like; /* at most CUDNN_LIKE; 0: none */
};

/*
 * Returns in *plan the plan of a recipe; compiles it on the first call.  Returns 0, CKPT_ENOMEM, or
 * CKPT_EDEVICE if the device fails.  If cuDNN has no engine the call succeeds: then
 * cudnn_plan_accepted returns false, and running the plan fails with cuDNN's reason.
 */
int cudnn_plan_get(struct cuda_libs *libs, void *stream, const struct cudnn_recipe *recipe,
                   const struct cudnn_plan **plan);
bool cudnn_plan_accepted(const struct cudnn_plan *plan);

/* Runs the plan on stream; pointers[i] is the address of the tensor with id uids[i] (a host address
 * for scalars).  Returns 0 or CKPT_EDEVICE, with the reason in libs. */
int cudnn_plan_run(struct cuda_libs *libs, void *stream, const struct cudnn_plan *plan, int n,
                   const int64_t *uids, void *const *pointers, void *workspace);

/*
 * The parts of cudnn_plan_get that compile: for the device of a handle, or for a device that is not
 * present, described by `device`, cuDNN's JSON text of device properties.  The family of a recipe
 * with `like` is that of all recipes with the same; it outlives the call alone.  Both return NULL
 * if memory is exhausted.
 */
struct cudnn_family;
struct cudnn_family *cudnn_family_make(const struct cudnn_recipe *recipe, void *handle,
                                       const char *device);
void cudnn_family_free(void *call);
struct cudnn_plan *cudnn_plan_make(const struct cudnn_recipe *recipe, void *handle,
                                   const char *device, const struct cudnn_family *family);
void cudnn_plan_free(void *call);
/* Was an engine found that the device then could not load? */
bool cudnn_plan_broken(const struct cudnn_plan *plan);
/* Bytes of scratch (valid unless the plan was refused), and the reason why it was refused, or
 * "". */
int64_t cudnn_plan_workspace(const struct cudnn_plan *plan);
const char *cudnn_plan_reason(const struct cudnn_plan *plan);

#endif

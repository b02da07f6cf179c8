/* SPDX-License-Identifier: Apache-2.0 */
/* Building descriptions of cuDNN graphs: see cudnn_graph.h. */
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/cudnn_descriptor.h"

static const cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;

static cudnnBackendDescriptor_t tensor_of(struct cudnn_graph *g, cudnn_tensor x)
{
    if (!g->d.rc && (x < 0 || x >= g->n_tensors))
        descriptors_refuse(&g->d, "an operand is absent");
    return g->d.rc ? NULL : g->tensor[x].descriptor;
}

/* Adds an operation whose attributes are all set. */
static void add_operation(struct cudnn_graph *g, cudnnBackendDescriptor_t operation)
{
    descriptor_finish(&g->d, operation, "operation");
    if (!g->d.rc && g->n_operations == CUDNN_GRAPH_OPERATIONS)
        descriptors_refuse(&g->d, "too many operations");
    if (!g->d.rc)
        g->operation[g->n_operations++] = operation;
}

static void set_tensor(struct cudnn_graph *g, cudnnBackendDescriptor_t operation,
                       cudnnBackendAttributeName_t name, cudnn_tensor x)
{
    cudnnBackendDescriptor_t tensor = tensor_of(g, x);
    descriptor_set(&g->d, operation, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensor);
}

/* ---- tensors ------------------------------------------------------------------------------- */

static bool has_strides(const struct cudnn_tensor_spec *spec)
{
    for (int i = 0; i < spec->ndim; i++)
        if (spec->stride[i])
            return true;
    return false;
}

static void dense_strides(const struct cudnn_tensor_spec *spec, int64_t *stride)
{
    int64_t n = 1;
    for (int i = spec->ndim - 1; i >= 0; i--) {
        stride[i] = n;
        n *= spec->shape[i];
    }
}

static cudnn_tensor add_tensor(struct cudnn_graph *g, const struct cudnn_tensor_spec *spec,
                               bool by_value)
{
    const int64_t alignment = spec->alignment ? spec->alignment : 16;
    /* Every tensor has an id; virtual tensors get ids above 2^32. */
    const int64_t uid = spec->uid ? spec->uid : INT64_C(1) << 32 | g->n_tensors;
    const bool inside = !spec->uid;
    int64_t stride[CUDNN_GRAPH_NDIM];
    if (g->d.rc)
        return CUDNN_NO_TENSOR;
    if (g->n_tensors == CUDNN_GRAPH_TENSORS || spec->ndim < 1 || spec->ndim > CUDNN_GRAPH_NDIM) {
        descriptors_refuse(&g->d, "too many tensors or axes");
        return CUDNN_NO_TENSOR;
    }
    if (has_strides(spec))
        memcpy(stride, spec->stride, sizeof stride);
    else
        dense_strides(spec, stride);
    cudnnBackendDescriptor_t t = descriptor_make(&g->d, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    descriptor_set(&g->d, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    descriptor_set(&g->d, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &spec->type);
    descriptor_set(&g->d, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, spec->ndim,
                   spec->shape);
    descriptor_set(&g->d, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, spec->ndim, stride);
    descriptor_set(&g->d, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (inside)
        descriptor_set(&g->d, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside);
    if (by_value)
        descriptor_set(&g->d, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    descriptor_finish(&g->d, t, "tensor");
    if (g->d.rc)
        return CUDNN_NO_TENSOR;
    g->tensor[g->n_tensors].descriptor = t;
    g->tensor[g->n_tensors].spec = *spec;
    return g->n_tensors++;
}

cudnn_tensor cudnn_graph_tensor(struct cudnn_graph *g, const struct cudnn_tensor_spec *spec)
{
    return add_tensor(g, spec, false);
}

cudnn_tensor cudnn_graph_scalar(struct cudnn_graph *g, int64_t uid, cudnnDataType_t type, int ndim)
{
    struct cudnn_tensor_spec spec = {.uid = uid, .type = type, .ndim = ndim};
    for (int i = 0; i < ndim; i++)
        spec.shape[i] = 1;
    return add_tensor(g, &spec, true);
}

/* ---- operations ---------------------------------------------------------------------------- */

void cudnn_graph_matmul(struct cudnn_graph *g, cudnn_tensor a, cudnn_tensor b, cudnn_tensor c)
{
    cudnnBackendDescriptor_t how = descriptor_make(&g->d, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    descriptor_set(&g->d, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute_type);
    descriptor_finish(&g->d, how, "matmul");
    cudnnBackendDescriptor_t op = descriptor_make(&g->d, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    descriptor_set(&g->d, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                   &how);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    add_operation(g, op);
}

/* A pointwise operation.  Absent operands are CUDNN_NO_TENSOR; axis is used by GEN_INDEX only. */
struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type; /* of the computation */
    int64_t axis;
    cudnn_tensor x, b, t, y;
};

static void add_pointwise(struct cudnn_graph *g, const struct pointwise *p)
{
    cudnnBackendDescriptor_t how = descriptor_make(&g->d, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    descriptor_set(&g->d, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p->mode);
    descriptor_set(&g->d, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p->type);
    if (p->mode == CUDNN_POINTWISE_GEN_INDEX)
        descriptor_set(&g->d, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
    descriptor_finish(&g->d, how, "pointwise");
    cudnnBackendDescriptor_t op =
        descriptor_make(&g->d, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    descriptor_set(&g->d, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x);
    if (p->b != CUDNN_NO_TENSOR)
        set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->b);
    if (p->t != CUDNN_NO_TENSOR)
        set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->t);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p->y);
    add_operation(g, op);
}

void cudnn_graph_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnn_tensor x,
                           cudnn_tensor b, cudnn_tensor y)
{
    add_pointwise(g, &(struct pointwise){mode, compute_type, 0, x, b, CUDNN_NO_TENSOR, y});
}

void cudnn_graph_index(struct cudnn_graph *g, cudnn_tensor x, int64_t axis, cudnn_tensor y)
{
    add_pointwise(g, &(struct pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, axis, x,
                                         CUDNN_NO_TENSOR, CUDNN_NO_TENSOR, y});
}

void cudnn_graph_add_index(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor b, cudnn_tensor y)
{
    add_pointwise(
        g, &(struct pointwise){CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, 0, x, b, CUDNN_NO_TENSOR, y});
}

void cudnn_graph_compare(struct cudnn_graph *g, cudnnPointwiseMode_t mode, cudnn_tensor x,
                         cudnn_tensor b, cudnn_tensor y)
{
    add_pointwise(g, &(struct pointwise){mode, CUDNN_DATA_BOOLEAN, 0, x, b, CUDNN_NO_TENSOR, y});
}

void cudnn_graph_select(struct cudnn_graph *g, cudnn_tensor t, cudnn_tensor x, cudnn_tensor b,
                        cudnn_tensor y)
{
    add_pointwise(g,
                  &(struct pointwise){CUDNN_POINTWISE_BINARY_SELECT, compute_type, 0, x, b, t, y});
}

void cudnn_graph_reduce(struct cudnn_graph *g, cudnnReduceTensorOp_t operator, cudnn_tensor x,
                        cudnn_tensor y)
{
    cudnnBackendDescriptor_t how = descriptor_make(&g->d, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    descriptor_set(&g->d, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                   &operator);
    descriptor_set(&g->d, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                   &compute_type);
    descriptor_finish(&g->d, how, "reduction");
    cudnnBackendDescriptor_t op =
        descriptor_make(&g->d, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    descriptor_set(&g->d, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                   &how);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(g, op);
}

void cudnn_graph_reshape(struct cudnn_graph *g, cudnn_tensor x, cudnn_tensor y)
{
    cudnnBackendDescriptor_t op =
        descriptor_make(&g->d, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(g, op);
}

/* ---- convolutions -------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t conv_descriptor(struct descriptors *d,
                                                const struct cudnn_conv_spec *spec)
{
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t ndim = spec->ndim;
    cudnnBackendDescriptor_t how = descriptor_make(d, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    descriptor_set(d, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &ndim);
    descriptor_set(d, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                   &compute_type);
    descriptor_set(d, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    descriptor_set(d, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, ndim,
                   spec->before);
    descriptor_set(d, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, ndim,
                   spec->after);
    descriptor_set(d, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, ndim,
                   spec->dilation);
    descriptor_set(d, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, ndim,
                   spec->stride);
    descriptor_finish(d, how, "convolution");
    return how;
}

/* The attributes of each kind of convolution. */
struct conv_names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t conv, alpha, beta, x, w, y;
};

static const struct conv_names conv_names[] = {
    [CUDNN_CONV_Y] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    [CUDNN_CONV_DX] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    [CUDNN_CONV_DW] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};

void cudnn_graph_conv(struct cudnn_graph *g, enum cudnn_conv_kind kind,
                      const struct cudnn_conv_spec *spec, cudnn_tensor x, cudnn_tensor w,
                      cudnn_tensor y)
{
    const struct conv_names *names = &conv_names[kind];
    const float alpha = 1;
    cudnnBackendDescriptor_t how = conv_descriptor(&g->d, spec);
    cudnnBackendDescriptor_t op = descriptor_make(&g->d, names->operation);
    descriptor_set(&g->d, op, names->conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    descriptor_set(&g->d, op, names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    descriptor_set(&g->d, op, names->beta, CUDNN_TYPE_FLOAT, 1, &spec->beta);
    set_tensor(g, op, names->x, x);
    set_tensor(g, op, names->w, w);
    set_tensor(g, op, names->y, y);
    add_operation(g, op);
}

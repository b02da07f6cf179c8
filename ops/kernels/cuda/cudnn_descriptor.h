/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by cudnn_graph.c, which describes graphs, and cudnn_plan.c, which compiles them: a list of
 * cuDNN descriptors that are freed together, with the first failure. */
#ifndef CKPT_CUDA_CUDNN_DESCRIPTOR_H
#define CKPT_CUDA_CUDNN_DESCRIPTOR_H

#include "kernels/cuda/cudnn_graph.h"

enum { CUDNN_GRAPH_TENSORS = 64, CUDNN_GRAPH_OPERATIONS = 48 };

struct descriptors {
    cudnnBackendDescriptor_t *data;
    int64_t capacity, n;
    int rc;      /* 0, CKPT_ENOMEM, or CKPT_EDEVICE with `reason` */
    bool broken; /* the device failed, rather than cuDNN refusing the graph */
    char reason[512];
};

struct cudnn_graph {
    struct descriptors d;
    int n_tensors, n_operations;
    struct {
        cudnnBackendDescriptor_t descriptor;
        struct cudnn_tensor_spec spec;
    } tensor[CUDNN_GRAPH_TENSORS];
    cudnnBackendDescriptor_t operation[CUDNN_GRAPH_OPERATIONS];
};

/* Once d->rc is set these functions do nothing, and descriptor_make returns NULL. */
cudnnBackendDescriptor_t descriptor_make(struct descriptors *d, cudnnBackendDescriptorType_t type);
void descriptor_set(struct descriptors *d, cudnnBackendDescriptor_t x,
                    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                    const void *values);
void descriptor_finish(struct descriptors *d, cudnnBackendDescriptor_t x, const char *what);
/* Records a failed status of cuDNN together with cuDNN's last error message. */
void descriptor_check(struct descriptors *d, cudnnStatus_t status, const char *what);
void descriptors_refuse(struct descriptors *d, const char *why);
void descriptors_free(struct descriptors *d);

#endif

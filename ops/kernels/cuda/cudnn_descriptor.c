/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of cuDNN: see cudnn_descriptor.h. */
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda/cudnn_descriptor.h"

void descriptor_check(struct descriptors *d, cudnnStatus_t status, const char *what)
{
    char last[256] = "";
    if (status == CUDNN_STATUS_SUCCESS)
        return;
    cudnnGetLastErrorString(last, sizeof last);
    d->rc = CKPT_EDEVICE;
    d->broken = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED;
    snprintf(d->reason, sizeof d->reason, "cuDNN, %s: %s%s%s", what, cudnnGetErrorString(status),
             *last ? ": " : "", last);
}

void descriptors_refuse(struct descriptors *d, const char *why)
{
    if (d->rc)
        return;
    d->rc = CKPT_EDEVICE;
    snprintf(d->reason, sizeof d->reason, "cuDNN graph: %s", why);
}

cudnnBackendDescriptor_t descriptor_make(struct descriptors *d, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t x = NULL;
    if (!d->rc && ARRAY_RESERVE(d, d->n))
        d->rc = CKPT_ENOMEM;
    if (!d->rc)
        descriptor_check(d, cudnnBackendCreateDescriptor(type, &x), "descriptor");
    if (!d->rc)
        d->data[d->n++] = x;
    return x;
}

void descriptor_set(struct descriptors *d, cudnnBackendDescriptor_t x,
                    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                    const void *values)
{
    char what[40];
    if (d->rc)
        return;
    snprintf(what, sizeof what, "attribute %d", (int)name);
    descriptor_check(d, cudnnBackendSetAttribute(x, name, type, n, values), what);
}

void descriptor_finish(struct descriptors *d, cudnnBackendDescriptor_t x, const char *what)
{
    if (!d->rc)
        descriptor_check(d, cudnnBackendFinalize(x), what);
}

void descriptors_free(struct descriptors *d)
{
    while (d->n)
        cudnnBackendDestroyDescriptor(d->data[--d->n]);
    free(d->data);
    *d = (struct descriptors){.n = 0};
}

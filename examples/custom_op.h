/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of custom_op share: see custom_op.c. */
#ifndef EXAMPLES_CUSTOM_OP_H
#define EXAMPLES_CUSTOM_OP_H

#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct softplus_attr {
    float sharpness;
};

/* Elements of an operand. */
static inline int64_t count(const struct ckpt_desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->ndim; i++)
        n *= d->shape[i];
    return n;
}

int softplus_cuda(const struct ckpt_kernel_args *a);
int softplus_dx_cuda(const struct ckpt_kernel_args *a);

#ifdef __cplusplus
}
#endif
#endif

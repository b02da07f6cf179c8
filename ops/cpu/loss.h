/* SPDX-License-Identifier: Apache-2.0 */
/* How the sum of a mean squared error is cut: by its shape rule and by its kernels. */
#ifndef CKPT_CPU_LOSS_H
#define CKPT_CPU_LOSS_H

#include "core/base.h"

#define MSE_CHUNK 16384 /* elements */

/* Chunks of one sample of pred [B, ...]. */
static inline int64_t mse_chunks(const struct ckpt_desc *pred)
{
    return (desc_numel(pred) / pred->shape[0] + MSE_CHUNK - 1) / MSE_CHUNK;
}

static inline int64_t cpu_mse_workspace(const struct ckpt_desc *pred)
{
    return pred->shape[0] * mse_chunks(pred) * (int64_t)sizeof(double);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Mean squared error: division into partial sums, for the shape rule and the kernel. */
#ifndef CKPT_CPU_LOSS_H
#define CKPT_CPU_LOSS_H

#include "core/base.h"

#define MSE_CHUNK 16384 /* elements per partial sum */

/* Number of chunks in one sample of pred [B, ...]. */
static inline int64_t mse_chunks(const struct ckpt_desc *pred)
{
    return (desc_numel(pred) / pred->shape[0] + MSE_CHUNK - 1) / MSE_CHUNK;
}

static inline int64_t cpu_mse_workspace(const struct ckpt_desc *pred)
{
    return pred->shape[0] * mse_chunks(pred) * (int64_t)sizeof(double);
}

#endif

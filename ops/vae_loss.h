/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of autoencoders: division into partial sums, for the shape rules and all kernels. */
#ifndef CKPT_OPS_VAE_LOSS_H
#define CKPT_OPS_VAE_LOSS_H

#include "core/base.h"

#define VAE_LOSS_CHUNK 16384 /* elements per partial sum */

/* Range to which the log-variance is clamped, customary since Rombach et al. 2022. */
#define LOGVAR_LOW  -30.f
#define LOGVAR_HIGH 20.f

static inline int64_t vae_loss_chunks(int64_t n)
{
    return (n + VAE_LOSS_CHUNK - 1) / VAE_LOSS_CHUNK;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The losses of autoencoders: how their sums are cut, by their shape rules and every kernel. */
#ifndef CKPT_OPS_VAE_LOSS_H
#define CKPT_OPS_VAE_LOSS_H

#include "core/base.h"

#define VAE_LOSS_CHUNK 16384 /* elements of a partial sum */

/* A logarithm of a variance is clamped to these, as everywhere since Rombach et al. 2022. */
#define LOGVAR_LOW  -30.f
#define LOGVAR_HIGH 20.f

static inline int64_t vae_loss_chunks(int64_t n)
{
    return (n + VAE_LOSS_CHUNK - 1) / VAE_LOSS_CHUNK;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of latents, one clip each, as the trainers of CogVideoX keep them: "encoded_video", [Z, F,
 * h, w], sampled and times the scaling factor, or "moments" [2 Z, F, h, w].  What a sampler writes,
 * "latents" [F, Z, h, w] or [1, F, Z, h, w], is read, too.  Here latents are [F, h, w, Z].
 */
#ifndef COGVIDEO_VAE_LATENTS_H
#define COGVIDEO_VAE_LATENTS_H

#include "ckpt.h"

struct cogvae_latents {
    int64_t frames, height, width, channels;
    float *z; /* malloc'ed; NULL: only the shape was asked for */
};

/* Reads latents, only their shape where values is false.  Returns 0, or -1 after a sentence. */
int cogvae_latents_read(struct cogvae_latents *l, const char *path, bool values);

/* Latents of that shape from values [Z, F, h, w].  Returns 0, or -1 after a sentence. */
int cogvae_latents_from(struct cogvae_latents *l, const float *values);

/* Moments [F, h, w, 2 Z] to latents: mean + exp(logvar / 2) noise, times scaling, with logvar held
 * in [-30, 20]; the noise follows from seed and name. */
int cogvae_latents_draw(struct cogvae_latents *moments, uint64_t seed, double scaling,
                        const char *name);
/* To the order of files, values [Z, F, h, w]. */
void cogvae_latents_to(const struct cogvae_latents *l, float *values);

/* Writes a tensor of that name as dtype. */
int cogvae_latents_write(const struct cogvae_latents *l, const char *path, const char *name,
                         enum ckpt_dtype dtype);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of latents: safetensors with "latents" fp32 [T', Z, h, w] as a diffusion model sees them,
 * and the properties of the clip as i32 and fp32 [1]: "frames", "height", "width", "chunk", "fps".
 * Reader and writer work chunk by chunk, so memory does not grow with the length of a clip.
 */
#ifndef VAE_LATENTS_H
#define VAE_LATENTS_H

#include <stdio.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"

struct vae_latent_info {
    int64_t frames, height, width; /* of the clip */
    int64_t chunk;                 /* frames encoded together */
    double fps;
    int64_t latent, rows, columns; /* Z, h, w */
    int64_t latent_frames;         /* T' */
};

struct vae_latent_writer {
    struct vae_latent_info info; /* frames and latent_frames are known at the end */
    const char *path;
    struct ckpt_replacement *file;
    FILE *stream; /* the temporary file */
};

/* Creates a temporary file next to path; vae_latents_finish renames it to path.  All calls return
 * 0, or -1 after a sentence. */
int vae_latents_create(struct vae_latent_writer *w, const char *path,
                       const struct vae_latent_info *info);
/* Appends latents [n, Z, h, w] of `frames` frames. */
int vae_latents_put(struct vae_latent_writer *w, const float *z, int64_t n, int64_t frames);
int vae_latents_finish(struct vae_latent_writer *w);
void vae_latents_abandon(struct vae_latent_writer *w); /* also after vae_latents_finish */

struct vae_latent_reader {
    struct vae_latent_info info;
    const char *path;
    ckpt_file *file;
    int tensor;
};

/* Opens a file and checks its shapes, and that the number of latents matches the frames. */
int vae_latents_open(struct vae_latent_reader *r, const char *path);
int vae_latents_read(struct vae_latent_reader *r, int64_t first, int64_t n, float *z);
void vae_latents_close(struct vae_latent_reader *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of latents, one clip each, in the format of the CogVideoX trainers: "encoded_video" [Z, F,
 * h, w], sampled and multiplied by the scaling factor, or "moments" [2 Z, F, h, w].  The output of
 * a sampler, "latents" [F, Z, h, w] or [1, F, Z, h, w], is read, too.  In memory latents are [F, h,
 * w, Z].
 */
#ifndef VIDEO_LATENTS_H
#define VIDEO_LATENTS_H

#include "autoencoder.h"

enum { VIDEO_LATENTS_PATH = 4096 };

/* The file of latents of a video: DIR/NAME.safetensors, NAME without directory and extension.
 * Returns 0, or -1 after an error message. */
int video_latents_path(char dst[VIDEO_LATENTS_PATH], const char *dir, const char *video);
/* The length of NAME, which begins at *name. */
int video_latents_stem(const char *video, const char **name);

struct video_latents {
    int64_t frames, height, width, channels;
    float *z; /* malloc'ed; NULL: only the shape was read */
};

/* Reads latents, or only their shape if values is false.  Returns 0, or -1 after an error
 * message. */
int video_latents_read(struct video_latents *l, const char *path, bool values);

/* Converts values [Z, F, h, w] to latents of that shape.  Returns 0, or -1 after an error
 * message. */
int video_latents_from(struct video_latents *l, const float *values);

/* Converts moments [F, h, w, 2 Z] to the latents of the diffusion model: mean + exp(logvar / 2)
 * noise, times scaling, with logvar clamped to [-30, 20]; the noise depends only on seed and name.
 * Where the sizes have means, these and the deviations normalise the mean. */
int video_latents_draw(struct video_latents *moments, uint64_t seed,
                       const struct autoencoder_sizes *sizes, const char *name);
/* Converts to the order of files, values [Z, F, h, w]. */
void video_latents_to(const struct video_latents *l, float *values);

/* Writes a tensor with that name and dtype. */
int video_latents_write(const struct video_latents *l, const char *path, const char *name,
                        enum ckpt_dtype dtype);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* From latents to a video file, by a decoder that is compiled. */
#ifndef COGVIDEO_VIDEO_H
#define COGVIDEO_VIDEO_H

#include "coder.h"
#include "vae_latents.h"

/*
 * Decodes l, which are times the scaling factor and are changed, and writes the frames to a sink
 * (common/sink.h) at path.  tiles: by the published tiling, else the decoder is compiled for the
 * size of l.  Returns 0, or -1 after a sentence.
 */
int cogvae_video_write(struct cogvae_coder *k, struct cogvae_latents *l, const char *path,
                       double fps, bool tiles);

/* The same without tiles, into frames [frames][8 height][8 width][3]. */
int cogvae_video_frames(struct cogvae_coder *k, struct cogvae_latents *l, uint8_t *rgb);

#endif

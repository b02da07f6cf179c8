/* SPDX-License-Identifier: Apache-2.0 */
/* From latents to a video file, with a compiled decoder. */
#ifndef VIDEO_MOVIE_H
#define VIDEO_MOVIE_H

#include "coder.h"
#include "latents.h"

/*
 * Decodes l and writes the frames to a sink (common/sink.h) at path.  The values of l include the
 * scaling factor and are changed.  tiles: uses the published tiling; otherwise the decoder must be
 * compiled for the size of l.  Returns 0, or -1 after an error message.
 */
int movie_write(struct video_coder *k, struct video_latents *l, const char *path, double fps,
                bool tiles);

/* The same without tiles, into frames [frames][8 height][8 width][3]. */
int movie_frames(struct video_coder *k, struct video_latents *l, uint8_t *rgb);

#endif

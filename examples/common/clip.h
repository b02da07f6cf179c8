/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a part of a video, brought to one size. */
#ifndef EXAMPLES_CLIP_H
#define EXAMPLES_CLIP_H

#include "video.h"

/*
 * Frames out of a window of frames * stride frames, from `skip` on, or as many as there are: evenly
 * spread from its first to its last, as Open-Sora 1.2 does.  With stride 1 they are neighbours;
 * else the steps between two vary by one frame.
 */
struct clip {
    struct picture_size size;
    int64_t frames; /* asked for */
    int64_t skip, stride;
    int64_t begin, part; /* of these, part from begin on; part 0: all */
};

/* The clip that ships: in the source tree or where it was installed; raw without FFmpeg.  NULL
 * after a sentence. */
const char *clip_shipped(void);

/* Where frame i of a clip stands in a video of `all` frames. */
int64_t clip_place(const struct clip *c, int64_t all, int64_t i);

/* The frames of a clip, [frames][height][width][3].  Returns 0, or -1 after a sentence. */
int clip_take(const struct clip *c, struct video *v, uint8_t *rgb);

/* The same of a file, malloc'ed; *fps: of the file.  NULL after a sentence. */
uint8_t *clip_read(const struct clip *c, const struct video_file *file, double *fps);

#endif

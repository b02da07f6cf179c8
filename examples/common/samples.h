/* SPDX-License-Identifier: Apache-2.0 */
/* Files of clips that a trainer samples: what they are called, videos, and frames side by side. */
#ifndef EXAMPLES_SAMPLES_H
#define EXAMPLES_SAMPLES_H

#include <stdint.h>
#include "log.h"

/* The files of clip i of those sampled behind so many steps, or, step 0, at the end, begin so;
 * `tag` is what such clips are called at any step. */
struct sample_name {
    char file[40], tag[24];
};
struct sample_name sample_name(int64_t step, int64_t i);

/* A clip [frames][height][width][3]. */
struct sample_clip {
    int64_t frames, height, width;
    double fps;
    const uint8_t *rgb;
};

/* ".mp4", or ".rgb" where no video file can hold such a clip. */
const char *sample_ending(const struct sample_clip *c);

/* Writes all frames to a sink (sink.h).  Returns 0, or -1 after a sentence, as the next. */
int sample_write(const struct sample_clip *c, const char *path);
/* So many frames of a clip are in its strip, from the first to the last; and which the i-th is. */
int64_t sample_strip_frames(int64_t frames);
int64_t sample_strip_place(int64_t frames, int64_t i);
/* Writes these frames side by side, as OUT/NAME.png, and to the log. */
int sample_put_strip(const struct sample_clip *some, const char *out,
                     const struct sample_name *name, struct run_log *log);
/* The strip of a clip. */
int sample_write_strip(const struct sample_clip *c, const char *out, const struct sample_name *name,
                       struct run_log *log);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Files of sampled clips: names, videos, and strips of frames side by side. */
#ifndef EXAMPLES_SAMPLES_H
#define EXAMPLES_SAMPLES_H

#include <stdint.h>
#include "log.h"

/* Names of clip i sampled after `step` steps; step 0: at the end of the run.  Files of the clip
 * begin with `file`; `tag` is the same at every step. */
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

/* ".mp4", or ".rgb" if no video file can store such a clip. */
const char *sample_ending(const struct sample_clip *c);

/* Writes all frames to a sink (sink.h).  Returns 0, or -1 after an error message. */
int sample_write(const struct sample_clip *c, const char *path);
/* The number of frames in a clip's strip, and the clip's frame at position i of the strip; the
 * first and the last frame are included. */
int64_t sample_strip_frames(int64_t frames);
int64_t sample_strip_place(int64_t frames, int64_t i);
/* Writes these frames side by side to OUT/NAME.png, and to the log.  Returns as sample_write. */
int sample_put_strip(const struct sample_clip *some, const char *out,
                     const struct sample_name *name, struct run_log *log);
/* Selects the strip's frames of a clip and writes them as sample_put_strip does. */
int sample_write_strip(const struct sample_clip *c, const char *out, const struct sample_name *name,
                       struct run_log *log);

#endif

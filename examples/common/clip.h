/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a video file, brought to one size: decoded by FFmpeg's libraries, or read raw. */
#ifndef EXAMPLES_CLIP_H
#define EXAMPLES_CLIP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct clip {
    int64_t width, height, frames; /* asked for */
    int64_t skip;                  /* frames of the file before the first one taken */
    int64_t stride;                /* every stride-th frame of the file */
    bool covers;  /* frames keep their shape and are cut; else they are stretched */
    double fps;   /* found: of the file */
    uint8_t *rgb; /* [frames][height][width][3], malloc'ed */
};

/* The clip that ships: in the source tree or where it was installed; raw without FFmpeg.  NULL
 * after a sentence. */
const char *clip_shipped(void);

/* Reads a clip in either format.  Fills fps and rgb.  Returns 0, or -1 after printing a sentence.
 */
int clip_read(struct clip *c, const char *path);

/* As clip_read, of one format. */
int clip_decode(struct clip *c, const char *path);
int clip_read_raw(struct clip *c, const char *path);

/* For the formats: what a whole frame of width x height is scaled to, and where in that the clip's
 * begins. */
struct clip_part {
    int64_t width, height, left, top;
};
struct clip_part clip_part_of(const struct clip *c, int64_t width, int64_t height);

/* Whether the file begins as our raw format does; see examples/data/README.  Returns 1, 0, or -1
 * after a sentence: it cannot be read, or is no regular file. */
int clip_is_raw(const char *path);

/* The first line of a raw clip. */
struct raw_header {
    int width, height, frames;
    double fps;
};

/* Opens a raw clip behind its first line.  Returns 0, or -1 after a sentence. */
int raw_open(FILE **f, const char *path, struct raw_header *h);

/* Prints how many frames path has and how many were asked for; returns -1. */
int clip_too_short(const struct clip *c, const char *path, int64_t found);

#endif

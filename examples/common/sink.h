/* SPDX-License-Identifier: Apache-2.0 */
/* Writes frames one by one to a video file, a raw clip, or a directory of pictures. */
#ifndef EXAMPLES_SINK_H
#define EXAMPLES_SINK_H

#include <stdbool.h>
#include <stdint.h>
#include "ckpt_tools.h"

struct sink {
    const struct sink_ops *ops;
    void *data;
    struct ckpt_replacement *file; /* replaces path at the end; NULL: pictures */
    const char *path;
    int64_t width, height, frames; /* frames: total number */
    int64_t taken;
    double fps;
};

struct sink_ops {
    int (*put)(struct sink *s, const uint8_t *rgb);
    int (*finish)(struct sink *s); /* after the last frame */
    void (*close)(struct sink *s);
};

/*
 * path with extension .rgb: the raw format; with another extension: a video file; a directory, or a
 * path without extension, which is made a directory: files frame-00000.png and so on.  The caller
 * sets the size, frames and fps of s before.  All return 0, or -1 after an error message.
 */
int sink_open(struct sink *s, const char *path);
/* Whether frames can be written to that name: its ending has a format and an encoder.  Leaves
 * nothing behind. */
int sink_check(const char *path);
int sink_put(struct sink *s, const uint8_t *rgb);
int sink_finish(struct sink *s);
void sink_close(struct sink *s);

/* Whether path is a directory, or would be made one. */
bool sink_is_directory(const char *path);

/* For the implementations of the formats. */
int sink_open_video(struct sink *s);
int sink_commit(struct sink *s);

#endif

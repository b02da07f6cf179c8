/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a video one by one, as many as there are: from a file, and to one. */
#ifndef EXAMPLES_FRAMES_H
#define EXAMPLES_FRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include "ckpt_tools.h"

/* What is read from; width, height and fps are known when it is open. */
struct frames {
    const struct frames_ops *ops;
    void *data;
    const char *path;
    int64_t width, height;
    int64_t announced; /* frames that the file says it has; 0: it does not say */
    int64_t taken;
    double fps;
};

struct frames_ops {
    int (*next)(struct frames *f, uint8_t *rgb); /* as frames_next */
    void (*close)(struct frames *f);
};

/* Opens a video file or a raw clip; path is borrowed.  Returns 0, or -1 after a sentence. */
int frames_open(struct frames *f, const char *path);
/* The next frame, [height][width][3].  Returns 1, 0 at the end, or -1 after a sentence. */
int frames_next(struct frames *f, uint8_t *rgb);
void frames_close(struct frames *f);

/* The two formats, for frames_open. */
int frames_open_raw(struct frames *f);
int frames_open_video(struct frames *f);

/* What is written to. */
struct sink {
    const struct sink_ops *ops;
    void *data;
    struct ckpt_replacement *file; /* takes the place of path at the end; NULL: pictures */
    const char *path;
    int64_t width, height, frames; /* frames that will come */
    int64_t taken;
    double fps;
};

struct sink_ops {
    int (*put)(struct sink *s, const uint8_t *rgb);
    int (*finish)(struct sink *s); /* after the last frame */
    void (*close)(struct sink *s);
};

/*
 * path ends in .rgb: our raw format; has another ending: a video file; is a directory, or has no
 * ending and becomes one: frame-00000.png and so on.  Sizes and fps of s are set before.  All
 * return 0, or -1 after a sentence.
 */
int sink_open(struct sink *s, const char *path);
int sink_put(struct sink *s, const uint8_t *rgb);
int sink_finish(struct sink *s);
void sink_close(struct sink *s);

/* Whether path is a directory, or would become one. */
bool sink_is_directory(const char *path);

/* For the formats. */
int sink_open_video(struct sink *s);
int sink_commit(struct sink *s);

#endif

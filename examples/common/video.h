/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads frames of a video by number, with FFmpeg's libraries or from the raw format.
 *
 * Frame n is the same, bit for bit, whichever frames were read before it: decoding starts at a key
 * frame before it, with an empty decoder.  Where data are damaged, the frames up to the next key
 * frame cannot be read.
 */
#ifndef EXAMPLES_VIDEO_H
#define EXAMPLES_VIDEO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include "resize.h"
#include "shard.h"

/* A file, or a member of a tar file (FFmpeg only). */
struct video_file {
    const char *path, *member;   /* member: its name; NULL: the whole file */
    int64_t start, size;         /* offset and size of a member, in bytes */
    const struct shard_run *run; /* of a member with holes, else NULL */
    int64_t runs;
};

/* Copies f with its strings.  Returns 0, or -1 if memory is short; free `to` in either case. */
int video_file_copy(struct video_file *to, const struct video_file *f);
void video_file_free(struct video_file *f);

struct video {
    char *path; /* followed by the name of the member */
    struct video_file file;
    int64_t width, height; /* as displayed, turned and mirrored as the file says */
    int64_t announced;     /* number of frames that the file's header shows; 0: not known */
    double fps;            /* 0: not given */
    bool image;            /* the file is a single picture */
    /* Set by the caller.  Frames of more than most_pixels are refused (0: no limit).  Reading ends,
     * without a message, when *stop is set (NULL: never).  hw decodes (NULL: the CPU). */
    const struct video_hw *hw;
    int64_t most_pixels;
    const atomic_bool *stop;
    /* private */
    const struct video_ops *ops;
    void *data;
    struct resize resize;
};

/* A file format. */
struct video_ops {
    int64_t (*count)(struct video *v);                         /* as video_frames */
    int (*frame)(struct video *v, int64_t n, struct pixels *); /* as video_read */
    void (*close)(struct video *v);
};

/* Opens a file; the thread that reads it decodes it.  Returns 0, or -1 after an error message;
 * close v in either case. */
int video_open(struct video *v, const char *path);
int video_open_file(struct video *v, const struct video_file *f);
void video_close(struct video *v);

/* The number of frames; the first call reads the whole file.  -1 after an error message. */
int64_t video_frames(struct video *v);

/* Reads frame n resized to `size`, [height][width][3].  Returns 1, 0 if there is no such frame, or
 * -1 after an error message. */
int video_read(struct video *v, int64_t n, const struct picture_size *size, uint8_t *rgb);

/* The two formats, for video_open, which sets path and file. */
int video_open_decoder(struct video *v);
int video_open_raw(struct video *v);

/* Says that there is no memory for `what`, which is no fault of the file (shortage.h).  Returns
 * -1. */
int video_short(const char *path, const char *what);

/* Whether the file starts as the raw format; see examples/data/README.  Returns 1, 0, or -1 after
 * an error message: it cannot be read, or is not a regular file. */
int video_is_raw(const char *path);

#endif

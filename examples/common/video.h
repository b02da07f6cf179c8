/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads frames of a video by their numbers, from FFmpeg's libraries or our raw format.
 *
 * Frame n is the same, bit for bit, whichever frames were read before it: decoding begins at a key
 * frame in front of it, from an empty decoder.  Where data is damaged, frames from there up to the
 * next key frame cannot be read.
 */
#ifndef EXAMPLES_VIDEO_H
#define EXAMPLES_VIDEO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include "resize.h"

/* A file, or a part of one: of a tar file, for FFmpeg. */
struct video_file {
    const char *path, *member; /* member: its name; NULL: all of the file */
    int64_t start, size;       /* of a member, in bytes */
};

/* With names of its own.  Returns 0, or -1 without memory; to is to be freed then, too. */
int video_file_copy(struct video_file *to, const struct video_file *f);
void video_file_free(struct video_file *f);

struct video {
    char *path; /* with the name of the member behind it */
    struct video_file file;
    int64_t width, height; /* as it is seen: turned where the file says so */
    int64_t announced;     /* frames that the file says it has; 0: it does not say */
    double fps;            /* 0: it does not say */
    bool image;            /* a file of one picture */
    /* Set by whoever reads: frames of more pixels are refused (0: none are), and reading ends, with
     * no sentence, when *stop is set (NULL: it does not); hw decodes (NULL: the CPU does). */
    const struct video_hw *hw;
    int64_t most_pixels;
    const atomic_bool *stop;
    /* its own */
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

/* Opens a file, to be decoded by the thread that reads.  Returns 0, or -1 after a sentence; v is to
 * be closed then, too. */
int video_open(struct video *v, const char *path);
int video_open_file(struct video *v, const struct video_file *f);
void video_close(struct video *v);

/* How many frames there are; reads all of the file the first time.  -1 after a sentence. */
int64_t video_frames(struct video *v);

/* Frame n brought to a size, [height][width][3].  Returns 1, 0 if there is no such frame, or -1
 * after a sentence. */
int video_read(struct video *v, int64_t n, const struct picture_size *size, uint8_t *rgb);

/* The two formats, for video_open: path and file are set. */
int video_open_decoder(struct video *v);
int video_open_raw(struct video *v);

/* Whether the file begins as our raw format does; see examples/data/README.  Returns 1, 0, or -1
 * after a sentence: it cannot be read, or is no regular file. */
int video_is_raw(const char *path);

#endif

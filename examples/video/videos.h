/* SPDX-License-Identifier: Apache-2.0 */
/* Clips of the videos in a directory, read when a step needs them. */
#ifndef VIDEO_VIDEOS_H
#define VIDEO_VIDEOS_H

#include <stdbool.h>
#include <stdint.h>
#include "../common/clip.h"
#include "../common/shard.h"
#include "buckets.h"

struct videos {
    bool whole;                            /* one row per file; each step uses a part of it */
    int64_t frames, width, height, stride; /* of a clip; with whole files only the stride is used */
    int64_t usual; /* frames of a clip if `frames` is 0, which then becomes this or less */
    int64_t rows;  /* clips in all */
    struct videos_file *file; /* of a directory: sorted by name */
    int64_t n_files;
    char **left; /* names of files that are no video, or too short */
    int64_t n_left;
    bool lacked; /* a file was left out for want of memory or descriptors */
};

struct videos_file {
    struct video_file file;
    int64_t first, clips; /* rows */
    int64_t frames, height, width;
    double fps;
    char *caption; /* NULL: none */
};

/*
 * Opens every video of a directory, or a single file; the caller sets sizes and stride before.
 * Members of tar files are opened too.  Clips of a file are consecutive; clips > 0: at most this
 * number per file.  A file that is not a video or is too short is skipped with a note.  The caption
 * of NAME.mp4 is in NAME.txt, or under "caption" or "text" in NAME.json, in the same directory or
 * tar file; if there is none, NAME is taken up to its first dot, as by webdataset.
 *
 * A table (.csv), and a directory with videos.txt, are lists of whole files: videos.txt has one
 * relative path per line, prompts.txt their captions.  Returns 0, or -1 after a sentence.
 */
int videos_any(struct videos *v, const char *path, int64_t clips);
/* Allocates the sizes of whole videos, [rows].  Returns 0, or -1 after a sentence. */
int videos_sizes(const struct videos *v, struct bucket_sample **size);
/* The rows of a table in Open-Sora's format, as whole files: columns path (relative to the table),
 * num_frames, height, width, and optionally text; without paths the path column is optional,
 * too. */
int videos_list(struct videos *v, const char *path, bool paths);
void videos_close(struct videos *v);

/* Frames per second of a clip, from the file's rate fps (0: unknown). */
double videos_rate(const struct videos *v, int64_t frames, double fps);
double videos_fps(const struct videos *v, int64_t row);

/* The file of a row (borrowed), and the position of its clip in *c, whose frames and size the
 * caller sets.  In a whole file, place in [0, 1) selects a start between the first and the last
 * possible one. */
const struct video_file *videos_find(const struct videos *v, int64_t row, double place,
                                     struct clip *c);

const char *videos_caption(const struct videos *v, int64_t row);
int64_t videos_frames(const struct videos *v, int64_t row); /* of its file */
const char *videos_name(const void *of, int64_t row);       /* file name */

/* The file with the largest frames, and their pixels. */
const struct video_file *videos_largest(const struct videos *v);
int64_t videos_pixels(const struct videos *v);

/* Refuses clips without a caption unless `empty` gives them an empty one, and names those that have
 * one, as by an empty file.  path: the data, for the sentence.  Returns 0, or -1 after it. */
int videos_check_captions(const struct videos *v, int64_t rows, bool empty, const char *path);

/* ---- captions, internal --------------------------------------------------------------------- */

/* The caption in the file beside a video; NULL: none.  The caller frees it. */
char *caption_beside(const char *video);

/* The captions in a tar file, in any order. */
struct captions_in {
    const char *path;
    const struct shard_member **caption; /* sorted by name */
    int64_t n;
};

/* Returns 0, or -1 after an error message; close c in either case. */
int captions_in_open(struct captions_in *c, const char *path, const struct shard *s);
void captions_in_close(struct captions_in *c);
/* The caption of a video in it; NULL: none.  The caller frees it. */
char *captions_in_find(const struct captions_in *c, const char *video);

#endif

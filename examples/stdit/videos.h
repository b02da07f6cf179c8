/* SPDX-License-Identifier: Apache-2.0 */
/* Clips of the videos in a directory, read when a step needs them. */
#ifndef STDIT_VIDEOS_H
#define STDIT_VIDEOS_H

#include <stdbool.h>
#include <stdint.h>
#include "../common/clip.h"
#include "../common/shard.h"

struct stdit_videos {
    bool whole;                            /* one row per file; each step uses a part of it */
    int64_t frames, width, height, stride; /* of a clip; with whole files only the stride is used */
    int64_t usual; /* frames of a clip if `frames` is 0, which then becomes this or less */
    int64_t rows;  /* clips in all */
    struct stdit_video *file; /* of a directory: sorted by name */
    int64_t n_files;
    bool lacked; /* a file was left out for want of memory or descriptors */
};

struct stdit_video {
    struct video_file file;
    int64_t first, clips; /* rows */
    int64_t frames, height, width;
    double fps;
    char *caption; /* NULL: none */
};

/*
 * Opens every video of a directory, or the single file at path; the caller sets sizes and stride
 * before.  Members of tar files are opened too.  Clips of a file are consecutive; clips > 0: at
 * most this number per file.  A file that is not a video or is too short is skipped with a note.
 * The caption of NAME.mp4 is in NAME.txt, or under "caption" or "text" in NAME.json, in the same
 * directory or tar file; if there is none, NAME is taken up to its first dot, as by webdataset.
 * Returns 0, or -1 after a sentence.
 */
int stdit_videos_open(struct stdit_videos *v, const char *path, int64_t clips);
/* The rows of a table in Open-Sora's format, as whole files: columns path (relative to the table),
 * num_frames, height, width, and optionally text; without paths the path column is optional,
 * too. */
int stdit_videos_list(struct stdit_videos *v, const char *path, bool paths);
/* The videos of videos.txt in a directory, as whole files, one relative path per line; captions are
 * the lines of prompts.txt. */
int stdit_videos_lines(struct stdit_videos *v, const char *directory);
bool stdit_videos_are_listed(const char *path); /* whether there is a videos.txt */
/* Opens any of the three kinds of path; files of a list are whole. */
int stdit_videos_any(struct stdit_videos *v, const char *path, int64_t clips);
void stdit_videos_close(struct stdit_videos *v);

/* Frames per second of a clip, from the file's rate fps (0: unknown). */
double stdit_videos_rate(const struct stdit_videos *v, int64_t frames, double fps);
double stdit_videos_fps(const struct stdit_videos *v, int64_t row);

/* The file of a row (borrowed), and the position of its clip in *c, whose frames and size the
 * caller sets.  In a whole file, place in [0, 1) selects a start between the first and the last
 * possible one. */
const struct video_file *stdit_videos_find(const struct stdit_videos *v, int64_t row, double place,
                                           struct clip *c);

const char *stdit_videos_caption(const struct stdit_videos *v, int64_t row);
int64_t stdit_videos_frames(const struct stdit_videos *v, int64_t row); /* of its file */
const char *stdit_videos_name(const void *of, int64_t row);             /* file name */

/* The file with the largest frames, and their pixels. */
const struct video_file *stdit_videos_largest(const struct stdit_videos *v);
int64_t stdit_videos_pixels(const struct stdit_videos *v);

/* ---- captions, internal --------------------------------------------------------------------- */

/* The caption in the file beside a video; NULL: none.  The caller frees it. */
char *stdit_caption_beside(const char *video);

/* The captions in a tar file, in any order. */
struct stdit_captions_in {
    const char *path;
    const struct shard_member **caption; /* sorted by name */
    int64_t n;
};

/* Returns 0, or -1 after an error message; close c in either case. */
int stdit_captions_in_open(struct stdit_captions_in *c, const char *path, const struct shard *s);
void stdit_captions_in_close(struct stdit_captions_in *c);
/* The caption of a video in it; NULL: none.  The caller frees it. */
char *stdit_captions_in_find(const struct stdit_captions_in *c, const char *video);

#endif

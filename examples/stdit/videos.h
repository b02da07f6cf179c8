/* SPDX-License-Identifier: Apache-2.0 */
/* Clips out of the videos of a directory, read when a step wants them. */
#ifndef STDIT_VIDEOS_H
#define STDIT_VIDEOS_H

#include <stdbool.h>
#include <stdint.h>
#include "../common/clip.h"

struct stdit_videos {
    bool whole; /* a row a file, of which each step takes a part */
    int64_t frames, width, height,
        stride;               /* of a clip; but for the stride not where they are whole */
    int64_t rows;             /* clips in all */
    struct stdit_video *file; /* of a directory: sorted by name */
    int64_t n_files;
};

struct stdit_video {
    struct video_file file;
    int64_t first, clips; /* rows */
    int64_t frames, height, width;
    double fps;
    char *caption; /* what is said of it; NULL: nothing */
};

/*
 * Looks at every video of a directory, or at the one file that path is; sizes and stride are set
 * before.  Of tar files the members are looked at.  Clips of a file follow each other; clips > 0:
 * no more than so many of each.  A file that is no video or too short is left out, which is said.
 * The caption of NAME.mp4 is in NAME.txt, or under "caption" or "text" in NAME.json, beside it or
 * in the same tar file.
 * Returns 0, or -1 after a sentence.
 */
int stdit_videos_open(struct stdit_videos *v, const char *path, int64_t clips);
/* The rows of a table in Open-Sora's form, whole: columns path (from where the table is),
 * num_frames, height, width, and text, which may be missing; without paths that column, too. */
int stdit_videos_list(struct stdit_videos *v, const char *path, bool paths);
/* Those of videos.txt in a directory, whole, a path a line from there on; captions: the lines of
 * prompts.txt. */
int stdit_videos_lines(struct stdit_videos *v, const char *directory);
bool stdit_videos_are_listed(const char *path); /* whether there is a videos.txt */
/* Whichever of the three path is; files of a list are whole. */
int stdit_videos_any(struct stdit_videos *v, const char *path, int64_t clips);
void stdit_videos_close(struct stdit_videos *v);

/* Frames a second of a clip, where the file's are so many a second (0: unknown). */
double stdit_videos_rate(const struct stdit_videos *v, int64_t frames, double fps);
double stdit_videos_fps(const struct stdit_videos *v, int64_t row);

/* The file of a row (borrowed), and where in it a clip is whose frames and size are set: of a whole
 * file the part at a place, 0 <= place < 1 between the first and the last where there are enough.
 */
const struct video_file *stdit_videos_find(const struct stdit_videos *v, int64_t row, double place,
                                           struct clip *c);

const char *stdit_videos_caption(const struct stdit_videos *v, int64_t row);
int64_t stdit_videos_frames(const struct stdit_videos *v, int64_t row);   /* of its file */
const char *stdit_videos_name(const void *of, int64_t row);               /* its last part */

/* The file with the largest frames, and their pixels. */
const struct video_file *stdit_videos_largest(const struct stdit_videos *v);
int64_t stdit_videos_pixels(const struct stdit_videos *v);

/* ---- captions, between its files ------------------------------------------------------------ */

/* Whether a file is one of a caption, by its name. */
bool stdit_caption_is(const char *name);
/* Whether two names differ only behind the first dot of their last part. */
bool stdit_caption_belongs(const char *name, const char *video);
/* That of a file, or of the bytes of it that a member of a tar file has; NULL: there is none.  To
 * be freed. */
char *stdit_caption_read(const char *path, const char *member, int64_t start, int64_t size);
/* That of the file beside a video. */
char *stdit_caption_beside(const char *video);

#endif

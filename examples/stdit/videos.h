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
};

/*
 * Looks at every video of a directory, or at the one file that path is; sizes and stride are set
 * before.  Of tar files the members are looked at.  Clips of a file follow each other; clips > 0:
 * no more than so many of each.  A file that is no video or too short is left out, which is said.
 * Returns 0, or -1 after a sentence.
 */
int stdit_videos_open(struct stdit_videos *v, const char *path, int64_t clips);
/* The rows of a table in Open-Sora's form, whole: columns path (from where the table is),
 * num_frames, height, width; without paths that column may be missing. */
int stdit_videos_list(struct stdit_videos *v, const char *path, bool paths);
void stdit_videos_close(struct stdit_videos *v);

/* Frames a second of a clip, where the file's are so many a second (0: unknown). */
double stdit_videos_rate(const struct stdit_videos *v, int64_t frames, double fps);
double stdit_videos_fps(const struct stdit_videos *v, int64_t row);

/* The file of a row (borrowed), and where in it a clip is whose frames and size are set: of a whole
 * file the part at a place, 0 <= place < 1 between the first and the last where there are enough.
 */
const struct video_file *stdit_videos_find(const struct stdit_videos *v, int64_t row, double place,
                                           struct clip *c);

/* Pixels of the largest frame of any file. */
int64_t stdit_videos_pixels(const struct stdit_videos *v);

#endif

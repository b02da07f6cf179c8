/* SPDX-License-Identifier: Apache-2.0 */
/* Clips out of the videos of a directory, read when a step wants them. */
#ifndef STDIT_VIDEOS_H
#define STDIT_VIDEOS_H

#include <stdbool.h>
#include <stdint.h>

struct stdit_videos {
    bool whole; /* a row a file, of which each step takes a part */
    int64_t frames, width, height,
        stride;               /* of a clip; but for the stride not where they are whole */
    int64_t rows;             /* clips in all */
    struct stdit_video *file; /* of a directory: sorted by name */
    int64_t n_files;
};

struct stdit_video {
    char *path;           /* NULL: a list has sizes alone */
    int64_t first, clips; /* rows */
    int64_t frames, height, width;
    double fps;
};

/*
 * Looks at every video of a directory, or at the one file that path is; sizes and stride are set
 * before.  Clips of a file follow each other; clips > 0: no more than so many of each.  A file that
 * is no video or too short is left out, which is said.  Returns 0, or -1 after a sentence.
 */
int stdit_videos_open(struct stdit_videos *v, const char *path, int64_t clips);
/* The rows of a table in Open-Sora's form, whole: columns path (from where the table is),
 * num_frames, height, width; without paths that column may be missing. */
int stdit_videos_list(struct stdit_videos *v, const char *path, bool paths);
void stdit_videos_close(struct stdit_videos *v);

/* Frames a second of a clip, and its frames [frames][height][width][3], malloc'ed. */
double stdit_videos_fps(const struct stdit_videos *v, int64_t row);
int stdit_videos_read(const struct stdit_videos *v, int64_t row, uint8_t **rgb);

/* Of a whole file the frames from a place on, 0 <= place < 1 between the first and the last where
 * there are enough, cut to these sizes; and their frames a second. */
int stdit_videos_cut(const struct stdit_videos *v, int64_t row, int64_t frames, int64_t height,
                     int64_t width, double place, uint8_t **rgb, float *fps);

#endif

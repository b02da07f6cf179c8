/* SPDX-License-Identifier: Apache-2.0 */
/* Clips out of the videos of a directory, read when a step wants them. */
#ifndef STDIT_VIDEOS_H
#define STDIT_VIDEOS_H

#include <stdint.h>

struct stdit_videos {
    int64_t frames, width, height, stride; /* of a clip */
    int64_t rows;                          /* clips in all */
    struct stdit_video *file;              /* sorted by name */
    int64_t n_files;
};

/*
 * Looks at every video of a directory, or at the one file that path is; sizes and stride are set
 * before.  Clips of a file follow each other; clips > 0: no more than so many of each.  A file that
 * is no video or too short is left out, which is said.  Returns 0, or -1 after a sentence.
 */
int stdit_videos_open(struct stdit_videos *v, const char *path, int64_t clips);
void stdit_videos_close(struct stdit_videos *v);

/* Frames a second of a clip, and its frames [frames][height][width][3], malloc'ed. */
double stdit_videos_fps(const struct stdit_videos *v, int64_t row);
int stdit_videos_read(const struct stdit_videos *v, int64_t row, uint8_t **rgb);

#endif

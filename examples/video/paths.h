/* SPDX-License-Identifier: Apache-2.0 */
/* The videos that video_encode reads, and the names of its output files. */
#ifndef VIDEO_PATHS_H
#define VIDEO_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../common/video.h"

struct video_paths {
    char **path;
    int64_t n;
};

/* Opens one video, or the lines of a list without blank lines.  Refuses two videos with one name,
 * because their files of latents would be the same.  Returns 0, or -1 after an error message. */
int video_paths_open(struct video_paths *v, const char *video, const char *list);
/* Opens the lines of a list, which may name a file twice. */
int video_paths_list(struct video_paths *v, const char *list);
void video_paths_close(struct video_paths *v);

/* Writes DIR/NAME.safetensors for video i to path; NAME is the video's name without directory and
 * extension. */
void video_paths_target(const struct video_paths *v, int64_t i, const char *dir, char *path,
                        size_t size);
bool video_paths_is_there(const char *path);

/* Reads frames [frames][height][width][3], malloc'ed, without keeping the aspect ratio: every n /
 * frames-th frame of a video of n, from the first; repeats the last one if there are fewer.  NULL
 * after an error message. */
uint8_t *spread_read(const char *path, int64_t frames, int64_t height, int64_t width);

/* The same for an open video, into rgb.  Returns 0, or -1 after an error message. */
int spread_take(struct video *v, int64_t frames, int64_t height, int64_t width, uint8_t *rgb);

#endif

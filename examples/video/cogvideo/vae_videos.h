/* SPDX-License-Identifier: Apache-2.0 */
/* The videos that cogvideo-encode reads, and the names of its output files. */
#ifndef COGVIDEO_VAE_VIDEOS_H
#define COGVIDEO_VAE_VIDEOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../common/video.h"

struct cogvae_videos {
    char **path;
    int64_t n;
};

/* Opens one video, or the lines of a list without blank lines.  Refuses two videos with one name,
 * because their files of latents would be the same.  Returns 0, or -1 after an error message. */
int cogvae_videos_open(struct cogvae_videos *v, const char *video, const char *list);
/* Opens the lines of a list, which may name a file twice. */
int cogvae_videos_list(struct cogvae_videos *v, const char *list);
void cogvae_videos_close(struct cogvae_videos *v);

/* Writes DIR/NAME.safetensors for video i to path; NAME is the video's name without directory and
 * extension. */
void cogvae_videos_target(const struct cogvae_videos *v, int64_t i, const char *dir, char *path,
                          size_t size);
bool cogvae_video_is_there(const char *path);

/* Reads frames [frames][height][width][3], malloc'ed, without keeping the aspect ratio: every n /
 * frames-th frame of a video of n, from the first; repeats the last one if there are fewer.  NULL
 * after an error message. */
uint8_t *cogvae_video_read(const char *path, int64_t frames, int64_t height, int64_t width);

/* The same for an open video, into rgb.  Returns 0, or -1 after an error message. */
int cogvae_video_take(struct video *v, int64_t frames, int64_t height, int64_t width, uint8_t *rgb);

#endif

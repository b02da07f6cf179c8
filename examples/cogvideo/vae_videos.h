/* SPDX-License-Identifier: Apache-2.0 */
/* The videos that cogvideo-encode reads, and the names of what it writes. */
#ifndef COGVIDEO_VAE_VIDEOS_H
#define COGVIDEO_VAE_VIDEOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../common/video.h"

struct cogvae_videos {
    char **path;
    int64_t n;
};

/* One video, or the lines of a list, blank ones left out.  Two of one name (their files of latents
 * would be one) are refused.  Returns 0, or -1 after a sentence. */
int cogvae_videos_open(struct cogvae_videos *v, const char *video, const char *list);
/* The lines of a list, which may name a file twice. */
int cogvae_videos_list(struct cogvae_videos *v, const char *list);
void cogvae_videos_close(struct cogvae_videos *v);

/* DIR/NAME.safetensors for video i, NAME being its own without directory and ending. */
void cogvae_videos_target(const struct cogvae_videos *v, int64_t i, const char *dir, char *path,
                          size_t size);
bool cogvae_video_is_there(const char *path);

/* Frames [frames][height][width][3], malloc'ed, the aspect not kept: every n / frames-th of a video
 * of n from the first on; the last one again where there are fewer.  NULL after a sentence. */
uint8_t *cogvae_video_read(const char *path, int64_t frames, int64_t height, int64_t width);

/* The same of a video that is open, into rgb.  Returns 0, or -1 after a sentence. */
int cogvae_video_take(struct video *v, int64_t frames, int64_t height, int64_t width, uint8_t *rgb);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Clips: frames of a part of a video, resized to one size. */
#ifndef EXAMPLES_CLIP_H
#define EXAMPLES_CLIP_H

#include "video.h"

/*
 * Selects frames from a window of frames * stride frames that starts at `skip` (the window ends
 * with the video).  The frames are evenly spaced from the first to the last of the window, as in
 * Open-Sora 1.2.  With stride 1 they are consecutive; otherwise distances vary by up to one frame.
 */
struct clip {
    struct picture_size size;
    int64_t frames; /* frames of the clip */
    int64_t skip, stride;
    int64_t begin, part; /* take only `part` frames from `begin` on; part 0: all */
};

/* The path of the bundled clip, in the source tree or where it was installed; a raw clip without
 * FFmpeg.  NULL after an error message. */
const char *clip_shipped(void);

/* The index of the clip's frame i in a video of `all` frames. */
int64_t clip_place(const struct clip *c, int64_t all, int64_t i);

/* Reads the frames of a clip, [frames][height][width][3].  Returns 0, or -1 after an error message.
 */
int clip_take(const struct clip *c, struct video *v, uint8_t *rgb);

/* The one clip of a video. */
struct clip_whole {
    struct picture_size size;
    int64_t frames;
    double fps; /* frames a second, from the first on; 0: the frames of the whole video */
};

/* The number of frames that the video has for such a clip, or -1 after an error message. */
int64_t clip_whole_has(const struct clip_whole *w, struct video *v);

/* The frames nearest to the times of the clip, or every n / frames-th frame of a video of n; the
 * last one is repeated if there are fewer.  Returns as clip_take. */
int clip_take_whole(const struct clip_whole *w, struct video *v, uint8_t *rgb);

/* Reads a clip from a file, malloc'ed; *fps is the file's frame rate.  NULL after an error message.
 */
uint8_t *clip_read(const struct clip *c, const struct video_file *file, double *fps);

#endif

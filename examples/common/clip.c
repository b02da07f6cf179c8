/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the frames of a clip: see clip.h. */
#include "clip.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "memory.h"
#include "say.h"

#ifndef CLIP_DIR
#define CLIP_DIR "examples/data"
#endif

const char *clip_shipped(void)
{
    static const char *const places[] = {
#ifdef HAVE_FFMPEG
        "examples/data/bunny.mp4", CLIP_DIR "/bunny.mp4",
#endif
        "examples/data/bunny.rgb", CLIP_DIR "/bunny.rgb"};
    size_t n = sizeof places / sizeof *places;

    for (size_t i = 0; i < n; i++)
        if (!access(places[i], R_OK))
            return places[i];
    say_note("the included clip is neither in ./examples/data nor in %s: run \"make install\" "
             "or start in the source tree, or name a clip with --video FILE",
             CLIP_DIR);
    return NULL;
}

/* As numpy's linspace from the first to the last frame of the window, rounded down to integers. */
int64_t clip_place(const struct clip *c, int64_t all, int64_t i)
{
    int64_t window = c->frames * c->stride;
    int64_t last = (window < all - c->skip ? window : all - c->skip) - 1;

    if (c->frames == 1 || c->stride == 1)
        return c->skip + i;
    double step = (double)last / (double)(c->frames - 1), at = (double)i * step;
    return i == c->frames - 1 ? c->skip + last : (int64_t)floor(at + (double)c->skip);
}

static int check_length(const struct clip *c, struct video *v, int64_t all)
{
    int64_t needed = c->skip + (c->frames - 1) * c->stride + 1;

    if (all < 0)
        return -1;
    if (needed <= all)
        return 0;
    if (needed <= v->announced)
        return say_fail("%s: ends before the %lld announced frames", v->path,
                        (long long)v->announced);
    return say_fail("%s: has %lld frames; --frames, --stride and --clips ask for %lld", v->path,
                    (long long)all, (long long)needed);
}

int clip_take(const struct clip *c, struct video *v, uint8_t *rgb)
{
    int64_t all = video_frames(v), frame = c->size.width * c->size.height * 3;
    int64_t n = c->part ? c->part : c->frames;

    if (check_length(c, v, all))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t place = clip_place(c, all, c->begin + i);
        int rc = video_read(v, place, &c->size, rgb + i * frame);
        if (!rc)
            say_fail("%s: ends before frame %lld", v->path, (long long)place);
        if (rc <= 0)
            return -1;
    }
    return 0;
}

uint8_t *clip_read(const struct clip *c, const struct video_file *file, double *fps)
{
    uint8_t *rgb = MEMORY_FOR(3, c->frames, c->size.width, c->size.height);
    struct video v;
    int rc = video_open_file(&v, file);

    if (!rc && !rgb)
        rc = say_fail("%s: no memory for %lld frames", file->path, (long long)c->frames);
    if (!rc)
        rc = clip_take(c, &v, rgb);
    *fps = v.fps;
    video_close(&v);
    if (!rc)
        return rgb;
    free(rgb);
    return NULL;
}

/* ---- whole videos -------------------------------------------------------------------------- */

/* A picture is one frame at every rate. */
static bool has_rate(const struct clip_whole *w, const struct video *v)
{
    return w->fps > 0 && !v->image;
}

int64_t clip_whole_has(const struct clip_whole *w, struct video *v)
{
    const int64_t n = video_frames(v);

    if (n < 0)
        return -1;
    if (!n)
        return say_fail("%s: holds no frame", v->path);
    if (!has_rate(w, v))
        return n;
    if (!(v->fps > 0))
        return say_fail("%s: does not say how many frames a second it has, which --fps needs",
                        v->path);
    return (int64_t)(((double)n - 0.5) * w->fps / v->fps) + 1;
}

/* The place of frame i in a video of n frames, which has `all` frames for the clip. */
static int64_t whole_place(const struct clip_whole *w, const struct video *v, int64_t n,
                           int64_t all, int64_t i)
{
    const int64_t stride = n / (n < w->frames ? n : w->frames);
    const int64_t at = has_rate(w, v) ? (int64_t)((double)i * v->fps / w->fps + 0.5) : i * stride;

    return i < all && at < n ? at : n - 1; /* at twice the rate the last half frame rounds to n */
}

int clip_take_whole(const struct clip_whole *w, struct video *v, uint8_t *rgb)
{
    const int64_t all = clip_whole_has(w, v), frame = w->size.width * w->size.height * 3;

    if (all < 0)
        return -1;
    for (int64_t i = 0; i < w->frames; i++) {
        int64_t at = whole_place(w, v, video_frames(v), all, i);
        int rc = video_read(v, at, &w->size, rgb + i * frame);
        if (!rc)
            say_fail("%s: ends before frame %lld", v->path, (long long)at);
        if (rc <= 0)
            return -1;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* From latents to a video file: see video.h. */
#include "movie.h"
#include <stdlib.h>
#include "../common/sink.h"
#include "../common/memory.h"
#include "../common/say.h"

#define WHOLE 0x1.8p23f /* floats of this size are whole numbers */

/* Converts pixels to 8 bits: x/2 + 1/2 clamped to [0, 1], times 255, rounded to nearest, half to
 * even.  A clip has 10^8 pixels and more: a sum with WHOLE rounds them in vectors, as lrintf would
 * one by one. */
static void to_bytes(const float *restrict y, int64_t n, uint8_t *restrict rgb)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float x = y[i] * 0.5f + 0.5f;
        x = (x > 0.f ? x : 0.f) * 255.f; /* NaN becomes 0 */
        x = x < 255.f ? x : 255.f;       /* between product and sum: they are not fused */
        x += WHOLE;
        rgb[i] = (uint8_t)(int32_t)(x - WHOLE);
    }
}

/* rgb has the capacity of one frame. */
static int put_frames(struct sink *s, const float *y, int64_t n, uint8_t *rgb)
{
    int64_t values = s->width * s->height * 3;

    for (int64_t f = 0; f < n; f++) {
        to_bytes(y + f * values, values, rgb);
        if (sink_put(s, rgb))
            return -1;
    }
    return 0;
}

/* Decodes pass by pass: to s, or if s is NULL consecutively into rgb. */
static int decode_whole(struct video_coder *k, const struct video_latents *l, struct sink *s,
                        uint8_t *rgb)
{
    int64_t most = video_coder_pass_out(k, 0) + k->kind->out(k->own, k->passes.each, false, true);
    float *y = MEMORY_FOR(sizeof *y, most, video_coder_out(k));
    int rc = y ? video_coder_run(k, l->z) : say_fail("no memory for a pass of frames");

    for (int64_t pass = 0; pass < k->passes.n && !rc; pass++) {
        int64_t frames = video_coder_pass_out(k, pass), n = frames * video_coder_out(k);
        rc = video_coder_take(k, pass, y);
        if (!rc && s)
            rc = put_frames(s, y, frames, rgb);
        if (rc || s)
            continue;
        to_bytes(y, n, rgb);
        rgb += n;
    }
    free(y);
    return rc;
}

static int decode_tiles(struct video_coder *k, const struct video_latents *l, struct sink *s,
                        uint8_t *rgb)
{
    float *y = MEMORY_FOR(sizeof *y, s->frames, s->width * s->height, 3);
    int rc = y ? video_coder_decode_tiled(k, l->z, l->frames, l->height, l->width, y)
               : say_fail("no memory for the frames");

    if (!rc)
        rc = put_frames(s, y, s->frames, rgb);
    free(y);
    return rc;
}

static void unscale(const struct video_coder *k, struct video_latents *l)
{
    const struct autoencoder_sizes *s = &k->sizes;
    int64_t n = l->frames * l->height * l->width * l->channels;

    for (int64_t i = 0; i < n; i++) {
        int64_t c = i % l->channels;
        l->z[i] = s->mean ? (float)((double)l->z[i] * s->deviation[c] + s->mean[c])
                          : (float)((double)l->z[i] / s->scaling);
    }
}

int movie_frames(struct video_coder *k, struct video_latents *l, uint8_t *rgb)
{
    unscale(k, l);
    return decode_whole(k, l, NULL, rgb);
}

int movie_write(struct video_coder *k, struct video_latents *l, const char *path, double fps,
                bool tiles)
{
    const struct autoencoder_clip clip = {.frames = l->frames, .decode = true};
    int64_t factor = k->sizes.factor;
    struct sink s = {.width = l->width * factor,
                     .height = l->height * factor,
                     .frames = autoencoder_clip_out(k->kind, k->own, &clip),
                     .fps = fps};
    uint8_t *rgb = malloc((size_t)(s.width * s.height * 3));
    int rc = rgb ? sink_open(&s, path) : say_fail("no memory for a frame");

    unscale(k, l);
    if (!rc)
        rc = tiles ? decode_tiles(k, l, &s, rgb) : decode_whole(k, l, &s, rgb);
    if (!rc)
        rc = sink_finish(&s);
    sink_close(&s);
    free(rgb);
    if (!rc)
        say_print("video: %lld frames of %lld x %lld in %s\n", (long long)s.frames,
                  (long long)s.width, (long long)s.height, path);
    return rc ? -1 : 0;
}

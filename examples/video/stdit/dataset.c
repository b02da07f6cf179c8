/* SPDX-License-Identifier: Apache-2.0 */
/* Training data: clips in pixel space, precomputed features, or noise of a given shape. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/clip.h"
#include "../../common/memory.h"
#include "ckpt_tools.h"
#include "dataset.h"

/* Width of the fixed caption, of one token, for clips without a text encoder. */
enum { CLIP_CAPTION = 64 };

/* One caption for all rows, with every token valid. */
static int fixed_text(struct video_data *d, uint64_t seed)
{
    int64_t row = video_data_y(d), tokens = d->tokens;

    d->text_rows = 1;
    d->y = malloc((size_t)row * sizeof *d->y);
    d->mask = malloc((size_t)tokens * sizeof *d->mask);
    if (!d->y || !d->mask)
        return say_fail("no memory for the text features");
    ckpt_fill_normal(seed, 0, STREAM_DATA, d->y, row);
    for (int64_t i = 0; i < tokens; i++)
        d->mask[i] = 1;
    return 0;
}

static int fixed_rate(struct video_data *d, float fps)
{
    d->fps = malloc((size_t)d->shapes.rows * sizeof *d->fps);
    if (!d->fps)
        return say_fail("no memory for %lld samples", (long long)d->shapes.rows);
    for (int64_t i = 0; i < d->shapes.rows; i++)
        d->fps[i] = fps;
    return 0;
}

/* ---- clips --------------------------------------------------------------------------------- */

/* [T][H][W][3] bytes -> [3][T][H][W] in [-1, 1]. */
static void clip_to_values(struct video_data *d, const uint8_t *rgb, float *z)
{
    const struct video_geometry *g = &d->shapes.shape->geometry;
    int64_t plane = g->height * g->width, frames = g->frames;

    for (int64_t f = 0; f < frames; f++)
        for (int64_t p = 0; p < plane; p++)
            for (int64_t channel = 0; channel < 3; channel++) {
                int64_t at = (channel * frames + f) * plane + p;
                z[at] = (float)rgb[(f * plane + p) * 3 + channel] / 127.5f - 1.f;
            }
}

/* Consecutive clips of a file. */
static int read_clips(struct video_data *d, struct video *v, int64_t stride)
{
    const struct video_geometry *g = &d->shapes.shape->geometry;
    struct clip c = {.size = {g->width, g->height, true}, .frames = g->frames, .stride = stride};
    uint8_t *rgb = MEMORY_FOR(3, g->frames, g->height, g->width);
    int64_t row = video_data_z(d, d->shapes.shape);
    int rc = 0;

    d->z = MEMORY_FOR(sizeof *d->z, d->shapes.rows, row);
    if (!d->z || !rgb)
        rc = say_fail("no memory for the clips");
    for (int64_t i = 0; i < d->shapes.rows && !rc; i++) {
        c.skip = i * c.frames * stride;
        rc = clip_take(&c, v, rgb);
        if (!rc)
            clip_to_values(d, rgb, d->z + i * row);
    }
    free(rgb);
    return rc;
}

/*
 * Each pixel is one latent cell, so the model and the schedule get the sizes of a video eight times
 * as large on each side, as if an autoencoder had encoded it.
 */
static int data_clip(struct video_data *d, const struct video_options *o)
{
    bool shipped = !*o->video;
    const char *path = shipped ? clip_shipped() : o->video;
    int64_t frames = o->frames ? o->frames : 6, width = o->width ? o->width : 32;
    int64_t height = o->height ? o->height : 20;
    int64_t stride = o->stride ? o->stride : shipped ? 3 : 1;
    struct video v;

    if (video_shapes_make(&d->shapes, 1))
        return -1;
    d->pixels = true;
    d->shapes.rows = o->clips ? o->clips : 1;
    d->channels = 3;
    d->text_width = o->caption_channels ? o->caption_channels : CLIP_CAPTION;
    d->tokens = 1;
    d->shapes.shape->geometry = (struct video_geometry){.frames = frames,
                                                        .height = height,
                                                        .width = width,
                                                        .pixel_height = 8.0 * (double)height,
                                                        .pixel_width = 8.0 * (double)width};
    if (!path)
        return -1;
    if (o->in_channels && o->in_channels != 3)
        return say_fail("--in-channels %lld: a video has 3", (long long)o->in_channels);
    int rc = video_open(&v, path) || read_clips(d, &v, stride);
    double rate = v.fps;
    video_close(&v);
    if (rc)
        return -1;
    double fps = frames == 1 ? 120 : floor(rate / (double)stride + 1e-6);
    snprintf(d->title, sizeof d->title, "clip: %s, %lld x %lld frames of %lld x %lld, %g a second",
             path, (long long)d->shapes.rows, (long long)frames, (long long)width,
             (long long)height, fps);
    return fixed_rate(d, (float)fps) || fixed_text(d, (uint64_t)o->library.seed) ? -1 : 0;
}

/* ---- noise --------------------------------------------------------------------------------- */

static int data_noise(struct video_data *d, const struct video_options *o)
{
    const char *text = o->latent;

    if (video_shapes_make(&d->shapes, 1))
        return -1;
    d->shapes.rows = o->train.samples;
    d->channels = o->in_channels ? o->in_channels : 4;
    d->text_width = o->caption_channels ? o->caption_channels : CLIP_CAPTION;
    d->tokens = o->text_tokens ? o->text_tokens : 1;
    struct video_geometry *g = &d->shapes.shape->geometry;
    *g = (struct video_geometry){.frames = o->latent_frames,
                                 .height = o->latent_height,
                                 .width = o->latent_width,
                                 .pixel_height = 8.0 * (double)o->latent_height,
                                 .pixel_width = 8.0 * (double)o->latent_width};
    d->z = MEMORY_FOR(sizeof *d->z, d->shapes.rows, d->channels, g->frames, g->height, g->width);
    if (!d->z)
        return say_fail("--latent %s: no memory for %lld samples", text, (long long)d->shapes.rows);
    ckpt_fill_normal((uint64_t)o->library.seed, 0, STREAM_DATA, d->z,
                     d->shapes.rows * video_data_z(d, d->shapes.shape));
    snprintf(d->title, sizeof d->title, "random latents %s, %lld samples", text,
             (long long)d->shapes.rows);
    return fixed_rate(d, 24) || fixed_text(d, (uint64_t)o->library.seed) ? -1 : 0;
}

/* ---- clips for an autoencoder --------------------------------------------------------------- */

void stdit_shape_fill(const struct stdit_vae *v, struct video_shape *s, int64_t frames,
                      int64_t height, int64_t width)
{
    struct video_clips *c = &s->clips;

    stdit_vae_size(v, c, frames, height, width);
    s->geometry = (struct video_geometry){.frames = c->latent_frames,
                                          .height = c->rows,
                                          .width = c->columns,
                                          .pixel_height = (double)height,
                                          .pixel_width = (double)width,
                                          .pixel_frames = frames};
}

int stdit_data_shape(struct video_data *d, const struct video_options *o, int64_t frames)
{
    int64_t width = o->width ? o->width : 64, height = o->height ? o->height : 40;

    if (video_shapes_make(&d->shapes, 1) || stdit_vae_configure(&d->vae, o))
        return -1;
    d->channels = d->vae.channels;
    stdit_shape_fill(&d->vae, d->shapes.shape, frames, height, width);
    return 0;
}

int stdit_data_caption(struct video_data *d, const struct video_options *o)
{
    if (o->text)
        return stdit_data_text(d, o->text);
    d->null_caption = true;
    d->tokens = o->text_tokens ? o->text_tokens : 1;
    d->text_width = o->caption_channels ? o->caption_channels : CLIP_CAPTION;
    return fixed_text(d, (uint64_t)o->library.seed);
}

static int check_text(const struct video_data *d, const struct video_options *o)
{
    return d->text_rows == 1 || d->text_rows == d->shapes.rows
               ? 0
               : say_fail("%s: %lld rows of text for %lld clips", o->text, (long long)d->text_rows,
                          (long long)d->shapes.rows);
}

static int data_text(struct video_data *d, const struct video_options *o, bool captions)
{
    if (captions && video_texts_asked(o)) {
        d->texts = (struct video_texts){.reader = TEXT_OPENSORA, .family = "opensora"};
        return video_texts_open(&d->texts, d, o);
    }
    return stdit_data_caption(d, o) ? -1 : check_text(d, o);
}

static int data_videos(struct video_data *d, const struct video_options *o, bool captions)
{
    struct videos *v = &d->videos;

    *v = (struct videos){
        .frames = o->frames, .usual = VAE_CHUNK, .stride = o->stride ? o->stride : 1};
    if (videos_any(v, o->video_dir, o->clips))
        return -1;
    const int64_t frames = v->frames ? v->frames : v->usual;
    if (stdit_data_shape(d, o, frames))
        return -1;
    v->frames = frames;
    v->width = d->shapes.shape->clips.width;
    v->height = d->shapes.shape->clips.height;
    d->shapes.rows = v->rows;
    if (data_text(d, o, captions) || fixed_rate(d, 0))
        return -1;
    for (int64_t i = 0; i < d->shapes.rows; i++)
        d->fps[i] = (float)videos_fps(v, i);
    snprintf(
        d->title, sizeof d->title,
        "videos: %s, %lld x %lld frames of %lld x %lld, latents [%lld, %lld, %lld, %lld]",
        o->video_dir, (long long)d->shapes.rows, (long long)frames, (long long)v->width,
        (long long)v->height, (long long)d->channels, (long long)d->shapes.shape->geometry.frames,
        (long long)d->shapes.shape->geometry.height, (long long)d->shapes.shape->geometry.width);
    return 0;
}

/* ---- buckets -------------------------------------------------------------------------------- */

static void fill_shape(const void *coder, struct video_shape *s, int64_t frames, int64_t height,
                       int64_t width)
{
    stdit_shape_fill(coder, s, frames, height, width);
}

/* For training on noise, the autoencoder is configured to compute latent sizes, but not created. */
int stdit_data_buckets(struct video_data *d, const struct video_options *o)
{
    struct stdit_vae v;

    if (stdit_vae_configure(&v, o))
        return -1;
    const struct video_sizing sizing = {vae_factor(&v.plain.model.config), fill_shape, &v};
    d->channels = v.channels;
    if (!d->drawn)
        d->vae = v;
    if (d->cache.rows)
        return video_cached_buckets(d, o, &sizing);
    return video_shapes_read(&d->shapes, o->buckets, o->train.batch == CKPT_AUTO,
                             o->stride ? o->stride : 1, &sizing);
}

static int open_samples(struct video_data *d, const struct video_options *o)
{
    struct videos *v = &d->videos;

    v->whole = true;
    v->stride = o->stride ? o->stride : 1;
    if (o->latent)
        return videos_list(v, o->latent, false);
    return videos_any(v, o->video_dir, 0);
}

static int data_bucketed(struct video_data *d, const struct video_options *o, bool captions)
{
    const char *path = o->latent ? o->latent : o->video_dir;

    d->drawn = o->latent != NULL;
    if (open_samples(d, o) || videos_sizes(&d->videos, &d->shapes.size))
        return -1;
    d->shapes.rows = d->videos.rows;
    if (stdit_data_buckets(d, o))
        return -1;
    d->text_width = o->caption_channels ? o->caption_channels : CLIP_CAPTION;
    d->tokens = o->text_tokens ? o->text_tokens : 1;
    snprintf(d->title, sizeof d->title, "%s: %s, %lld in %d buckets of %s",
             d->drawn ? "random latents" : "videos", path, (long long)d->shapes.fitting,
             d->shapes.n, o->buckets);
    if (fixed_rate(d, 24))
        return -1;
    if (d->drawn)
        return fixed_text(d, (uint64_t)o->library.seed);
    return data_text(d, o, captions);
}

/* ---- all of them --------------------------------------------------------------------------- */

/* Fills in an option from the data; an explicit value must match the data. */
static int agree(const char *option, int64_t *value, int64_t data)
{
    if (!*value)
        *value = data;
    if (*value == data)
        return 0;
    return say_fail("--%s (or the preset) is %lld, the data has %lld", option, (long long)*value,
                    (long long)data);
}

int stdit_data_agree(struct video_data *d, struct video_options *o)
{
    if (agree("in-channels", &o->in_channels, d->channels) ||
        agree("caption-channels", &o->caption_channels, d->text_width))
        return -1;
    if (!o->text_tokens)
        o->text_tokens = d->tokens;
    if (o->text_tokens < d->tokens)
        return say_fail("the text has %lld tokens, the null caption %lld; raise --text-tokens",
                        (long long)d->tokens, (long long)o->text_tokens);
    for (int i = 0; i < d->shapes.n; i++)
        d->shapes.shape[i].geometry.tokens = d->tokens;
    return 0;
}

int stdit_data_open(struct video_data *d, struct video_options *o, bool captions)
{
    int rc;

    *d = (struct video_data){0};
    if (o->cache)
        rc = stdit_data_cached(d, o);
    else if (o->buckets)
        rc = data_bucketed(d, o, captions);
    else if (o->features)
        rc = stdit_data_features(d, o->features);
    else if (o->video_dir)
        rc = data_videos(d, o, captions);
    else
        rc = o->video ? data_clip(d, o) : data_noise(d, o);
    if (!rc && !d->shapes.buckets.n)
        d->shapes.shape->batch = o->train.batch;
    return rc ? -1 : stdit_data_agree(d, o);
}

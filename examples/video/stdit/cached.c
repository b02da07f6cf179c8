/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clips of a cache made by video-encode.  Rows are the rows of its data, including rows without
 * latents, so the order of the steps is the same as without a cache.
 */
#include <stdlib.h>
#include <string.h>
#include "dataset.h"

int64_t stdit_cached_row(const struct video_data *d, const struct video_shape *s, int64_t row,
                         float *z, const struct stdit_text *text)
{
    row = video_cached_find(d, s, row);
    if (cache_read_latents(&d->cache, row, z))
        return -1;
    if (d->y)
        return row;
    if (cache_read_text(&d->cache, row, d->tokens, text->y))
        return -1;
    for (int64_t i = 0; i < d->tokens; i++)
        text->mask[i] = i < d->cache.row[row].tokens;
    return row;
}

/* ---- checks of the encoder ------------------------------------------------------------------- */

static int check_encoder(const struct video_data *d, const struct video_options *o)
{
    const char *family = cache_setup_text(&d->cache, "family");
    const char *vae = cache_setup_text(&d->cache, "vae");
    uint64_t sum;

    if (!family || strcmp(family, "opensora"))
        return say_fail("--cache %s: was not made by an autoencoder of Open-Sora", o->cache);
    if (!o->vae)
        return 0;
    if (cache_sum_path(o->vae, &sum))
        return -1;
    return vae && strtoull(vae, NULL, 16) == sum
               ? 0
               : say_fail("--cache %s: was made by another autoencoder than --vae %s", o->cache,
                          o->vae);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static int one_shape(struct video_data *d, const struct video_options *o)
{
    int64_t first = 0;

    while (!cache_has(&d->cache.row[first], CACHE_LATENTS))
        first++;
    const struct cache_note *n = &d->cache.row[first].note;
    struct stdit_vae v;
    if (video_shapes_make(&d->shapes, 1) || stdit_vae_configure(&v, o))
        return -1;
    d->vae = v;
    d->channels = v.channels;
    stdit_shape_fill(&v, d->shapes.shape, n->frames, n->height, n->width);
    for (int64_t i = 0; i < d->shapes.rows; i++)
        if (cache_has(&d->cache.row[i], CACHE_LATENTS) &&
            !video_cached_fits(d, d->shapes.shape, &d->cache.row[i]))
            return video_cached_refuse(d, o, i);
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int take_text(struct video_data *d, const struct video_options *o)
{
    const json_t *text = json_object_get(d->cache.setup, "text");

    if (!text || o->text)
        return stdit_data_caption(d, o);
    d->text_rows = d->shapes.rows;
    d->tokens = (int64_t)json_integer_value(json_object_get(text, "tokens"));
    d->text_width = d->cache.width;
    return d->tokens >= d->cache.tokens && d->cache.width
               ? 0
               : say_fail("--cache %s: its text does not match its manifest", o->cache);
}

static int take_rates(struct video_data *d)
{
    d->fps = calloc((size_t)d->shapes.rows, sizeof *d->fps);
    if (!d->fps)
        return say_fail("no memory for %lld samples", (long long)d->shapes.rows);
    for (int64_t i = 0; i < d->shapes.rows; i++)
        d->fps[i] = (float)d->cache.row[i].note.fps;
    return 0;
}

int stdit_data_cached(struct video_data *d, struct video_options *o)
{
    if (cache_open(&d->cache, o->cache, o->check_cache) || check_encoder(d, o))
        return -1;
    const char *model = cache_setup_text(&d->cache, "vae_model");
    o->vae_model = model ? model : o->vae_model;
    o->stride = cache_setup_int(&d->cache, "stride", 1);
    d->shapes.rows = d->cache.rows;
    if ((o->buckets ? stdit_data_buckets(d, o) : one_shape(d, o)) || take_text(d, o) ||
        take_rates(d))
        return -1;
    if (!o->vae) /* nothing is decoded */
        d->vae = (struct stdit_vae){.channels = 0};
    snprintf(d->title, sizeof d->title, "cache: %s, %lld of %lld clips, %lld could not be read",
             o->cache, (long long)d->cache.present, (long long)d->shapes.rows,
             (long long)d->cache.bad);
    return d->text_rows == 1 || d->text_rows == d->shapes.rows
               ? 0
               : say_fail("%s: %lld rows of text for %lld clips", o->text, (long long)d->text_rows,
                          (long long)d->shapes.rows);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a cache made by video-encode: see dataset.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "dataset.h"

static bool is_like(const struct cache_row *a, const struct cache_row *b, int axes)
{
    return !memcmp(a->shape, b->shape, (size_t)axes * sizeof *a->shape);
}

/* Whether the text of a row makes that of a sample: of all tokens, or padded with zeros to them. */
static bool has_text(const struct video_data *d, const struct cache_row *r, bool padded)
{
    return padded ? r->tokens > 0 && r->tokens <= d->tokens : r->tokens == d->tokens;
}

static int check_sight(const struct video_data *d, const struct cache_row *r, const char *path)
{
    const struct video_sizes *s = d->sizes;

    if (!s->sight_tokens)
        return 0;
    if (!cache_has(r, CACHE_SIGHT))
        return say_fail("%s: clip %lld (%s) has no features of its first frame, which this model "
                        "reads: encode with --first-frame --image-encoder DIR",
                        path, (long long)r->note.row, r->note.name);
    return r->sight[0] == s->sight_tokens && r->sight[1] == s->sight_width
               ? 0
               : say_fail("%s: clip %lld (%s) has features of its first frame of %lld x %lld; this "
                          "model reads %lld x %lld",
                          path, (long long)r->note.row, r->note.name, (long long)r->sight[0],
                          (long long)r->sight[1], (long long)s->sight_tokens,
                          (long long)s->sight_width);
}

/* Lists the rows with latents, which must all have one shape or, with buckets, as many channels. */
static int list_rows(struct video_data *d, const char *path, bool padded, bool buckets)
{
    const struct cache *c = &d->cache;

    d->cached = calloc((size_t)c->present, sizeof *d->cached);
    if (!d->cached)
        return say_fail("%s: no memory for %lld clips", path, (long long)c->present);
    for (int64_t i = 0; i < c->rows; i++) {
        const struct cache_row *r = &c->row[i];
        if (!cache_has(r, CACHE_LATENTS))
            continue;
        if (!is_like(r, &c->row[d->shapes.rows ? d->cached[0] : i], buckets ? 1 : 4))
            return say_fail("%s: clip %lld (%s) has another size than the others; "
                            "--buckets trains on several sizes",
                            path, (long long)i, r->note.name);
        if (c->tokens && !has_text(d, r, padded))
            return say_fail("%s: clip %lld has no text features, or features of another length",
                            path, (long long)i);
        if (check_sight(d, r, path))
            return -1;
        d->cached[d->shapes.rows++] = i;
    }
    return 0;
}

/* By one row with latents: all have the same. */
static int take_channels(struct video_data *d, const char *path)
{
    const struct cache *c = &d->cache;
    const int64_t *shape = c->row[d->cached[0]].shape;

    if (!c->tokens)
        return say_fail("%s: has no text; video-encode --text-encoder encodes it", path);
    d->conditions = shape[0] == 2 * d->channels;
    if (d->sizes->whole_image && !d->conditions)
        return say_fail("%s: has no latents of a clip of the first frame and grey ones, which this "
                        "model reads: encode with --first-frame",
                        path);
    if ((shape[0] != d->channels && !d->conditions) || c->width != d->text_width)
        return say_fail("%s: has %lld channels of latents and %lld of text; the model takes %lld "
                        "and %lld",
                        path, (long long)shape[0], (long long)c->width, (long long)d->channels,
                        (long long)d->text_width);
    return 0;
}

static void take_shape(struct video_data *d)
{
    const int64_t *shape = d->cache.row[d->cached[0]].shape;

    d->repeats = shape[1] % d->sizes->patch_frames != 0;
    d->shapes.shape->geometry = (struct video_geometry){.frames = shape[1] + d->repeats,
                                                        .height = shape[2],
                                                        .width = shape[3],
                                                        .tokens = d->tokens};
}

/* ---- buckets --------------------------------------------------------------------------------- */

static void fill(const void *model, struct video_shape *s, int64_t frames, int64_t height,
                 int64_t width)
{
    const struct video_sizes *c = model;
    struct video_clips *k = &s->clips;

    *k = (struct video_clips){.latent_frames = video_latent_frames(c, frames),
                              .rows = height / c->factor,
                              .columns = width / c->factor};
    s->geometry = (struct video_geometry){.frames = video_whole_frames(c, k->latent_frames),
                                          .height = k->rows,
                                          .width = k->columns,
                                          .pixel_frames = frames};
}

static int take_buckets(struct video_data *d, const struct video_options *o)
{
    const struct video_sizing sizing = {VIDEO_CELLS * d->sizes->factor, fill, d->sizes};

    free(d->cached); /* rows are those of the cache, with and without latents */
    d->cached = NULL;
    d->shapes.rows = d->cache.rows;
    return video_cached_buckets(d, o, &sizing);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void describe(struct video_data *d, const struct video_options *o, int64_t present)
{
    const struct video_geometry *g = &d->shapes.shape->geometry;
    char what[96];

    snprintf(what, sizeof what, "in %d buckets", d->shapes.n);
    if (!o->buckets)
        snprintf(what, sizeof what, "latents [%lld, %lld, %lld, %lld]", (long long)d->channels,
                 (long long)g->frames, (long long)g->height, (long long)g->width);
    snprintf(d->title, sizeof d->title, "cache: %.300s, %lld of %lld clips, %s", o->cache,
             (long long)present, (long long)d->cache.rows, what);
}

int video_cached_open(struct video_data *d, const struct video_options *o)
{
    struct cache *c = &d->cache;

    if (cache_open(c, o->cache, o->check_cache))
        return -1;
    const char *family = cache_setup_text(c, "family");
    if (!family || strcmp(family, o->net.model->autoencoder->family))
        return say_fail("--cache %s: was not made by an autoencoder of %s", o->cache,
                        o->net.model->published);
    const bool padded = text_reading(o->net.model->text).masked;
    d->tokens = padded ? d->sizes->text_tokens : c->tokens;
    if (list_rows(d, o->cache, padded, o->buckets != NULL) || take_channels(d, o->cache))
        return -1;
    const int64_t present = d->shapes.rows;
    if (o->buckets && take_buckets(d, o))
        return -1;
    if (!o->buckets) {
        take_shape(d);
        d->missing = c->bad;
    }
    describe(d, o, present);
    return 0;
}

/* The latents of a clip, and those of its first frame alone if image is not NULL. */
static int read_both(const struct video_data *d, int64_t row, float *z, float *image)
{
    const int64_t *shape = d->cache.row[row].shape;
    const size_t n = (size_t)(d->channels * shape[1] * shape[2] * shape[3]);
    float *both = MEMORY_FOR(2 * sizeof *both, n);
    int rc = both ? cache_read_latents(&d->cache, row, both)
                  : say_fail("no memory for the latents of a clip");

    if (!rc)
        memcpy(z, both, n * sizeof *z);
    if (!rc && image && d->sizes->whole_image)
        memcpy(image, both + n, n * sizeof *image);
    free(both);
    return rc;
}

int video_cached_read(const struct video_data *d, const struct video_shape *s, int64_t row,
                      float *z, float *y, float *image)
{
    row = d->cached ? d->cached[row] : video_cached_find(d, s, row);
    if (d->conditions ? read_both(d, row, z, image) : cache_read_latents(&d->cache, row, z))
        return -1;
    if (d->cache.row[row].shape[1] < s->geometry.frames)
        video_repeat_first(d, s, z);
    if (image && !d->sizes->whole_image)
        video_first_frame(d, s, z, image);
    return cache_read_text(&d->cache, row, d->tokens, y);
}

int video_cached_read_sight(const struct video_data *d, const struct video_shape *s, int64_t row,
                            float *sight)
{
    return cache_read_sight(&d->cache, d->cached ? d->cached[row] : video_cached_find(d, s, row),
                            sight);
}

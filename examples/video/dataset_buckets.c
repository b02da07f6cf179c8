/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clips of a cache in buckets: see dataset.h.  Rows are the rows of its data, including rows
 * without latents, so the order of the steps is the same as without a cache.
 */
#include <stdlib.h>
#include "../common/say.h"
#include "dataset.h"

bool video_cached_fits(const struct video_data *d, const struct video_shape *s,
                       const struct cache_row *r)
{
    const struct video_geometry *g = &s->geometry;
    const struct video_clips *c = &s->clips;

    return cache_has(r, CACHE_LATENTS) && r->shape[0] == d->channels * (d->conditions ? 2 : 1) &&
           r->shape[1] == c->latent_frames && r->shape[2] == c->rows && r->shape[3] == c->columns &&
           r->note.frames == g->pixel_frames && (double)r->note.height == g->pixel_height &&
           (double)r->note.width == g->pixel_width;
}

int64_t video_cached_find(const struct video_data *d, const struct video_shape *s, int64_t row)
{
    for (int64_t i = 0; i < d->shapes.rows && !video_cached_fits(d, s, &d->cache.row[row]); i++)
        row = (row + 1) % d->shapes.rows;
    return row;
}

int video_cached_refuse(const struct video_data *d, const struct video_options *o, int64_t row)
{
    const struct cache_note *n = &d->cache.row[row].note;

    return say_fail(
        "--cache %s: clip %lld (%s) is %lld frames of %lld x %lld%s", o->cache, (long long)row,
        n->name, (long long)n->frames, (long long)n->width, (long long)n->height,
        o->buckets ? "; the cache was made with another table of --buckets"
                   : ", others have another size; use --buckets to train on several sizes");
}

/* Clips keep the buckets of the first epoch, for which they were encoded. */
static int assign(struct video_data *d, const struct video_options *o, int64_t interval)
{
    uint64_t seed = (uint64_t)cache_setup_int(&d->cache, "seed", 0);

    for (int64_t i = 0; i < d->shapes.rows; i++) {
        const struct cache_row *r = &d->cache.row[i];
        const struct video_shape *s = NULL;
        struct bucket *own = &d->shapes.own[i];
        if (buckets_assign(&d->shapes.buckets, &d->shapes.size[i], i, interval, seed, 0, own))
            s = video_shape_of(&d->shapes, own);
        bool has = cache_has(r, CACHE_LATENTS);
        if (has && (!s || !video_cached_fits(d, s, r)))
            return video_cached_refuse(d, o, i);
        if (!s || (!has && !r->note.bad))
            own->row = -1;
    }
    return 0;
}

/* Checks shapes; another clip replaces an unreadable one. */
static int check_shapes(const struct video_data *d, const struct video_options *o)
{
    for (int64_t i = 0; i < d->shapes.rows; i++) {
        bool bad = d->shapes.own[i].row >= 0 && d->cache.row[i].note.bad;
        const struct video_shape *s = bad ? video_shape_of(&d->shapes, &d->shapes.own[i]) : NULL;
        if (s && !video_cached_fits(d, s, &d->cache.row[video_cached_find(d, s, i)]))
            return say_fail("--cache %s: no clip of bucket %s could be encoded", o->cache, s->name);
    }
    return 0;
}

static int take_sizes(struct video_data *d)
{
    d->shapes.size = calloc((size_t)d->shapes.rows, sizeof *d->shapes.size);
    d->shapes.own = calloc((size_t)d->shapes.rows, sizeof *d->shapes.own);
    if (!d->shapes.size || !d->shapes.own)
        return say_fail("no memory for the sizes of %lld clips", (long long)d->shapes.rows);
    for (int64_t i = 0; i < d->shapes.rows; i++) {
        const int64_t *source = d->cache.row[i].note.source;
        d->shapes.size[i] = (struct bucket_sample){source[0], source[1], source[2]};
    }
    return 0;
}

int video_cached_buckets(struct video_data *d, const struct video_options *o,
                         const struct video_sizing *sizing)
{
    const int64_t interval = cache_setup_int(&d->cache, "stride", 1);

    if (!cache_setup_text(&d->cache, "buckets"))
        return say_fail("--cache %s: was made without --buckets; leave it out, or encode the clips "
                        "again with it",
                        o->cache);
    return take_sizes(d) ||
                   video_shapes_read(&d->shapes, o->buckets, o->train.batch == CKPT_AUTO, interval,
                                     sizing) ||
                   assign(d, o, interval) || check_shapes(d, o)
               ? -1
               : 0;
}

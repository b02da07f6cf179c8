/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samples that a model trains on (dataset.h), from one of four sources: one file of
 * features, a cache of video-encode, files of latents and text, or the random generator.  This file
 * has the first and the last, whose samples are all in memory, and selects the source.  All samples
 * of a run have one shape, d->shapes.shape->geometry, but for those of a cache with buckets.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "../common/tensors.h"
#include "ckpt_tools.h"
#include "dataset.h"

int64_t video_data_image(const struct video_data *d, const struct video_shape *s)
{
    const struct video_geometry *g = &s->geometry;
    int64_t frames = d->sizes && d->sizes->whole_image ? g->frames : 1;

    return d->channels * frames * g->height * g->width;
}

/* ---- noise --------------------------------------------------------------------------------- */

/* Depends on the seed alone.  With --plan-only one sample is enough for the shapes. */
static int open_noise(struct video_data *d, const struct video_options *o)
{
    const struct video_sizes *c = d->sizes;
    const struct video_model *m = o->net.model;
    int64_t frames = o->frames ? o->frames : m->frames, width = o->width ? o->width : m->width,
            height = o->height ? o->height : m->height;
    struct video_geometry *g = &d->shapes.shape->geometry;

    *g = (struct video_geometry){.frames = video_whole_frames(c, video_latent_frames(c, frames)),
                                 .height = height / c->factor,
                                 .width = width / c->factor,
                                 .tokens = c->text_tokens};
    d->whole = true;
    d->tokens = g->tokens;
    d->shapes.rows = o->library.plan_only ? 1 : o->train.samples;
    d->z = MEMORY_FOR(sizeof *d->z, d->shapes.rows, video_data_z(d, d->shapes.shape));
    d->y = MEMORY_FOR(sizeof *d->y, d->shapes.rows, video_data_y(d));
    if (video_data_sight(d))
        d->sight = MEMORY_FOR(sizeof *d->sight, d->shapes.rows, video_data_sight(d));
    if (!d->z || !d->y || (video_data_sight(d) && !d->sight))
        return say_fail("--data random: no memory for %lld samples", (long long)d->shapes.rows);
    uint64_t seed = (uint64_t)o->library.seed;
    ckpt_fill_normal(seed, 0, VIDEO_STREAM_DATA, d->z,
                     d->shapes.rows * video_data_z(d, d->shapes.shape));
    ckpt_fill_normal(seed, 1, VIDEO_STREAM_DATA, d->y, d->shapes.rows * video_data_y(d));
    if (d->sight)
        ckpt_fill_normal(seed, 2, VIDEO_STREAM_DATA, d->sight,
                         d->shapes.rows * video_data_sight(d));
    snprintf(d->title, sizeof d->title, "random latents of %lld frames of %lld x %lld",
             (long long)frames, (long long)height, (long long)width);
    return 0;
}

/* ---- one file ------------------------------------------------------------------------------ */

/* Timesteps are indices of 1000 noise levels. */
static int check_times(const struct video_data *d, const char *path)
{
    for (int64_t i = 0; d->t && i < d->shapes.rows; i++)
        if (!(d->t[i] >= 0 && d->t[i] < 1000))
            return say_fail("%s: 't' has a value that is not in 0 .. 999", path);
    return 0;
}

static int read_features(struct video_data *d, ckpt_file *f, const char *path)
{
    const struct video_sizes *c = d->sizes;
    int64_t z[] = {-1, c->channels, -1, -1, -1};

    d->z = tensor_read(f, path, "z", 5, z);
    int64_t y[] = {z[0], -1, c->text_width};
    d->y = d->z ? tensor_read(f, path, "y", 3, y) : NULL;
    if (!d->y)
        return -1;
    d->shapes.rows = z[0];
    d->shapes.shape->geometry =
        (struct video_geometry){.frames = z[2], .height = z[3], .width = z[4], .tokens = y[1]};
    int64_t image[] = {z[0], z[1], c->whole_image ? z[2] : 1, z[3], z[4]};
    if (c->has_image && !(d->image = tensor_read(f, path, "image", 5, image)))
        return -1;
    int64_t sight[] = {z[0], c->sight_tokens, c->sight_width};
    if (c->sight_tokens && !(d->sight = tensor_read(f, path, VIDEO_SIGHT, 3, sight)))
        return -1;
    if (tensor_read_if(f, path, "eps", 5, z, &d->eps) ||
        tensor_read_if(f, path, "t", 1, z, &d->t) || check_times(d, path))
        return -1;
    snprintf(d->title, sizeof d->title, "features: %s, %lld samples", path,
             (long long)d->shapes.rows);
    return 0;
}

static int open_features(struct video_data *d, const char *path)
{
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = read_features(d, f, path);
    ckpt_file_close(f);
    return rc;
}

/* ---- all sources --------------------------------------------------------------------------- */

/* A model without a bucket's shape refuses it. */
static int check_buckets(struct video_data *d, const struct video_options *o)
{
    int rc = 0;

    for (int i = 0; i < d->shapes.n; i++) {
        struct video_shape *s = &d->shapes.shape[i];
        s->geometry.tokens = d->tokens;
        if (video_check_size(d->sizes, s->geometry.pixel_frames, 0, 0) ||
            o->net.model->check(&o->net, &s->geometry))
            rc = say_fail("--buckets %s: %s cannot be trained with bucket %s; take it out of the "
                          "table, and encode the clips again",
                          o->buckets, d->sizes->name, s->name);
    }
    return rc;
}

int video_data_open(struct video_data *d, struct video_options *o)
{
    int rc;

    *d = (struct video_data){.sizes = &o->net.sizes,
                             .channels = o->net.sizes.channels,
                             .text_width = o->net.sizes.text_width};
    if (o->buckets)
        return video_cached_open(d, o) ? -1 : check_buckets(d, o);
    if (video_shapes_make(&d->shapes, 1))
        return -1;
    if (o->features)
        rc = open_features(d, o->features);
    else if (o->cache)
        rc = video_cached_open(d, o);
    else if (!strcmp(o->data, "random"))
        rc = open_noise(d, o);
    else
        rc = video_cache_open(d, o);
    d->tokens = d->shapes.shape->geometry.tokens;
    d->shapes.shape->batch = o->train.batch;
    return rc ? -1 : o->net.model->check(&o->net, &d->shapes.shape->geometry);
}

void video_repeat_first(const struct video_data *d, const struct video_shape *s, float *z)
{
    const struct video_geometry *g = &s->geometry;
    int64_t plane = g->height * g->width, frames = g->frames;
    size_t bytes = (size_t)plane * sizeof *z;

    for (int64_t c = d->channels - 1; c >= 0; c--) {
        memmove(z + (c * frames + 1) * plane, z + c * (frames - 1) * plane,
                (size_t)(frames - 1) * bytes);
        memcpy(z + c * frames * plane, z + (c * frames + 1) * plane, bytes);
    }
}

void video_first_frame(const struct video_data *d, const struct video_shape *s, const float *z,
                       float *image)
{
    const struct video_geometry *g = &s->geometry;
    int64_t plane = g->height * g->width, each = video_data_image(d, s) / d->channels;

    for (int64_t c = 0; c < d->channels; c++) {
        memcpy(image + c * each, z + c * g->frames * plane, (size_t)plane * sizeof *image);
        memset(image + c * each + plane, 0, (size_t)(each - plane) * sizeof *image);
    }
}

int64_t video_data_lines(const struct video_data *d)
{
    return d->cached ? d->cache.rows : d->shapes.rows + d->missing;
}

int64_t video_data_line(const struct video_data *d, int64_t row)
{
    return d->file ? d->file[row].line : d->cached ? d->cached[row] : row;
}

/* Without an image the first latent frame is used. */
int video_data_read(const struct video_data *d, const struct video_shape *s, int64_t row, float *z,
                    float *y, float *image)
{
    int64_t nz = video_data_z(d, s), ny = video_data_y(d), n = video_data_image(d, s);

    if (d->file)
        return video_cache_read(d, row, z, y, image);
    if (d->cache.rows)
        return video_cached_read(d, s, row, z, y, image);
    memcpy(z, d->z + row * nz, (size_t)nz * sizeof *z);
    memcpy(y, d->y + row * ny, (size_t)ny * sizeof *y);
    if (!image)
        return 0;
    if (d->image)
        memcpy(image, d->image + row * n, (size_t)n * sizeof *image);
    else
        video_first_frame(d, s, z, image);
    return 0;
}

int video_data_read_sight(const struct video_data *d, const struct video_shape *s, int64_t row,
                          float *sight)
{
    const int64_t n = video_data_sight(d);

    if (d->file)
        return video_cache_read_sight(d, row, sight);
    if (d->cache.rows)
        return video_cached_read_sight(d, s, row, sight);
    memcpy(sight, d->sight + row * n, (size_t)n * sizeof *sight);
    return 0;
}

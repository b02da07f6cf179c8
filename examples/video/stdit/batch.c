/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: rows of the data and the random draws of a step. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

struct room {
    size_t samples, z, frames; /* samples, values of z, frames of this rank */
};

static size_t larger(size_t room, int64_t n)
{
    return room > (size_t)n ? room : (size_t)n;
}

static struct room room_of(const struct video_data *d, const struct video_shape *shapes, int n)
{
    struct room room = {0};

    for (int i = 0; i < n; i++) {
        const struct video_shape *s = &shapes[i];
        room.samples = larger(room.samples, s->batch);
        room.z = larger(room.z, s->batch * video_data_z(d, s));
        room.frames = larger(room.frames, s->batch * s->geometry.frames);
    }
    return room;
}

int stdit_batch_create(struct stdit_batch *b, const struct stdit_run *r,
                       const struct video_shape *shapes, int n_shapes)
{
    struct room room = room_of(&r->data, shapes, n_shapes);
    size_t n = room.samples, z = room.z, y = n * (size_t)video_data_y(&r->data);
    size_t ranks = (size_t)ckpt_ranks(r->context);

    *b = (struct stdit_batch){0};
    b->z = malloc(z * sizeof *b->z);
    b->eps = r->data.eps ? malloc(z * sizeof *b->eps) : NULL;
    b->y = malloc(y * sizeof *b->y);
    b->y_bf16 = malloc(y * sizeof *b->y_bf16);
    b->t = malloc(n * sizeof *b->t);
    b->u = malloc(n * ranks * sizeof *b->u);
    b->fps = malloc(n * sizeof *b->fps);
    b->mask = malloc(n * (size_t)r->data.tokens * sizeof *b->mask);
    b->x_mask = malloc(room.frames * ranks * sizeof *b->x_mask);
    b->drop = calloc(n * ranks, sizeof *b->drop);
    if (b->z && (b->eps || !r->data.eps) && b->y && b->y_bf16 && b->t && b->u && b->fps &&
        b->mask && b->x_mask && b->drop)
        return 0;
    stdit_batch_free(b);
    return say_fail("no memory for a batch of %zu samples", n);
}

void stdit_batch_free(struct stdit_batch *b)
{
    free(b->z);
    free(b->eps);
    free(b->y);
    free(b->y_bf16);
    free(b->t);
    free(b->u);
    free(b->fps);
    free(b->mask);
    free(b->x_mask);
    free(b->drop);
    *b = (struct stdit_batch){0};
}

static void copy_row(void *dst, int64_t to, const void *src, int64_t from, int64_t row)
{
    memcpy((char *)dst + to * row, (const char *)src + from * row, (size_t)row);
}

/* The row of a clip's text. */
static int64_t text_row(const struct video_data *d, int64_t row)
{
    if (!d->y)
        return 0; /* text comes from a cache */
    return d->text_of ? d->text_of[row] : row % d->text_rows;
}

/* Copies the text of a sample, in the dtype of the model: in bf16, b->y is a buffer for cached
 * text. */
static void copy_text(struct stdit_batch *b, const struct video_data *d, int64_t i, int64_t row)
{
    int64_t y = video_data_y(d), text = text_row(d, row);
    const float *from = d->y ? d->y + text * y : b->y + i * y;

    if (d->y)
        copy_row(b->mask, i, d->mask, text, d->tokens * 4);
    if (b->bf16)
        ckpt_to_bf16(from, b->y_bf16 + i * y, y);
    else if (d->y)
        copy_row(b->y, i, d->y, text, y * 4);
}

static int copy_sample(struct stdit_batch *b, const struct video_data *d, int64_t i, int64_t row)
{
    int64_t z = video_data_z(d, b->shape) * 4, y = video_data_y(d);
    const struct stdit_text text = {b->y + i * y, b->mask + i * d->tokens};

    if (d->texts.rows) {
        int64_t n = video_texts_read(&d->texts, d->text_of[row], d->tokens, text.y);
        if (n < 0)
            return -1;
        for (int64_t k = 0; k < d->tokens; k++)
            text.mask[k] = k < n;
    }
    if (d->cache.rows)
        row = stdit_cached_row(d, b->shape, row, b->z + i * z / 4, &text);
    if (row < 0)
        return -1;
    if (d->z)
        copy_row(b->z, i, d->z, row, z);
    if (d->drawn)
        ckpt_fill_normal(b->seed, (uint64_t)row, STREAM_DATA, b->z + i * z / 4, z / 4);
    if (d->eps)
        copy_row(b->eps, i, d->eps, row, z);
    copy_text(b, d, i, row);
    copy_row(b->fps, i, d->fps, row, 4);
    if (d->t)
        copy_row(b->t, i, d->t, row, 4);
    if (d->x_mask)
        copy_row(b->x_mask, i, d->x_mask, row, b->shape->geometry.frames * 4);
    return 0;
}

/* The row of sample i of this rank. */
static int64_t row_of(const struct stdit_batch *b, const struct video_data *d,
                      const struct video_turn *turn, int64_t i)
{
    return video_turn_row(turn, &d->shapes, b->first + i);
}

/* The draws of a step are made for all ranks together, so they do not depend on the number of
 * ranks. */
static int draw(struct stdit_batch *b, const struct stdit_run *r, const struct video_turn *turn)
{
    const struct video_data *d = &r->data;
    const struct video_shape *s = b->shape;
    uint64_t seed = (uint64_t)r->options.library.seed;
    size_t n = (size_t)b->size, first = (size_t)b->first, frames = (size_t)s->geometry.frames;

    if (!d->t) {
        stdit_draw_times(seed, turn->step, stdit_shift_of(r->model.config.dtype, &s->geometry),
                         b->all, b->u);
        memmove(b->u, b->u + first, n * sizeof *b->u);
    }
    if (r->drops && !d->null_caption) {
        stdit_draw_drops(seed, turn->before, b->all, b->drop);
        memmove(b->drop, b->drop + first, n * sizeof *b->drop);
    }
    if (!s->masked || d->x_mask)
        return 0;
    if (stdit_draw_masks(seed, turn->step, r->options.mask_stage, b->all, s->geometry.frames,
                         b->x_mask))
        return say_fail("no memory for frame masks");
    memmove(b->x_mask, b->x_mask + first * frames, n * frames * sizeof *b->x_mask);
    return 0;
}

static void begin(struct stdit_batch *b, const struct stdit_run *r, const struct video_shape *s)
{
    b->shape = s;
    b->bf16 = r->model.config.dtype == CKPT_BF16;
    b->seed = (uint64_t)r->options.library.seed;
    b->size = s->batch;
    b->all = s->batch * ckpt_ranks(r->context);
    b->first = s->batch * ckpt_rank(r->context);
}

int stdit_batch_fill(struct stdit_batch *b, const struct stdit_run *r,
                     const struct video_turn *turn)
{
    const struct video_data *d = &r->data;

    begin(b, r, turn->shape);
    for (int64_t i = 0; i < b->size; i++)
        if (copy_sample(b, d, i, row_of(b, d, turn, i)))
            return -1;
    if (draw(b, r, turn))
        return -1;
    for (int64_t i = 0; i < b->size; i++) {
        if (d->t)
            b->u[i] = b->t[i] / 1000.f;
        else
            b->t[i] = b->u[i] * 1000.f;
    }
    for (int64_t i = 0; d->null_caption && i < b->size; i++)
        b->drop[i] = 1;
    return 0;
}

int stdit_batch_encode(struct stdit_batch *b, struct stdit_run *r, const struct video_turn *turn,
                       struct loader *loader)
{
    struct video_data *d = &r->data;
    int64_t z = video_data_z(d, b->shape);
    struct loader_clip c;

    for (int64_t i = 0; i < b->size; i++) {
        if (loader_take(loader, &c))
            return -1;
        /* A clip in place of a bad one has its own caption. */
        if (c.row != row_of(b, d, turn, i) && copy_sample(b, d, i, c.row))
            return -1;
        b->fps[i] = (float)videos_rate(&d->videos, c.frames, c.fps);
        int rc =
            stdit_vae_encode(&d->vae, &b->shape->clips,
                             video_sample_of(&d->shapes, c.sample, c.row), c.rgb, b->z + i * z);
        loader_release(loader);
        if (rc)
            return -1;
    }
    return 0;
}

int stdit_batch_feed(const struct stdit_batch *b, const struct stdit_run *r, ckpt_program *p,
                     bool drop)
{
    int64_t n = b->size, y = n * video_data_y(&r->data);
    int rc = ckpt_feed(p, "z", b->z, n * video_data_z(&r->data, b->shape) * 4);

    if (!rc)
        rc = ckpt_feed(p, "t", b->t, n * 4);
    if (!rc)
        rc = b->bf16 ? ckpt_feed(p, "y", b->y_bf16, y * 2) : ckpt_feed(p, "y", b->y, y * 4);
    if (!rc)
        rc = ckpt_feed(p, "mask", b->mask, n * r->data.tokens * 4);
    if (!rc)
        rc = ckpt_feed(p, "fps", b->fps, n * 4);
    if (!rc && drop)
        rc = ckpt_feed(p, "drop", b->drop, n * 4);
    return rc;
}

int stdit_batch_feed_training(const struct stdit_batch *b, const struct stdit_run *r,
                              ckpt_program *p)
{
    int rc = ckpt_feed(p, "u", b->u, b->size * 4);

    if (!rc && r->data.eps)
        rc = ckpt_feed(p, "eps", b->eps, b->size * video_data_z(&r->data, b->shape) * 4);
    if (!rc && b->shape->masked)
        rc = ckpt_feed(p, "x_mask", b->x_mask, b->size * b->shape->geometry.frames * 4);
    return rc;
}

struct stdit_inputs stdit_record_inputs(const struct stdit_run *r, const struct video_shape *s,
                                        ckpt_tape *t, int64_t batch, bool drop)
{
    const struct video_geometry *g = &s->geometry;
    int64_t z[] = {batch, r->data.channels, g->frames, g->height, g->width};
    int64_t y[] = {batch, g->tokens, r->data.text_width};
    struct stdit_inputs in = {0};

    in.x = ckpt_input(t, "z", CKPT_F32, 5, z);
    in.t = ckpt_input(t, "t", CKPT_F32, 1, &batch);
    in.y = ckpt_input(t, "y", r->model.config.dtype, 3, y);
    in.mask = ckpt_input(t, "mask", CKPT_I32, 2, (int64_t[]){batch, g->tokens});
    in.fps = ckpt_input(t, "fps", CKPT_F32, 1, &batch);
    if (drop)
        in.drop = ckpt_input(t, "drop", CKPT_I32, 1, &batch);
    return in;
}

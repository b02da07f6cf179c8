/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: rows of the data and the random draws of a step. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

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
static void copy_text(struct video_batch *b, const struct video_data *d, int64_t i, int64_t row)
{
    const bool half = b->run->stdit->config.dtype == CKPT_BF16;
    int64_t y = video_data_y(d), text = text_row(d, row);
    const float *from = d->y ? d->y + text * y : b->y + i * y;

    if (d->y)
        copy_row(b->mask, i, d->mask, text, d->tokens * 4);
    if (half)
        ckpt_to_bf16(from, b->y_bf16 + i * y, y);
    else if (d->y)
        copy_row(b->y, i, d->y, text, y * 4);
}

static int copy_sample(struct video_batch *b, const struct video_data *d, int64_t i, int64_t row)
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
        ckpt_fill_normal((uint64_t)b->run->options.library.seed, (uint64_t)row, STREAM_DATA,
                         b->z + i * z / 4, z / 4);
    if (d->eps)
        copy_row(b->eps, i, d->eps, row, z);
    copy_text(b, d, i, row);
    copy_row(b->fps, i, d->fps, row, 4);
    if (d->t)
        copy_row(b->t, b->first + i, d->t, row, 4);
    if (d->x_mask)
        copy_row(b->x_mask, i, d->x_mask, row, b->shape->geometry.frames * 4);
    return 0;
}

/* The draws of a step are made for all ranks together, so they do not depend on the number of
 * ranks. */
static int draw(struct video_batch *b, const struct video_selection *selection)
{
    const struct video_run *r = b->run;
    const struct video_data *d = &r->data;
    const struct video_shape *s = b->shape;
    uint64_t seed = (uint64_t)r->options.library.seed;
    size_t n = (size_t)b->size, first = (size_t)b->first, frames = (size_t)s->geometry.frames;

    if (!d->t)
        stdit_draw_times(seed, selection->step,
                         stdit_shift_of(r->stdit->config.dtype, &s->geometry), b->all, b->u);
    if (r->drops && !d->null_caption) {
        stdit_draw_drops(seed, selection->before, b->all, b->null);
        memmove(b->null, b->null + first, n * sizeof *b->null);
    }
    if (!s->masked || d->x_mask)
        return 0;
    if (stdit_draw_masks(seed, selection->step, r->options.mask_stage, b->all, s->geometry.frames,
                         b->x_mask))
        return say_fail("no memory for frame masks");
    memmove(b->x_mask, b->x_mask + first * frames, n * frames * sizeof *b->x_mask);
    return 0;
}

int stdit_batch_fill(struct video_batch *b, const struct video_selection *selection)
{
    const struct video_data *d = &b->run->data;

    video_batch_begin(b, selection->shape);
    b->all = selection->all;
    b->first = selection->first;
    for (int64_t i = 0; i < b->size; i++)
        if (copy_sample(b, d, i, video_selection_row(selection, &d->shapes, i)))
            return -1;
    if (draw(b, selection))
        return -1;
    for (int64_t i = b->first; i < b->first + b->size; i++) {
        if (d->t)
            b->u[i] = b->t[i] / 1000.f;
        else
            b->t[i] = b->u[i] * 1000.f;
    }
    for (int64_t i = 0; d->null_caption && i < b->size; i++)
        b->null[i] = 1;
    return 0;
}

int stdit_batch_fill_row(struct video_batch *b, int64_t row)
{
    return stdit_batch_fill(
        b, &(struct video_selection){.shape = b->run->data.shapes.shape, .before = row, .all = 1});
}

int stdit_batch_encode(struct video_batch *b, const struct video_selection *selection,
                       struct loader *loader)
{
    struct video_data *d = &b->run->data;
    int64_t z = video_data_z(d, b->shape);
    struct loader_clip c;

    for (int64_t i = 0; i < b->size; i++) {
        if (loader_take(loader, &c))
            return -1;
        /* A clip in place of a bad one has its own caption. */
        if (c.row != video_selection_row(selection, &d->shapes, i) && copy_sample(b, d, i, c.row))
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

static int feed(const struct video_batch *b, ckpt_program *p, bool drop, bool trains)
{
    int64_t n = b->size;
    int rc = video_batch_feed(b, p, trains);

    if (!rc)
        rc = ckpt_feed(p, "mask", b->mask, n * b->run->data.tokens * 4);
    if (!rc)
        rc = ckpt_feed(p, "fps", b->fps, n * 4);
    if (!rc && drop)
        rc = ckpt_feed(p, "drop", b->null, n * 4);
    return rc;
}

int stdit_batch_feed(const struct video_batch *b, ckpt_program *p, bool drop)
{
    return feed(b, p, drop, false);
}

int stdit_batch_feed_training(const struct video_batch *b, ckpt_program *p)
{
    int rc = feed(b, p, b->run->drops, true);

    if (!rc)
        rc = ckpt_feed(p, "u", b->u + b->first, b->size * 4);
    if (!rc && b->shape->masked)
        rc = ckpt_feed(p, "x_mask", b->x_mask, b->size * b->shape->geometry.frames * 4);
    return rc;
}

struct stdit_inputs stdit_record_inputs(const struct video_run *r, const struct video_shape *s,
                                        ckpt_tape *t, int64_t batch, bool drop)
{
    const struct video_geometry *g = &s->geometry;
    int64_t z[] = {batch, r->data.channels, g->frames, g->height, g->width};
    int64_t y[] = {batch, g->tokens, r->data.text_width};
    struct stdit_inputs in = {0};

    in.x = ckpt_input(t, "z", CKPT_F32, 5, z);
    in.t = ckpt_input(t, "t", CKPT_F32, 1, &batch);
    in.y = ckpt_input(t, "y", r->stdit->config.dtype, 3, y);
    in.mask = ckpt_input(t, "mask", CKPT_I32, 2, (int64_t[]){batch, g->tokens});
    in.fps = ckpt_input(t, "fps", CKPT_F32, 1, &batch);
    if (drop)
        in.drop = ckpt_input(t, "drop", CKPT_I32, 1, &batch);
    return in;
}

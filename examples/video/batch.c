/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: rows of the data and the random draws of a step; see batch.h. */
#include "batch.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "images.h"

/* ---- memory -------------------------------------------------------------------------------- */

struct room {
    int64_t samples, z, image, frames; /* samples, values of z and of images of this rank; frames
                                          of a sample */
};

static int64_t larger(int64_t room, int64_t n)
{
    return room > n ? room : n;
}

static struct room room_of(const struct video_data *d, const struct video_shape *shapes, int n)
{
    struct room room = {0};

    for (int i = 0; i < n; i++) {
        const struct video_shape *s = &shapes[i];
        room.samples = larger(room.samples, s->batch);
        room.z = larger(room.z, s->batch * video_data_z(d, s));
        room.image = larger(room.image, s->batch * video_data_image(d, s));
        room.frames = larger(room.frames, s->geometry.frames);
    }
    return room;
}

static bool has_image(const struct video_data *d)
{
    return d->sizes && d->sizes->has_image;
}

/* The features of one prompt, for samples without theirs. */
static int read_null_text(struct video_batch *b, const char *path)
{
    const int64_t n = video_data_y(&b->run->data);
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int i = ckpt_file_find(f, "prompt_embedding"), rc = 0;
    b->null_text = MEMORY_FOR(sizeof *b->null_text, n);
    if (i < 0 || ckpt_file_entry(f, i, &e) || e.numel != n)
        rc = say_fail("%s: there is no prompt_embedding of one prompt, %lld x %lld", path,
                      (long long)b->run->data.tokens, (long long)b->run->data.text_width);
    else if (!b->null_text || ckpt_file_read_f32(f, i, b->null_text, n))
        rc = say_fail("%s", b->null_text ? ckpt_error(NULL) : "no memory for --null-text");
    ckpt_file_close(f);
    return rc;
}

int video_batch_open(struct video_batch *b, struct video_run *r, const struct video_shape *shapes,
                     int n_shapes)
{
    const struct video_data *d = &r->data;
    const struct room room = room_of(d, shapes, n_shapes);
    int64_t n = room.samples, ranks = ckpt_sample_groups(r->context), all = n * ranks;
    int64_t y = video_data_y(d);

    *b = (struct video_batch){.run = r};
    if (sample_order_open(&b->order, d->shapes.rows, (uint64_t)r->options.library.seed,
                          r->options.keep_order || d->whole))
        return -1;
    b->z = MEMORY_FOR(sizeof *b->z, room.z);
    b->y = MEMORY_FOR(sizeof *b->y, n, y);
    b->y_bf16 = MEMORY_FOR(sizeof *b->y_bf16, n, y);
    b->image = has_image(d) ? MEMORY_FOR(sizeof *b->image, room.image) : NULL;
    b->sight = video_data_sight(d) ? MEMORY_FOR(sizeof *b->sight, n, video_data_sight(d)) : NULL;
    b->eps = d->eps ? MEMORY_FOR(sizeof *b->eps, room.z) : NULL;
    b->t = MEMORY_FOR(sizeof *b->t, all);
    b->u = MEMORY_FOR(sizeof *b->u, all);
    b->drop = MEMORY_FOR(sizeof *b->drop, all);
    b->unseen = MEMORY_FOR(sizeof *b->unseen, all);
    b->null = calloc((size_t)all, sizeof *b->null);
    b->given = MEMORY_FOR(sizeof *b->given, all);
    b->signal = MEMORY_FOR(sizeof *b->signal, n, room.frames);
    b->noise = MEMORY_FOR(sizeof *b->noise, n, room.frames);
    b->times = MEMORY_FOR(sizeof *b->times, n, 2);
    b->weight = MEMORY_FOR(sizeof *b->weight, n);
    b->fps = MEMORY_FOR(sizeof *b->fps, n);
    b->mask = MEMORY_FOR(sizeof *b->mask, n, d->tokens);
    b->x_mask = MEMORY_FOR(sizeof *b->x_mask, room.frames, all);
    if (b->z && b->y && b->y_bf16 && (b->image || !has_image(d)) &&
        (b->sight || !video_data_sight(d)) && (b->eps || !d->eps) && b->t && b->u && b->drop &&
        b->unseen && b->given && b->null && b->signal && b->noise && b->times && b->weight &&
        b->fps && b->mask && b->x_mask)
        return r->options.text_drop > 0 && r->options.null_text
                   ? read_null_text(b, r->options.null_text)
                   : 0;
    return say_fail("no memory for a batch of %lld samples", (long long)n);
}

void video_batch_close(struct video_batch *b)
{
    void *all[] = {b->sight, b->null_text, b->z,      b->y,      b->y_bf16, b->image, b->eps,
                   b->t,     b->u,         b->drop,   b->unseen, b->given,  b->null,  b->signal,
                   b->noise, b->times,     b->weight, b->fps,    b->mask,   b->x_mask};

    sample_order_close(&b->order);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    *b = (struct video_batch){.run = NULL};
}

void video_batch_begin(struct video_batch *b, const struct video_shape *s)
{
    b->shape = s;
    b->size = s->batch;
    b->all = s->batch * ckpt_sample_groups(b->run->context);
    b->first = s->batch * ckpt_sample_group(b->run->context);
}

/* ---- samples -------------------------------------------------------------------------------- */

/* Draws the random numbers of a step for all ranks together, so they do not depend on the number of
 * ranks. */
static void draw(struct video_batch *b, int64_t step, bool second)
{
    uint64_t seed = (uint64_t)b->run->options.library.seed;
    int64_t all = b->all;

    const struct video_net *net = video_net_of(b->run, second);
    net->model->draw_times(net, seed, step, all, b->t);
    ckpt_fill_uniform(seed, (uint64_t)step, VIDEO_STREAM_DROP, b->drop, all);
    ckpt_fill_uniform(seed, (uint64_t)step, VIDEO_STREAM_UNSEEN, b->unseen, all);
    ckpt_fill_uniform(seed, (uint64_t)step, VIDEO_STREAM_GIVEN, b->given, all);
}

/* Fills the image of sample `sample` of the run (sample n of its step) when the data has no encoded
 * one; zeros when the image is dropped. */
static int fill_image(struct video_batch *b, float *image, int64_t n, int64_t row, int64_t sample)
{
    const struct video_run *r = b->run;
    struct video_images *m = r->images;

    if ((double)b->unseen[n] < r->options.image_drop)
        memset(image, 0, (size_t)video_data_image(&r->data, b->shape) * sizeof *image);
    else if (m->files.n)
        return video_images_read(m, video_data_line(&r->data, row), sample, image);
    return 0;
}

/* Frames with a level of noise of their own. */
static int64_t levels(const struct video_batch *b)
{
    return b->run->options.net.noising.first > 0 ? b->shape->geometry.frames : 1;
}

/* Noise of sample i of this rank, which is sample n of the step.  A given frame has the timestep 0;
 * a single frame is never given, as nothing would be left to learn. */
static void fill_levels(struct video_batch *b, int64_t i, int64_t n)
{
    const struct video_net *net = &b->run->options.net;
    const int64_t frames = levels(b);
    const bool given = frames > 1 && (double)b->given[n] < net->noising.first;
    const float t = b->t[n], first = given ? 0 : t;

    for (int64_t f = 0; f < frames; f++) {
        struct video_level level = net->model->level(net, f ? t : first);
        b->signal[i * frames + f] = (float)level.signal;
        b->noise[i * frames + f] = (float)level.noise;
        b->x_mask[i * frames + f] = f || !given;
    }
    b->times[2 * i] = first;
    b->times[2 * i + 1] = t;
    b->weight[i] = net->model->weight ? (float)sqrt(net->model->weight(net, t)) : 1;
}

/* Fills sample i of this rank, which is sample n of the step. */
static int fill_sample(struct video_batch *b, int64_t i, int64_t n, int64_t sample, int64_t row)
{
    const struct video_run *r = b->run;
    const struct video_data *d = &r->data;
    int64_t nz = video_data_z(d, b->shape), ny = video_data_y(d);
    float *y = b->y + i * ny;
    float *image = b->image ? b->image + i * video_data_image(d, b->shape) : NULL;

    if (video_data_read(d, b->shape, row, b->z + i * nz, y, r->images->files.n ? NULL : image) ||
        (image && fill_image(b, image, n, row, sample)) ||
        (b->sight && video_data_read_sight(d, b->shape, row, b->sight + i * video_data_sight(d))))
        return -1;
    if (d->eps)
        memcpy(b->eps + i * nz, d->eps + row * nz, (size_t)nz * sizeof *b->eps);
    if ((double)b->drop[n] < r->options.text_drop && b->null_text)
        memcpy(y, b->null_text, (size_t)ny * sizeof *y);
    else if ((double)b->drop[n] < r->options.text_drop)
        memset(y, 0, (size_t)ny * sizeof *y);
    ckpt_to_bf16(y, b->y_bf16 + i * ny, ny);
    if (d->t)
        b->t[n] = d->t[row];
    fill_levels(b, i, n);
    return 0;
}

int video_batch_fill(struct video_batch *b, const struct video_selection *selection)
{
    video_batch_begin(b, selection->shape);
    b->all = selection->all;
    b->first = selection->first;
    draw(b, selection->step, selection->second);
    for (int64_t i = 0; i < b->size; i++) {
        const int64_t n = b->first + i, sample = selection->before + n;
        if (fill_sample(b, i, n, sample,
                        selection->row ? selection->row[i] : sample_order_row(&b->order, sample)))
            return -1;
    }
    return 0;
}

/* Does not change the random draws of the training. */
int video_batch_fill_row(struct video_batch *b, int64_t row)
{
    video_batch_begin(b, b->run->data.shapes.shape);
    b->drop[b->first] = b->unseen[b->first] = 1;
    b->given[b->first] = 0.5f; /* as most samples of the training have it */
    return fill_sample(b, 0, b->first, row, sample_order_row(&b->order, row));
}

/* ---- feeding ------------------------------------------------------------------------------- */

int video_batch_feed(const struct video_batch *b, ckpt_program *p, bool trains)
{
    const struct video_data *d = &b->run->data;
    int64_t n = b->size, y = n * video_data_y(d), z = n * video_data_z(d, b->shape) * 4;
    int rc = ckpt_feed(p, "z", b->z, z);

    if (!rc)
        rc = b->run->options.net.dtype == CKPT_BF16 ? ckpt_feed(p, "y", b->y_bf16, y * 2)
                                                    : ckpt_feed(p, "y", b->y, y * 4);
    if (!rc && b->run->options.net.noising.first > 0)
        rc = ckpt_feed(p, "t", b->times, n * 2 * 4);
    else if (!rc)
        rc = ckpt_feed(p, "t", b->t + b->first, n * 4);
    if (!rc && trains && b->eps)
        rc = ckpt_feed(p, "eps", b->eps, z);
    return rc;
}

int video_batch_feed_training(const struct video_batch *b, ckpt_program *p)
{
    const struct video_noising *noising = &b->run->options.net.noising;
    int64_t n = b->size, each = n * levels(b) * 4;
    int rc = video_batch_feed(b, p, true);

    if (!rc)
        rc = ckpt_feed(p, "signal", b->signal, each);
    if (!rc)
        rc = ckpt_feed(p, "noise", b->noise, each);
    if (!rc && noising->first > 0)
        rc = ckpt_feed(p, "noised", b->x_mask, each);
    if (!rc && noising->weights)
        rc = ckpt_feed(p, "weight", b->weight, n * 4);
    if (!rc && b->image)
        rc = ckpt_feed(p, "image", b->image, n * video_data_image(&b->run->data, b->shape) * 4);
    if (!rc && b->sight)
        rc = ckpt_feed(p, "sight", b->sight, n * video_data_sight(&b->run->data) * 4);
    return rc;
}

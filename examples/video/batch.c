/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: rows of the data and the random draws of a step; see batch.h. */
#include "batch.h"
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "images.h"

int video_batch_open(struct video_batch *b, struct video_run *r)
{
    const struct video_data *d = &r->data;
    int64_t batch = r->options.train.batch, all = r->options.train.samples,
            z = video_data_z(d, d->shapes.shape), y = video_data_y(d);
    bool has_image = d->sizes->has_image;

    *b = (struct video_batch){.run = r};
    if (sample_order_open(&b->order, d->shapes.rows, (uint64_t)r->options.library.seed,
                          r->options.keep_order || d->whole))
        return -1;
    b->z = MEMORY_FOR(sizeof *b->z, batch, z);
    b->y = MEMORY_FOR(sizeof *b->y, batch, y);
    b->y_bf16 = MEMORY_FOR(sizeof *b->y_bf16, batch, y);
    b->image = has_image ? MEMORY_FOR(sizeof *b->image, batch, video_data_image(d)) : NULL;
    b->eps = d->eps ? MEMORY_FOR(sizeof *b->eps, batch, z) : NULL;
    b->t = MEMORY_FOR(sizeof *b->t, all);
    b->drop = MEMORY_FOR(sizeof *b->drop, all);
    b->unseen = MEMORY_FOR(sizeof *b->unseen, all);
    b->signal = MEMORY_FOR(sizeof *b->signal, batch);
    b->noise = MEMORY_FOR(sizeof *b->noise, batch);
    if (b->z && b->y && b->y_bf16 && (b->image || !has_image) && (b->eps || !d->eps) && b->t &&
        b->drop && b->unseen && b->signal && b->noise)
        return 0;
    return say_fail("no memory for a batch of %lld samples", (long long)batch);
}

void video_batch_close(struct video_batch *b)
{
    sample_order_close(&b->order);
    free(b->z);
    free(b->y);
    free(b->y_bf16);
    free(b->image);
    free(b->eps);
    free(b->t);
    free(b->drop);
    free(b->unseen);
    free(b->signal);
    free(b->noise);
}

/* Draws the random numbers of a step for all ranks together, so they do not depend on the number of
 * ranks. */
static void draw(struct video_batch *b, int64_t step)
{
    uint64_t seed = (uint64_t)b->run->options.library.seed;
    int64_t all = b->run->options.train.samples;

    b->run->options.net.model->draw_times(seed, step, all, b->t);
    ckpt_fill_uniform(seed, (uint64_t)step, VIDEO_STREAM_DROP, b->drop, all);
    ckpt_fill_uniform(seed, (uint64_t)step, VIDEO_STREAM_UNSEEN, b->unseen, all);
}

/* Fills the image of sample `sample` of the run (sample n of its step) when the data has no encoded
 * one; zeros when the image is dropped. */
static int fill_image(struct video_batch *b, float *image, int64_t n, int64_t row, int64_t sample)
{
    const struct video_run *r = b->run;
    struct video_images *m = r->images;

    if ((double)b->unseen[n] < r->options.image_drop)
        memset(image, 0, (size_t)video_data_image(&r->data) * sizeof *image);
    else if (m->files.n)
        return video_images_read(m, video_data_line(&r->data, row), sample, image);
    return 0;
}

/* Fills sample i of this rank, which is sample n of the step. */
static int fill_sample(struct video_batch *b, int64_t i, int64_t n, int64_t sample)
{
    const struct video_run *r = b->run;
    const struct video_data *d = &r->data;
    int64_t nz = video_data_z(d, d->shapes.shape), ny = video_data_y(d);
    int64_t row = sample_order_row(&b->order, sample);
    float *y = b->y + i * ny, *image = b->image ? b->image + i * video_data_image(d) : NULL;

    if (video_data_read(d, row, b->z + i * nz, y, r->images->files.n ? NULL : image) ||
        (image && fill_image(b, image, n, row, sample)))
        return -1;
    if (d->eps)
        memcpy(b->eps + i * nz, d->eps + row * nz, (size_t)nz * sizeof *b->eps);
    if ((double)b->drop[n] < r->options.text_drop)
        memset(y, 0, (size_t)ny * sizeof *y);
    ckpt_to_bf16(y, b->y_bf16 + i * ny, ny);
    if (d->t)
        b->t[n] = d->t[row];
    const struct video_net *net = &r->options.net;
    struct video_level level = net->model->level(net, b->t[n]);
    b->signal[i] = (float)level.signal;
    b->noise[i] = (float)level.noise;
    return 0;
}

int video_batch_fill(struct video_batch *b, int64_t step)
{
    const struct video_run *r = b->run;
    int64_t batch = r->options.train.batch, first = batch * ckpt_rank(r->context);

    draw(b, step);
    for (int64_t i = 0; i < batch; i++) {
        int64_t sample = step * r->options.train.samples + first + i;
        if (fill_sample(b, i, first + i, sample))
            return -1;
    }
    return 0;
}

/* Does not change the random draws of the training. */
int video_batch_fill_row(struct video_batch *b, int64_t row)
{
    int64_t n = ckpt_rank(b->run->context);

    b->drop[n] = b->unseen[n] = 1;
    return fill_sample(b, 0, n, row);
}

int video_batch_feed(const struct video_batch *b)
{
    const struct video_run *r = b->run;
    const struct video_data *d = &r->data;
    int64_t n = r->options.train.batch, y = n * video_data_y(d),
            z = n * video_data_z(d, d->shapes.shape) * 4;
    const float *t = b->t + n * ckpt_rank(r->context);
    ckpt_program *p = r->training;
    int rc = ckpt_feed(p, "z", b->z, z);

    if (!rc)
        rc = r->options.net.dtype == CKPT_BF16 ? ckpt_feed(p, "y", b->y_bf16, y * 2)
                                               : ckpt_feed(p, "y", b->y, y * 4);
    if (!rc)
        rc = ckpt_feed(p, "t", t, n * 4);
    if (!rc)
        rc = ckpt_feed(p, "signal", b->signal, n * 4);
    if (!rc)
        rc = ckpt_feed(p, "noise", b->noise, n * 4);
    if (!rc && b->eps)
        rc = ckpt_feed(p, "eps", b->eps, z);
    if (!rc && b->image)
        rc = ckpt_feed(p, "image", b->image, n * video_data_image(d) * 4);
    return rc;
}

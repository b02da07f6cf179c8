/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training: v-prediction, the weight of all timesteps the same.
 *
 *     loss = mean (v - v*)^2,  v* = sqrt(a) eps - sqrt(1 - a) x0
 *
 * That is the published loss, the error of x0 over 1 - a, without its division by 0.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/dump.h"
#include "../common/memory.h"
#include "../common/order.h"
#include "../common/say.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "images.h"
#include "vae.h"
#include "watch.h"

/* ---- recording ----------------------------------------------------------------------------- */

static ckpt_tensor per_sample(ckpt_tape *t, const char *name, int64_t batch)
{
    ckpt_tensor x = ckpt_input(t, name, CKPT_F32, 1, &batch);

    return ckpt_reshape(t, x, 5, (int64_t[]){batch, 1, 1, 1, 1});
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct cogvideo_run *r = user;
    const struct cogvideo_config *c = &r->model.config;
    const struct cogvideo_geometry *g = &r->data.geometry;
    int64_t shape[] = {batch, c->out_channels, g->frames, g->height, g->width};
    int64_t image[] = {batch, c->out_channels, 1, g->height, g->width};
    int64_t text[] = {batch, g->tokens, c->text_width};
    struct cogvideo_inputs in = {0};

    ckpt_label(t, "noise");
    ckpt_tensor x0 = ckpt_input(t, "z", CKPT_F32, 5, shape);
    ckpt_tensor signal = per_sample(t, "signal", batch), noise = per_sample(t, "noise", batch);
    ckpt_tensor eps =
        r->data.eps ? ckpt_input(t, "eps", CKPT_F32, 5, shape) : ckpt_randn(t, CKPT_F32, 5, shape);
    in.text = ckpt_input(t, "y", r->model.dtype, 3, text);
    in.t = ckpt_input(t, "t", CKPT_F32, 1, &batch);
    if (cogvideo_has_image(c))
        in.image = ckpt_input(t, "image", CKPT_F32, 5, image);
    in.x = ckpt_add(t, ckpt_mul(t, x0, signal), ckpt_mul(t, eps, noise));
    ckpt_tensor target = ckpt_sub(t, ckpt_mul(t, eps, signal), ckpt_mul(t, x0, noise));
    ckpt_tensor pred = ckpt_cast(t, cogvideo_forward(&r->model, t, g, &in), CKPT_F32);
    ckpt_label(t, "loss");
    if (r->options.train.dump)
        dump_record(r->context, t, pred);
    return ckpt_mse(t, pred, target, CKPT_NONE);
}

int cogvideo_compile(struct cogvideo_run *r)
{
    const struct cogvideo_options *o = &r->options;
    struct ckpt_adamw s = training_adamw(&o->train);

    const ckpt_optimizer *optimizer = optimizer_make(r->context, o->train.optimizer, &s);
    if (ckpt_compile(r->context, record, r, optimizer, o->train.batch, &r->training))
        return say_fail("%s", ckpt_error(r->context));
    return 0;
}

/* ---- batches ------------------------------------------------------------------------------- */

/* What the course of the steps needs beside the run: host memory of what one step is fed. */
struct course {
    struct cogvideo_run *run;
    struct sample_order order;
    float *z, *y, *image, *eps;
    float *t, *drop, *unseen; /* of all ranks */
    float *signal, *noise;
    uint16_t *y_bf16;
};

static int open_course(struct course *c, struct cogvideo_run *r)
{
    const struct cogvideo_data *d = &r->data;
    int64_t batch = r->options.train.batch, all = r->options.train.samples, z = cogvideo_data_z(d),
            y = cogvideo_data_y(d);
    bool has_image = cogvideo_has_image(d->config);

    *c = (struct course){.run = r};
    if (sample_order_open(&c->order, d->rows, (uint64_t)r->options.library.seed,
                          r->options.keep_order || d->noise))
        return -1;
    c->z = MEMORY_FOR(sizeof *c->z, batch, z);
    c->y = MEMORY_FOR(sizeof *c->y, batch, y);
    c->y_bf16 = MEMORY_FOR(sizeof *c->y_bf16, batch, y);
    c->image = has_image ? MEMORY_FOR(sizeof *c->image, batch, cogvideo_data_image(d)) : NULL;
    c->eps = d->eps ? MEMORY_FOR(sizeof *c->eps, batch, z) : NULL;
    c->t = MEMORY_FOR(sizeof *c->t, all);
    c->drop = MEMORY_FOR(sizeof *c->drop, all);
    c->unseen = MEMORY_FOR(sizeof *c->unseen, all);
    c->signal = MEMORY_FOR(sizeof *c->signal, batch);
    c->noise = MEMORY_FOR(sizeof *c->noise, batch);
    if (c->z && c->y && c->y_bf16 && (c->image || !has_image) && (c->eps || !d->eps) && c->t &&
        c->drop && c->unseen && c->signal && c->noise)
        return 0;
    return say_fail("no memory for a batch of %lld samples", (long long)batch);
}

static void close_course(struct course *c)
{
    sample_order_close(&c->order);
    free(c->z);
    free(c->y);
    free(c->y_bf16);
    free(c->image);
    free(c->eps);
    free(c->t);
    free(c->drop);
    free(c->unseen);
    free(c->signal);
    free(c->noise);
}

/* The draws of a step are those of all ranks together: so they are the same for any number. */
static void draw(struct course *c, int64_t step)
{
    uint64_t seed = (uint64_t)c->run->options.library.seed;
    int64_t all = c->run->options.train.samples;

    cogvideo_draw_times(seed, step, all, c->t);
    ckpt_fill_uniform(seed, (uint64_t)step, COGVIDEO_STREAM_DROP, c->drop, all);
    ckpt_fill_uniform(seed, (uint64_t)step, COGVIDEO_STREAM_UNSEEN, c->unseen, all);
}

/* The picture of a sample of the run, which is sample n of its step, where the data has none that
 * is encoded; or none at all, when it is dropped. */
static int fill_image(struct course *c, float *image, int64_t n, int64_t row, int64_t sample)
{
    const struct cogvideo_run *r = c->run;
    struct cogvideo_images *m = r->images;

    if ((double)c->unseen[n] < r->options.image_drop)
        memset(image, 0, (size_t)cogvideo_data_image(&r->data) * sizeof *image);
    else if (m->files.n)
        return cogvideo_images_read(m, cogvideo_data_line(&r->data, row), sample, image);
    return 0;
}

/* Sample i of this rank, which is sample n of the step. */
static int fill_sample(struct course *c, int64_t i, int64_t n, int64_t sample)
{
    const struct cogvideo_run *r = c->run;
    const struct cogvideo_data *d = &r->data;
    int64_t nz = cogvideo_data_z(d), ny = cogvideo_data_y(d);
    int64_t row = sample_order_row(&c->order, sample);
    float *y = c->y + i * ny, *image = c->image ? c->image + i * cogvideo_data_image(d) : NULL;

    if (cogvideo_data_read(d, row, c->z + i * nz, y, r->images->files.n ? NULL : image) ||
        (image && fill_image(c, image, n, row, sample)))
        return -1;
    if (d->eps)
        memcpy(c->eps + i * nz, d->eps + row * nz, (size_t)nz * sizeof *c->eps);
    if ((double)c->drop[n] < r->options.text_drop)
        memset(y, 0, (size_t)ny * sizeof *y);
    ckpt_to_bf16(y, c->y_bf16 + i * ny, ny);
    if (d->t)
        c->t[n] = d->t[row];
    double a = r->schedule.signal[(int)c->t[n]];
    c->signal[i] = (float)sqrt(a);
    c->noise[i] = (float)sqrt(1 - a);
    return 0;
}

/* When there are fewer rows than the batch is large they come round again. */
static int fill(struct course *c, int64_t step)
{
    const struct cogvideo_run *r = c->run;
    int64_t batch = r->options.train.batch, first = batch * ckpt_rank(r->context);

    draw(c, step);
    for (int64_t i = 0; i < batch; i++) {
        int64_t sample = step * r->options.train.samples + first + i;
        if (fill_sample(c, i, first + i, sample))
            return -1;
    }
    return 0;
}

static int feed(const struct course *c)
{
    const struct cogvideo_run *r = c->run;
    const struct cogvideo_data *d = &r->data;
    int64_t n = r->options.train.batch, y = n * cogvideo_data_y(d), z = n * cogvideo_data_z(d) * 4;
    const float *t = c->t + n * ckpt_rank(r->context);
    ckpt_program *p = r->training;
    int rc = ckpt_feed(p, "z", c->z, z);

    if (!rc)
        rc = r->model.dtype == CKPT_BF16 ? ckpt_feed(p, "y", c->y_bf16, y * 2)
                                         : ckpt_feed(p, "y", c->y, y * 4);
    if (!rc)
        rc = ckpt_feed(p, "t", t, n * 4);
    if (!rc)
        rc = ckpt_feed(p, "signal", c->signal, n * 4);
    if (!rc)
        rc = ckpt_feed(p, "noise", c->noise, n * 4);
    if (!rc && c->eps)
        rc = ckpt_feed(p, "eps", c->eps, z);
    if (!rc && c->image)
        rc = ckpt_feed(p, "image", c->image, n * cogvideo_data_image(d) * 4);
    return rc;
}

/* ---- steps --------------------------------------------------------------------------------- */

static int submit(struct training *t, int64_t step)
{
    struct course *c = t->user;
    struct cogvideo_run *r = c->run;

    if (fill(c, step))
        return -1;
    if (ckpt_set_lr(r->training, (float)training_rate(t, step)) || feed(c) ||
        ckpt_submit(r->training))
        return say_fail("%s", ckpt_error(r->context));
    return 0;
}

static int end(struct training *t, int64_t step)
{
    const struct course *c = t->user;

    return training_end(t, c->run->training, step, 0);
}

static bool looks(const struct training *t, int64_t step)
{
    const struct course *c = t->user;

    return cogvideo_watch_is_due(c->run->watch, step);
}

static int look(struct training *t, int64_t step)
{
    struct course *c = t->user;

    return cogvideo_watch_draw(c->run->watch, step);
}

/* The autoencoder has its own file. */
static bool is_ours(void *user, const char *name)
{
    (void)user;
    return !cogvae_owns(name);
}

int cogvideo_train(struct cogvideo_run *r)
{
    const struct cogvideo_options *o = &r->options;
    struct course c;
    struct training t = {.context = r->context,
                         .options = &o->train,
                         .first = r->first,
                         .log = &r->log,
                         /* pictures are encoded by the device; a dump looks at the first one */
                         .ahead = o->train.dump || o->images ? 0 : 1,
                         .note_key = r->note ? COGVIDEO_LORA_NOTE : NULL,
                         .note = r->note,
                         .submit = submit,
                         .end = end,
                         .looks = looks,
                         .look = look,
                         .user = &c};

    int rc = open_course(&c, r);
    rc = rc ? rc : training_run(&t);
    if (!rc && r->watch->draws && t.ended > t.first && !ckpt_stop_requested(r->context))
        rc = cogvideo_watch_draw(r->watch, t.ended);
    close_course(&c);
    rc = rc ? rc : dump_check(o->train.dump, t.ended - t.first);
    training_report(&t, "loss", r->training);
    return training_save(&t, rc, o->rank ? ckpt_lora_only : is_ours);
}

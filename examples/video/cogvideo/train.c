/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training: v-prediction with equal weight for all timesteps.
 *
 *   loss = mean (v - v*)^2,  v* = sqrt(a) eps - sqrt(1 - a) x0
 *
 * It equals the published loss, the error of x0 over 1 - a, but without a division by 0.
 */
#include <stdlib.h>
#include "../../common/compiled.h"
#include "../../common/dump.h"
#include "../../common/say.h"
#include "../../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "batch.h"
#include "validate.h"
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

int cogvideo_compile_loss(struct cogvideo_run *r, const ckpt_optimizer *optimizer, const char *what)
{
    int rc = ckpt_compile(r->context, record, r, optimizer, r->options.train.batch, &r->training);
    return compiled(r->context, rc, r->training, what);
}

int cogvideo_compile(struct cogvideo_run *r)
{
    const struct cogvideo_options *o = &r->options;
    struct ckpt_adamw s = training_adamw(&o->train);

    return cogvideo_compile_loss(r, optimizer_make(r->context, o->train.optimizer, &s), "");
}

/* ---- steps --------------------------------------------------------------------------------- */

static int feed(struct training *t, int64_t step)
{
    struct cogvideo_batch *b = t->user;

    if (cogvideo_batch_fill(b, step))
        return -1;
    return cogvideo_batch_feed(b) ? say_fail("%s", ckpt_error(t->context)) : 0;
}

static int end(struct training *t, int64_t step)
{
    return training_end(t, t->only, step, 0);
}

static bool looks(const struct training *t, int64_t step)
{
    const struct cogvideo_batch *b = t->user;

    return training_is_due(b->run->options.validation.every, step) ||
           cogvideo_watch_is_due(b->run->watch, step);
}

static int look(struct training *t, int64_t step)
{
    struct cogvideo_batch *b = t->user;
    struct cogvideo_run *r = b->run;

    if (training_is_due(r->options.validation.every, step) &&
        cogvideo_validate(r->validation, step))
        return -1;
    return cogvideo_watch_is_due(r->watch, step) && !training_is_stopped(t->context)
               ? cogvideo_watch_draw(r->watch, step)
               : 0;
}

int cogvideo_look_last(void *run, struct training *t)
{
    const struct cogvideo_run *r = run;

    if (r->options.validation.file && cogvideo_validate(r->validation, t->ended))
        return -1;
    return r->watch->draws ? cogvideo_watch_draw(r->watch, t->ended) : 0;
}

/* Skips the autoencoder, which has its own file. */
static bool is_ours(void *user, const char *name)
{
    (void)user;
    return !cogvae_owns(name);
}

static bool name_in_file(void *user, const char *name, int i, char *alias, size_t size)
{
    const struct cogvideo_run *r = user;

    return !i && cogvideo_lora_name(cogvideo_lora_format(&r->options), name, alias, size);
}

int cogvideo_open_steps(void *run, struct training *t)
{
    struct cogvideo_run *r = run;
    struct cogvideo_batch *b = calloc(1, sizeof *b);

    if (!b)
        return say_fail("no memory for a batch");
    if (r->options.images)
        t->ahead = 0; /* the device encodes images */
    t->saves = r->options.rank ? ckpt_lora_only : is_ours;
    t->alias = r->options.rank ? name_in_file : NULL;
    t->saves_user = r;
    t->feed = feed;
    t->end = end;
    t->looks = looks;
    t->look = look;
    t->user = b;
    return cogvideo_batch_open(b, r);
}

void cogvideo_close_steps(void *user)
{
    cogvideo_batch_close(user);
    free(user);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Training: the mean squared difference of the prediction, with equal weight for all timesteps. */
#include <stdlib.h>
#include "../common/compiled.h"
#include "../common/dump.h"
#include "../common/say.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "batch.h"
#include "validate.h"
#include "watch.h"

/* ---- recording ----------------------------------------------------------------------------- */

static ckpt_tensor per_sample(ckpt_tape *t, const char *name, int64_t batch)
{
    ckpt_tensor x = ckpt_input(t, name, CKPT_F32, 1, &batch);

    return ckpt_reshape(t, x, 5, (int64_t[]){batch, 1, 1, 1, 1});
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct video_run *r = user;
    const struct video_net *net = &r->options.net;
    const struct video_sizes *c = &net->sizes;
    const struct video_geometry *g = &r->data.shapes.shape->geometry;
    int64_t shape[] = {batch, c->channels, g->frames, g->height, g->width};
    int64_t image[] = {batch, c->channels, 1, g->height, g->width};
    int64_t text[] = {batch, g->tokens, c->text_width};
    struct video_inputs in = {0};

    ckpt_label(t, "noise");
    ckpt_tensor x0 = ckpt_input(t, "z", CKPT_F32, 5, shape);
    ckpt_tensor signal = per_sample(t, "signal", batch), noise = per_sample(t, "noise", batch);
    ckpt_tensor eps =
        r->data.eps ? ckpt_input(t, "eps", CKPT_F32, 5, shape) : ckpt_randn(t, CKPT_F32, 5, shape);
    in.text = ckpt_input(t, "y", net->dtype, 3, text);
    in.t = ckpt_input(t, "t", CKPT_F32, 1, &batch);
    if (c->has_image)
        in.image = ckpt_input(t, "image", CKPT_F32, 5, image);
    in.x = ckpt_add(t, ckpt_mul(t, x0, signal), ckpt_mul(t, eps, noise));
    ckpt_tensor target = net->model->target(t, x0, eps, signal, noise);
    ckpt_tensor pred = ckpt_cast(t, net->model->forward(net, t, g, &in), CKPT_F32);
    ckpt_label(t, "loss");
    if (r->options.train.dump)
        dump_record(r->context, t, pred);
    return ckpt_mse(t, pred, target, CKPT_NONE);
}

int video_compile_loss(struct video_run *r, struct video_shape *s, const ckpt_optimizer *optimizer,
                       const char *what)
{
    int rc = ckpt_compile(r->context, record, r, optimizer, s->batch, &s->training);
    r->training = s->training;
    return compiled(r->context, rc, s->training, what);
}

int video_compile(struct video_run *r)
{
    const struct video_options *o = &r->options;
    struct ckpt_adamw s = training_adamw(&o->train);

    return video_compile_loss(r, r->data.shapes.shape,
                              optimizer_make(r->context, o->train.optimizer, &s), "");
}

/* ---- steps --------------------------------------------------------------------------------- */

static int feed(struct training *t, int64_t step)
{
    struct video_batch *b = t->user;

    if (video_batch_fill(b, step))
        return -1;
    return video_batch_feed_training(b, t->only) ? say_fail("%s", ckpt_error(t->context)) : 0;
}

static int end(struct training *t, int64_t step)
{
    return training_end(t, t->only, step, 0) || adapters_check_step(t, step) ? -1 : 0;
}

static bool name_in_file(void *user, const char *name, int i, char *alias, size_t size)
{
    const struct video_run *r = user;

    return !i && adapter_name(r->options.net.model->adapters, adapter_format(&r->options.adapters),
                              name, alias, size);
}

int video_open_steps(void *run, struct training *t)
{
    struct video_run *r = run;
    const struct video_options *o = &r->options;
    struct video_batch *b = calloc(1, sizeof *b);

    if (!b)
        return say_fail("no memory for a batch");
    if (r->options.images)
        t->ahead = 0; /* the device encodes images */
    t->saves = r->options.adapters.rank ? ckpt_lora_only : video_owns;
    t->alias = r->options.adapters.rank ? name_in_file : NULL;
    t->saves_user = r;
    t->feed = feed;
    t->end = end;
    t->look[0] = (struct training_look){video_validate, o->validation.every, o->validation.file};
    t->look[1] = (struct training_look){video_watch_draw, o->sample_every, r->watch->draws};
    t->user = b;
    return video_batch_open(b, r, r->data.shapes.shape, 1);
}

void video_close_steps(void *user)
{
    video_batch_close(user);
    free(user);
}

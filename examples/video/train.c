/* SPDX-License-Identifier: Apache-2.0 */
/* Training: the mean squared difference of the prediction. */
#include <stdlib.h>
#include <string.h>
#include "../common/dump.h"
#include "../common/say.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "batch.h"
#include "validate.h"
#include "watch.h"

/* ---- recording ----------------------------------------------------------------------------- */

/* A value for each sample, or for each of its frames. */
static ckpt_tensor per_sample(ckpt_tape *t, const char *name, int64_t batch, int64_t frames)
{
    ckpt_tensor x = ckpt_input(t, name, CKPT_F32, 2, (int64_t[]){batch, frames});

    return ckpt_reshape(t, x, 5, (int64_t[]){batch, 1, frames, 1, 1});
}

/* Frames without noise are no part of the loss, which the square of the fed weight multiplies. */
static ckpt_tensor loss(const struct video_run *r, ckpt_tape *t, ckpt_tensor pred,
                        ckpt_tensor target)
{
    const struct video_noising *n = &r->options.net.noising;
    struct ckpt_desc d = ckpt_desc_of(t, pred);
    ckpt_tensor mask = CKPT_NONE;

    if (n->first > 0)
        mask = ckpt_input(t, "noised", CKPT_I32, 2, (int64_t[]){d.shape[0], d.shape[2]});
    if (n->weights) {
        ckpt_tensor weight = per_sample(t, "weight", d.shape[0], 1);
        pred = ckpt_mul(t, pred, weight);
        target = ckpt_mul(t, target, weight);
    }
    return ckpt_mse(t, pred, target, mask);
}

ckpt_tensor video_record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct video_recorded *recorded = user;
    const struct video_run *r = recorded->run;
    const struct video_net *net = recorded->net;
    const struct video_sizes *c = &net->sizes;
    const struct video_geometry *g = &recorded->shape->geometry;
    int64_t shape[] = {batch, c->channels, g->frames, g->height, g->width};
    int64_t image[] = {batch, c->channels, c->whole_image ? g->frames : 1, g->height, g->width};
    int64_t text[] = {batch, g->tokens, c->text_width}, two[] = {batch, 2};
    const bool gives = net->noising.first > 0;
    struct video_inputs in = {0};

    ckpt_label(t, "noise");
    ckpt_tensor x0 = ckpt_input(t, "z", CKPT_F32, 5, shape);
    ckpt_tensor signal = per_sample(t, "signal", batch, gives ? g->frames : 1);
    ckpt_tensor noise = per_sample(t, "noise", batch, gives ? g->frames : 1);
    ckpt_tensor eps =
        r->data.eps ? ckpt_input(t, "eps", CKPT_F32, 5, shape) : ckpt_randn(t, CKPT_F32, 5, shape);
    in.text = ckpt_input(t, "y", net->dtype, 3, text);
    in.t = ckpt_input(t, "t", CKPT_F32, gives ? 2 : 1, two);
    if (c->has_image)
        in.image = ckpt_input(t, "image", CKPT_F32, 5, image);
    if (c->sight_tokens)
        in.sight = ckpt_input(t, "sight", CKPT_F32, 3,
                              (int64_t[]){batch, c->sight_tokens, c->sight_width});
    in.x = ckpt_add(t, ckpt_mul(t, x0, signal), ckpt_mul(t, eps, noise));
    ckpt_tensor target = net->model->target(t, x0, eps, signal, noise);
    ckpt_tensor pred = ckpt_cast(t, net->model->forward(net, t, g, &in), CKPT_F32);
    ckpt_label(t, "loss");
    if (r->options.train.dump)
        dump_record(r->context, t, pred);
    return loss(r, t, pred, target);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* The state of the training loop beside the run. */
struct steps {
    struct video_course course;
    struct video_batch batch;
    bool began[2]; /* the models of a pair that a step has trained */
};

static int select_clips(struct training *t, int64_t step)
{
    return video_course_select(&((struct steps *)t->user)->course, step);
}

static ckpt_program *program(const struct training *t, int64_t step)
{
    return video_selection_program(video_course_of(&((const struct steps *)t->user)->course, step));
}

static int feed(struct training *t, int64_t step)
{
    struct steps *s = t->user;

    if (video_batch_fill(&s->batch, video_course_of(&s->course, step)))
        return -1;
    return video_batch_feed_training(&s->batch, program(t, step))
               ? say_fail("%s", ckpt_error(t->context))
               : 0;
}

static int log_expert(struct training *t, int64_t step)
{
    const struct video_course *c = &((const struct steps *)t->user)->course;

    log_text(t->log, "expert", video_course_of(c, step)->second ? "low" : "high");
    return 0;
}

static int notes(struct training *t)
{
    return video_course_note(&((const struct steps *)t->user)->course, t);
}

static bool name_in_file(void *user, const char *name, int i, char *alias, size_t size)
{
    const struct video_options *o = &((const struct video_run *)user)->options;
    const struct adapter_names *names = o->net.model->adapters;

    if (i)
        return false;
    if (o->adapters.rank)
        return adapter_name(names, adapter_format(&o->adapters), name, alias, size);
    i = !o->names ? 0 : strcmp(o->names, "original") ? 2 : 1;
    return adapter_weight_name(names, name, i - !video_is_pair(user), alias, size);
}

/* What --save and --save-low write of a pair. */
static bool saves_of(const struct video_run *r, const char *name, bool second)
{
    const char *prefix = r->options.net.model->adapters->prefix;
    const char *begin = video_net_of(r, second)->begin;

    if (r->options.adapters.rank && !ckpt_lora_only(NULL, name))
        return false;
    name += r->options.adapters.rank ? strlen(prefix) : 0;
    return !strncmp(name, begin, strlen(begin));
}

static bool saves_high(void *run, const char *name)
{
    return saves_of(run, name, false);
}

static bool saves_low(void *run, const char *name)
{
    return saves_of(run, name, true);
}

static int end(struct training *t, int64_t step)
{
    struct steps *s = t->user;
    const bool second = video_course_of(&s->course, step)->second;

    if (video_course_end(&s->course, t, step))
        return -1;
    if (!t->saves_low)
        return adapters_check_step(t, step);
    const bool first = !s->began[second];
    s->began[second] = true;
    return first ? adapters_check(t, second ? saves_low : saves_high) : 0;
}

int video_open_steps(void *run, struct training *t)
{
    struct video_run *r = run;
    const struct video_options *o = &r->options;
    struct steps *s = calloc(1, sizeof *s);

    if (!s)
        return say_fail("no memory for a batch");
    s->course.run = r;
    if (r->options.images)
        t->ahead = 0; /* the device encodes images */
    t->saves = video_is_pair(r) ? saves_high : o->adapters.rank ? ckpt_lora_only : video_owns;
    t->saves_low = video_is_pair(r) ? saves_low : NULL;
    t->alias = o->adapters.rank || o->names || video_is_pair(r) ? name_in_file : NULL;
    t->fields = video_is_pair(r) ? log_expert : NULL;
    t->saves_user = r;
    t->select = select_clips;
    t->feed = feed;
    t->program = program;
    t->end = end;
    t->notes = notes;
    t->look[0] = (struct training_look){video_validate, o->validation.every, o->validation.file};
    t->look[1] = (struct training_look){video_watch_draw, o->sample_every, r->watch->draws};
    t->user = s;
    return video_batch_open(&s->batch, r, r->data.shapes.shape, r->data.shapes.n);
}

void video_close_steps(void *user)
{
    struct steps *s = user;

    video_batch_close(&s->batch);
    video_course_close(&s->course);
    free(s);
}

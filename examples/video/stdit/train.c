/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training: rectified flow (Liu et al. 2022) with logit-normal times.
 *
 *     x_u = (1 - u) x0 + u eps;  the network predicts v = x0 - eps;  loss = mean (pred - v)^2
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/dump.h"
#include "../../common/training.h"
#include "ckpt_dist.h"
#include "run.h"

/* ---- recording ----------------------------------------------------------------------------- */

/* (1 - u) x0 + u eps; frames that are not noised stay x0. */
static ckpt_tensor mix(ckpt_tape *t, ckpt_tensor x0, ckpt_tensor eps, ckpt_tensor u,
                       ckpt_tensor x_mask)
{
    struct ckpt_desc d = ckpt_desc_of(t, x0);
    int64_t batch = d.shape[0], frames = d.shape[2];
    ckpt_tensor level = ckpt_reshape(t, u, 5, (int64_t[]){batch, 1, 1, 1, 1});
    ckpt_tensor x =
        ckpt_add(t, ckpt_mul(t, x0, ckpt_affine(t, level, -1.f, 1.f)), ckpt_mul(t, eps, level));

    if (!x_mask.id)
        return x;
    return ckpt_where(t, ckpt_reshape(t, x_mask, 5, (int64_t[]){batch, 1, frames, 1, 1}), x, x0);
}

ckpt_tensor stdit_record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct video_recorded *recorded = user;
    const struct video_run *r = recorded->run;
    const struct video_shape *s = recorded->shape;
    const struct video_geometry *g = &s->geometry;
    int64_t z[] = {batch, r->data.channels, g->frames, g->height, g->width};

    ckpt_label(t, "noise");
    struct stdit_inputs in = stdit_record_inputs(r, s, t, batch, r->drops);
    ckpt_tensor x0 = in.x, u = ckpt_input(t, "u", CKPT_F32, 1, &batch);
    if (s->masked)
        in.x_mask = ckpt_input(t, "x_mask", CKPT_I32, 2, (int64_t[]){batch, g->frames});
    ckpt_tensor eps =
        r->data.eps ? ckpt_input(t, "eps", CKPT_F32, 5, z) : ckpt_randn(t, CKPT_F32, 5, z);
    in.x = mix(t, x0, eps, u, in.x_mask);
    ckpt_tensor both = stdit_forward(r->stdit, t, g, &in);
    ckpt_label(t, "loss");
    ckpt_tensor pred = ckpt_cast(t, ckpt_slice(t, both, 1, 0, r->data.channels), CKPT_F32);
    if (r->options.train.dump)
        dump_record(r->context, t, pred);
    return ckpt_mse(t, pred, ckpt_sub(t, x0, eps), in.x_mask);
}

int stdit_compile_training(struct video_run *r)
{
    struct ckpt_adamw adamw = training_adamw(&r->options.train);

    adamw.eps = 1e-15f;
    return video_compile_steps(r, &adamw);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* The state of the training loop beside the run. */
struct course {
    struct video_course clips;
    struct video_batch batch;
    struct stdit_ahead ahead;
};

static int select_clips(struct training *t, int64_t step)
{
    return video_course_select(&((struct course *)t->user)->clips, step);
}

static ckpt_program *program(const struct training *t, int64_t step)
{
    return video_course_of(&((const struct course *)t->user)->clips, step)->shape->training;
}

static int feed(struct training *t, int64_t step)
{
    struct course *c = t->user;
    struct video_batch *b = &c->batch;
    const struct video_selection *selection = video_course_of(&c->clips, step);

    if (stdit_batch_fill(b, selection) ||
        (c->ahead.loader && stdit_batch_encode(b, selection, c->ahead.loader)))
        return -1;
    if (c->ahead.loader)
        t->data_ms = loader_waited(c->ahead.loader) * 1e3;
    if (stdit_batch_feed_training(b, selection->shape->training))
        return say_fail("%s", ckpt_error(t->context));
    return 0;
}

static int end(struct training *t, int64_t step)
{
    return video_course_end(&((struct course *)t->user)->clips, t, step);
}

static int notes(struct training *t)
{
    const struct course *c = t->user;

    if (video_course_note(&c->clips, t))
        return -1;
    return c->ahead.loader ? loader_note_bad(c->ahead.loader, t->context) : 0;
}

/* The autoencoder is saved in its own file. */
static bool is_ours(void *user, const char *name)
{
    (void)user;
    return !stdit_vae_owns(name);
}

int stdit_open_steps(void *run, struct training *t)
{
    struct video_run *r = run;
    const struct video_options *o = &r->options;
    struct course *c = calloc(1, sizeof *c);

    if (!c)
        return say_fail("no memory for a batch");
    c->clips.run = r;
    if (o->video_dir)
        t->ahead = 0; /* the device encodes videos */
    t->reads = o->video_dir != NULL;
    t->saves = is_ours;
    t->select = select_clips;
    t->feed = feed;
    t->program = program;
    t->end = end;
    t->look[0] = (struct training_look){video_validate, o->validation.every, o->validation.file};
    t->look[1] = (struct training_look){stdit_sample_between, o->sample_every, false};
    t->notes = notes;
    t->user = c;
    return video_batch_open(&c->batch, r, r->data.shapes.shape, r->data.shapes.n) ||
                   stdit_ahead_open(&c->ahead, r)
               ? -1
               : 0;
}

void stdit_close_steps(void *user)
{
    struct course *c = user;

    stdit_ahead_close(&c->ahead);
    video_batch_close(&c->batch);
    video_course_close(&c->clips);
    free(c);
}

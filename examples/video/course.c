/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes of a run in its steps: one program for each, and the place in their order. */
#include <stdlib.h>
#include <string.h>
#include "../common/compiled.h"
#include "../common/say.h"
#include "ckpt_dist.h"
#include "run.h"

/* ---- programs ------------------------------------------------------------------------------- */

int video_compile_loss(struct video_run *r, struct video_shape *s,
                       ckpt_optimizer *const optimizer[2], const char *what)
{
    ckpt_recorder record = r->options.net.model->record;

    for (int i = 0; i <= video_is_pair(r); i++) {
        struct video_recorded recorded = {r, s, video_net_of(r, i)};
        ckpt_program **program = i ? &s->low : &s->training;
        int rc = ckpt_compile(r->context, record, &recorded, optimizer ? optimizer[i] : NULL,
                              s->batch, program);
        if (compiled(r->context, rc, *program, what))
            return -1;
    }
    return 0;
}

/* A run whose open batches are chosen. */
struct forecast {
    struct video_run *run;
    const ckpt_optimizer *optimizer;
};

static int forecast(void *user, struct video_shape *s, int64_t batch, double limit,
                    struct ckpt_forecast *f)
{
    const struct forecast *c = user;
    struct video_recorded recorded = {c->run, s, &c->run->options.net};

    return ckpt_forecast(c->run->context, c->run->options.net.model->record, &recorded,
                         c->optimizer, batch, limit, f);
}

static int choose_batches(struct video_run *r, const ckpt_optimizer *optimizer)
{
    struct forecast user = {r, optimizer};
    const struct video_batches b = {.shapes = &r->data.shapes,
                                    .context = r->context,
                                    .state = &r->options.train.state,
                                    .micro = r->options.library.micro_batch,
                                    .seconds = r->options.batch_seconds,
                                    .forecast = forecast,
                                    .user = &user};

    return video_choose_batches(&b);
}

/* The second model was planned above all that the first has in the tiers.  Now that all parameters
 * have their places, it gets the bytes that steps use in turn. */
static int compile_low_again(struct video_run *r, struct video_shape *s, ckpt_optimizer *optimizer)
{
    struct video_recorded recorded = {r, s, video_net_of(r, true)};

    if (!video_is_pair(r) || !r->options.library.host)
        return 0;
    ckpt_program_free(s->low);
    s->low = NULL;
    int rc = ckpt_compile(r->context, r->options.net.model->record, &recorded, optimizer, s->batch,
                          &s->low);
    return compiled(r->context, rc, s->low, "");
}

/* Each of a pair trains its own model.  Ranks then see that parameters outside of the blocks are
 * those of two models, and exchange them apart. */
static void train_own(struct video_run *r, ckpt_optimizer *const optimizer[2])
{
    const char *adapters = r->options.net.model->adapters->prefix;
    struct ckpt_optimizer_group other = CKPT_OPTIMIZER_GROUP_INIT;

    other.frozen = true;
    for (int i = 0; i < 2; i++) {
        char names[64];
        snprintf(names, sizeof names, "%s%s*", r->options.adapters.rank ? adapters : "",
                 video_net_of(r, !i)->begin);
        ckpt_optimizer_group(optimizer[i], names, &other);
    }
}

int video_compile_steps(struct video_run *r, const struct ckpt_adamw *adamw)
{
    ckpt_optimizer *optimizer[2] = {NULL}; /* each counts the updates of its model */

    if (video_is_pair(r) || r->data.shapes.n > 1)
        ckpt_train_in_turn(r->context);
    for (int i = 0; i <= video_is_pair(r); i++)
        optimizer[i] = optimizer_make(r->context, r->options.train.optimizer, adamw);
    if (video_is_pair(r))
        train_own(r, optimizer);
    if (r->data.shapes.buckets.n && choose_batches(r, optimizer[0]))
        return -1;
    for (int i = 0; i < r->data.shapes.n; i++) {
        struct video_shape *s = &r->data.shapes.shape[i];
        char what[64] = "";
        if (s->name[0])
            snprintf(what, sizeof what, "bucket %s: ", s->name);
        if (video_compile_loss(r, s, optimizer, what))
            return -1;
    }
    for (int i = 0; i < r->data.shapes.n; i++)
        if (compile_low_again(r, &r->data.shapes.shape[i], optimizer[1]))
            return -1;
    r->training = r->data.shapes.shape->training;
    return 0;
}

int video_open_order(struct video_run *r)
{
    const struct video_options *o = &r->options;
    struct video_shapes *s = &r->data.shapes;

    if (video_balance(s, r->context, video_balance_of(o), &o->train.state) ||
        video_order_open(&r->order, s, o->stride, (uint64_t)o->library.seed,
                         ckpt_sample_group(r->context), ckpt_sample_groups(r->context)))
        return -1;
    r->order.share = video_is_pair(r) ? o->net.model->share(&o->net) : 0;
    if (s->buckets.n)
        video_print_buckets(&r->order, r->context);
    else
        ckpt_plan_print(s->shape->training, stdout);
    if (!s->buckets.n && s->shape->low)
        ckpt_plan_print(s->shape->low, stdout);
    return 0;
}

/* ---- states --------------------------------------------------------------------------------- */

bool video_varies(const void *run)
{
    return ((const struct video_run *)run)->options.buckets != NULL;
}

int video_note(void *run, struct resume_place *place)
{
    struct video_run *r = run;
    bool buckets = r->data.shapes.buckets.n > 0;

    if (buckets && video_note_buckets(&r->data.shapes, r->context))
        return -1;
    place->name = buckets ? VIDEO_PLACE : NULL;
    return buckets ? video_note_place(&r->order, r->context, NULL) : 0;
}

int video_resumed(void *run, struct resume_place *place)
{
    struct video_run *r = run;

    r->bad = place->bad;
    place->bad = NULL;
    return place->was ? video_order_go(&r->order, place->was) : 0;
}

/* ---- steps ---------------------------------------------------------------------------------- */

const struct video_selection *video_course_of(const struct video_course *c, int64_t step)
{
    return &c->selection[step % VIDEO_FLIGHT];
}

int video_course_select(struct video_course *c, int64_t step)
{
    struct video_run *r = c->run;
    char **place = &c->place[step % VIDEO_FLIGHT];

    if (r->data.shapes.buckets.n) {
        const char *now = video_order_place(&r->order);
        free(*place);
        *place = now ? strdup(now) : NULL;
        if (!*place)
            return say_fail("no memory for the place in the buckets");
    }
    c->selected = step + 1;
    return video_order_next(&r->order, step, &c->selection[step % VIDEO_FLIGHT]);
}

int video_course_end(struct video_course *c, struct training *t, int64_t step)
{
    const struct video_selection *s = video_course_of(c, step);

    t->part = s->shape->name[0] ? s->shape->name : NULL;
    return training_end(t, video_selection_program(s), step, 0);
}

/* The place before the first step that did not end: the data of one, whose clips were selected, may
 * have failed. */
int video_course_note(const struct video_course *c, const struct training *t)
{
    const char *place = c->selected > t->ended ? c->place[t->ended % VIDEO_FLIGHT] : NULL;

    return c->run->data.shapes.buckets.n ? video_note_place(&c->run->order, c->run->context, place)
                                         : 0;
}

void video_course_close(struct video_course *c)
{
    for (int i = 0; i < VIDEO_FLIGHT; i++)
        free(c->place[i]);
}

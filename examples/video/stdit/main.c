/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdit-train: trains STDiT3, the video diffusion transformer of Open-Sora 1.2, within a memory
 * budget, on a video file, on videos encoded by an autoencoder, or on precomputed features, and
 * samples from the trained model.
 */
#include <stdlib.h>
#include <string.h>
#include "../../common/trainer.h"
#include "ckpt_dist.h"
#include "run.h"

const char say_program[] = "stdit-train";

/* ---- printed lines --------------------------------------------------------------------------- */

static void introduce(const void *run)
{
    const struct video_run *r = run;
    const struct stdit_config *c = &r->stdit->config;
    char count[32];

    stdit_note_caption(r);
    printf("model: STDiT3 %s, %s trainable parameters (hidden %lld, %lld heads, depth %lld, %s)\n",
           r->options.model, say_count(count, r->trainable), (long long)c->hidden,
           (long long)c->heads, (long long)c->depth, r->options.dtype);
    say_print("%s\n", r->data.title);
    if (r->options.demo_budget)
        printf("budget: half of the memory that a run without a budget takes; --vram SIZE sets "
               "another\n");
}

/* ---- data and model ------------------------------------------------------------------------ */

static bool has_buckets(const void *run)
{
    return ((const struct video_run *)run)->options.buckets != NULL;
}

static int open_data(void *run)
{
    struct video_run *r = run;

    return stdit_data_open(&r->data, &r->options, true);
}

/* The option was checked. */
static enum balance balance_of(const struct video_run *r)
{
    enum balance kind = BALANCE_NONE;

    (void)balance_read(r->options.balance, &kind);
    return kind;
}

static void set_masks(struct video_run *r)
{
    bool drawn = strcmp(r->options.mask_stage, "none") != 0;
    /* Pictures have no masks, but ranks that run them beside clips count masks together. */
    int64_t least = balance_of(r) ? 1 : 2;

    for (int i = 0; i < r->data.shapes.n; i++) {
        struct video_shape *s = &r->data.shapes.shape[i];
        s->masked = r->data.x_mask || (drawn && s->geometry.frames >= least);
    }
}

static int compile_steps(struct video_run *r)
{
    return stdit_compile_training(r) || video_validation_compile(r->validation, r) ? -1 : 0;
}

/* Compiles the programs that run after the text encoder, in a planning-only context. */
static int compile_ahead(struct video_run *r)
{
    return stdit_compile(r, training_has_steps(&r->options.train) ? compile_steps : NULL);
}

/* The text encoder has the whole budget and is freed before the model is created; a budget too
 * small for training is rejected first. */
static int encode_captions(struct video_run *r)
{
    const struct video_options *o = &r->options;
    struct video_texts *t = &r->data.texts;

    if (o->library.plan_only)
        return 0;
    if (video_texts_lack(t, o) && stdit_plan_ahead(r, ckpt_ranks(r->context), compile_ahead))
        return -1;
    return video_texts_make(t, &r->data, o, r->context);
}

static int make_model(void *run)
{
    struct video_run *r = run;

    if (video_validation_open(r->validation, r))
        return -1;
    set_masks(r);
    r->drops = !r->data.t && !r->data.eps;
    return encode_captions(r) || stdit_make_model(r) || stdit_load(r) ? -1 : 0;
}

/* ---- programs ------------------------------------------------------------------------------ */

static int compile(void *run, bool trains)
{
    struct video_run *r = run;
    struct video_options *o = &r->options;

    if (o->video_dir && !o->library.plan_only &&
        loader_hold_open(&r->hold, &o->loader, videos_largest(&r->data.videos)))
        return -1;
    int rc = stdit_compile(r, trains ? compile_steps : NULL);
    r->training = r->data.shapes.shape->training;
    return rc;
}

static int fits(void *run, bool trains)
{
    struct video_run *r = run;
    const struct video_options *o = &r->options;
    const bool buckets = r->data.shapes.buckets.n > 0;

    if (trains &&
        (video_balance(&r->data.shapes, r->context, balance_of(r), &o->train.state) ||
         video_order_open(&r->order, &r->data.shapes, o->stride, (uint64_t)o->library.seed,
                          ckpt_rank(r->context), ckpt_ranks(r->context))))
        return -1;
    if (trains && buckets)
        video_print_buckets(&r->order, r->context);
    if (trains && !buckets)
        ckpt_plan_print(r->data.shapes.shape->training, stdout);
    if (trains && o->video_dir && stdit_ahead_plan(r))
        return -1;
    loader_hold_close(&r->hold);
    return 0;
}

/* ---- the run ------------------------------------------------------------------------------- */

static int notes(void *run, struct resume_place *place)
{
    struct video_run *r = run;
    bool buckets = r->data.shapes.buckets.n > 0;

    if (buckets && video_note_buckets(&r->data.shapes, r->context))
        return -1;
    place->name = buckets ? VIDEO_PLACE : NULL;
    return buckets ? video_note_place(&r->order, r->context, NULL) : 0;
}

static int resumed(void *run, struct resume_place *place)
{
    struct video_run *r = run;

    r->bad = place->bad;
    place->bad = NULL;
    return place->was ? video_order_go(&r->order, place->was) : 0;
}

static void report(const void *run)
{
    validation_report(&((const struct video_run *)run)->validation->common);
}

static int finish(void *run, bool trained)
{
    struct video_run *r = run;

    (void)trained;
    return r->options.sample_steps > 0 && !ckpt_stop_requested(r->context) ? stdit_sample(r) : 0;
}

static void close(void *run)
{
    video_validation_close(((struct video_run *)run)->validation);
    stdit_close(run);
}

static int open_clips(struct video_data *d, struct video_options *o)
{
    return stdit_data_open(d, o, false);
}

const struct video_model stdit_model = {.published = "Open-Sora",
                                        .programs = "stdit",
                                        .out = STDIT_OUT,
                                        .text = TEXT_OPENSORA,
                                        .data = open_clips,
                                        .compile_loss = stdit_compile_loss,
                                        .fill_row = stdit_batch_fill_row,
                                        .feed = stdit_batch_feed_training,
                                        .noise_of_validation = STREAM_VALID};

int main(int argc, char **argv)
{
    static struct stdit model;
    static struct video_validation validation = {.batch = {.run = NULL}};
    static struct video_run r = {.stdit = &model, .validation = &validation};
    const struct trainer t = {TRAINER_RUN(r),
                              .reading = stdit_options_reading(&r.options, &stdit_model),
                              .check = stdit_options_check,
                              .outputs = video_check_outputs,
                              .varies = has_buckets,
                              .data = open_data,
                              .facts = video_facts,
                              .model = make_model,
                              .introduce = introduce,
                              .compile = compile,
                              .fits = fits,
                              .program = &r.training,
                              .counted = "clips of the data",
                              .samples = &r.data.shapes.rows,
                              .notes = notes,
                              .resumed = resumed,
                              .describe = stdit_describe,
                              .open_steps = stdit_open_steps,
                              .close_steps = stdit_close_steps,
                              .report = report,
                              .finish = finish,
                              .close = close};

    return trainer_main(&t, argc, argv);
}

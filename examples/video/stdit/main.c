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

static int open_data(void *run)
{
    struct video_run *r = run;

    return stdit_data_open(&r->data, &r->options, true);
}

static void set_masks(struct video_run *r)
{
    bool drawn = strcmp(r->options.mask_stage, "none") != 0;
    /* Pictures have no masks, but ranks that run them beside clips count masks together. */
    int64_t least = video_balance_of(&r->options) ? 1 : 2;

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

    if (trains && video_open_order(r))
        return -1;
    if (trains && r->options.video_dir && stdit_ahead_plan(r))
        return -1;
    loader_hold_close(&r->hold);
    return 0;
}

/* ---- the run ------------------------------------------------------------------------------- */

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
                                        .record = stdit_record,
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
                              .splits = true,
                              .varies = video_varies,
                              .data = open_data,
                              .facts = video_facts,
                              .model = make_model,
                              .introduce = introduce,
                              .compile = compile,
                              .fits = fits,
                              .program = &r.training,
                              .counted = "clips of the data",
                              .samples = &r.data.shapes.rows,
                              .notes = video_note,
                              .resumed = video_resumed,
                              .describe = stdit_describe,
                              .open_steps = stdit_open_steps,
                              .close_steps = stdit_close_steps,
                              .report = video_validation_report,
                              .finish = finish,
                              .close = close};

    return trainer_main(&t, argc, argv);
}

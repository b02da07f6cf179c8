/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdit-train: trains STDiT3, the video diffusion transformer of Open-Sora 1.2, within a memory
 * budget, on a video file, on videos encoded by an autoencoder, or on precomputed features, and
 * samples from the trained model.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/compiled.h"
#include "../common/log.h"
#include "../common/outputs.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

const char say_program[] = "stdit-train";

/* ---- printed lines --------------------------------------------------------------------------- */

static void introduce(const struct stdit_run *r)
{
    const struct stdit_config *c = &r->model.config;
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

/* ---- output paths -------------------------------------------------------------------------- */

static int check_outputs(const struct stdit_options *o)
{
    struct training_files files = stdit_files(o);
    const struct ckpt_path inputs[] = {
        {"--video", o->video && *o->video ? o->video : NULL, CKPT_PATH_INPUT, 0},
        {"--video-dir", o->video_dir, CKPT_PATH_INPUT, 0},
        {"--features", o->features, CKPT_PATH_INPUT, 0},
        {"--cache", o->cache, CKPT_PATH_INPUT, 0},
        {"--buckets", o->buckets, CKPT_PATH_INPUT, 0},
        {"--vae", o->vae, CKPT_PATH_INPUT, 0},
        {"--text", o->text_encoder ? NULL : o->text, CKPT_PATH_INPUT, 0},
        {"--text", o->text_encoder && !o->library.plan_only ? o->text : NULL, CKPT_PATH_DIRECTORY,
         0},
        {"--tokenizer", o->tokenizer, CKPT_PATH_INPUT, 0},
        {"--val", o->validation.file, CKPT_PATH_INPUT, 0},
    };

    return outputs_check(&files, inputs, sizeof inputs / sizeof *inputs);
}

/* ---- the run ------------------------------------------------------------------------------- */

/* Notes for saved states: the options, and the number of clips in the data. */
static int note(const struct stdit_run *r)
{
    return resume_note_count(r->context, "clips of the data", r->data.rows) ||
                   (r->data.buckets.n && stdit_note_buckets(r))
               ? -1
               : stdit_options_note(&r->options, r->context);
}

static int compile_steps(struct stdit_run *r)
{
    return stdit_compile_training(r) || stdit_compile_validation(r) ? -1 : 0;
}

static bool has_steps(const struct stdit_run *r)
{
    return r->options.train.steps > 0 || r->options.train.state.from;
}

static bool is_training(const struct stdit_run *r)
{
    return has_steps(r) || r->options.library.plan_only;
}

/* Compiles the programs that run after the text encoder, in a planning-only context. */
static int compile_ahead(struct stdit_run *r)
{
    return stdit_compile(r, has_steps(r) ? compile_steps : NULL);
}

static int compile(struct stdit_run *r)
{
    bool trains = is_training(r);
    struct training_setup setup;

    training_setup_begin(&setup, r->context, trains ? r->trainable : 0,
                         r->options.library.plan_only && !r->data.buckets.n);
    if (stdit_compile(r, trains ? compile_steps : NULL) || compiled_all(r->context))
        return -1;
    if (trains && r->data.buckets.n)
        stdit_print_buckets(r);
    else if (trains)
        ckpt_plan_print(r->data.shape->training, stdout);
    if (trains && r->options.video_dir && stdit_ahead_plan(r))
        return -1;
    training_setup_end(&setup);
    return 0;
}

/* Continues at the place of the resumed state. */
static int begin_turns(struct stdit_run *r)
{
    bool buckets = r->data.buckets.n > 0;
    struct resume_place place = {.name = buckets ? STDIT_PLACE : NULL};

    if (stdit_turns_open(&r->turns, &r->data, &r->options, ckpt_ranks(r->context)) ||
        (buckets && stdit_note_place(r)) ||
        resume_load(&r->options.train.state, r->context, &place, &r->first))
        return -1;
    int rc = place.was ? stdit_turns_go(&r->turns, place.was) : 0;
    free(place.was);
    r->bad = place.bad;
    return rc;
}

static int train(struct stdit_run *r)
{
    if (note(r) || begin_turns(r) || stdit_log_open(r))
        return -1;
    return stdit_train(r);
}

/* All ranks must have the same data, because a step takes samples from all of it. */
static int agree_on_data(const struct stdit_run *r)
{
    const struct stdit_data *d = &r->data;
    size_t rows = (size_t)d->rows, texts = d->y ? (size_t)d->text_rows : 0;
    struct ckpt_fact facts[] = {
        {"number of clips", &d->rows, sizeof d->rows},
        {"data", d->z, d->z ? rows * (size_t)stdit_data_z(d, d->shape) * sizeof *d->z : 0},
        {"sizes of the clips", d->size, d->size ? rows * sizeof *d->size : 0},
        {"text", d->y, texts * (size_t)stdit_data_y(d) * sizeof *d->y},
        {"captions", &d->texts.sum, sizeof d->texts.sum},
        {"text mask", d->mask, texts * (size_t)d->tokens * sizeof *d->mask},
        {"frame rate of the data", d->fps, d->fps ? rows * sizeof *d->fps : 0},
    };

    return ckpt_agree(r->context, facts, sizeof facts / sizeof *facts)
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}

static void set_masks(struct stdit_run *r)
{
    bool drawn = strcmp(r->options.mask_stage, "none") != 0;

    for (int i = 0; i < r->data.n_shapes; i++) {
        struct stdit_shape *s = &r->data.shape[i];
        s->masked = r->data.x_mask || (drawn && s->geometry.frames > 1);
    }
}

/* The text encoder has the whole budget and is freed before the model is created; a budget too
 * small for training is rejected first. */
static int encode_captions(struct stdit_run *r)
{
    const struct stdit_options *o = &r->options;
    struct stdit_texts *t = &r->data.texts;

    if (o->library.plan_only)
        return 0;
    if (stdit_texts_lack(t, o) && stdit_plan_ahead(r, ckpt_ranks(r->context), compile_ahead))
        return -1;
    return stdit_texts_make(t, &r->data, o, r->context);
}

static int go(struct stdit_run *r)
{
    const struct stdit_options *o = &r->options;

    /* Only the first rank writes; ranks know their number after the rendezvous. */
    if (!o->library.ranks && check_outputs(o))
        return -1;
    if (ckpt_open(&r->context, &o->library))
        return say_fail("%s", ckpt_error(NULL));
    say_as_rank(ckpt_rank(r->context), ckpt_ranks(r->context));
    if (stdit_options_agree(o, r->context) || resume_find(&r->options.train.state, r->context) ||
        (o->library.ranks && !ckpt_rank(r->context) && check_outputs(o)))
        return -1;
    if (o->train.dump && ckpt_ranks(r->context) > 1)
        return say_fail("--dump is for one rank alone");
    if (!o->buckets)
        r->options.train.samples = o->train.batch * ckpt_ranks(r->context);
    if (stdit_data_open(&r->data, &r->options, true) || agree_on_data(r) ||
        stdit_validation_open(r))
        return -1;
    set_masks(r);
    r->drops = !r->data.t && !r->data.eps;
    if (encode_captions(r) || stdit_make_model(r) || stdit_load(r))
        return -1;
    introduce(r);
    if ((o->video_dir && !o->library.plan_only &&
         loader_hold_open(&r->hold, &r->options.loader, stdit_videos_largest(&r->data.videos))) ||
        compile(r))
        return -1;
    loader_hold_close(&r->hold);
    if (o->library.plan_only)
        return ckpt_unwritten(r->context) ? say_fail("%s", ckpt_error(r->context)) : 0;
    if (is_training(r) && train(r))
        return -1;
    if (o->sample_steps > 0 && !ckpt_stop_requested(r->context) && stdit_sample(r))
        return -1;
    return ckpt_unwritten(r->context) ? say_fail("%s", ckpt_error(r->context)) : 0;
}

static int open_and_go(struct stdit_run *r)
{
    int rc = go(r);

    loader_hold_close(&r->hold);
    loader_hw_close(&r->options.loader);
    free(r->bad);
    stdit_validation_close(r);
    return rc;
}

int main(int argc, char **argv)
{
    return stdit_main(argc, argv, stdit_options_parse, open_and_go);
}

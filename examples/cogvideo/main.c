/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cogvideo-train: trains the transformer of CogVideoX, or adapters of it, inside a memory budget,
 * on latents and text features that were encoded before.
 *
 * Everything that can be refused is checked before the first step: options, output files, the data
 * of all ranks, the plan of every program of the run.  All programs are compiled before a state is
 * loaded.  Without steps it only merges adapters.
 */
#include <stdlib.h>
#include "../common/compiled.h"
#include "../common/outputs.h"
#include "../common/say.h"
#include "../common/signals.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "validate.h"
#include "watch.h"

const char say_program[] = "cogvideo-train";

static void introduce(const struct cogvideo_run *r)
{
    const struct cogvideo_config *c = &r->model.config;
    const struct cogvideo_geometry *g = &r->data.geometry;
    char all[32], count[32], tokens[32];

    printf("model: %s, %s parameters, %s of them trained%s (hidden %lld, %lld heads, %lld layers, "
           "%s)\n",
           cogvideo_config_name(c), say_count(all, cogvideo_parameters(c)),
           say_count(count, r->trainable), r->options.rank ? " as adapters" : "",
           (long long)c->width, (long long)c->heads, (long long)c->layers, r->options.dtype);
    say_print("%s; %s tokens\n", r->data.title,
              say_count(tokens, g->tokens + cogvideo_grid(c, g).tokens));
    if (r->data.missing)
        printf("%lld of %lld samples are skipped\n", (long long)r->data.missing,
               (long long)(r->data.missing + r->data.rows));
}

static int check_outputs(const struct cogvideo_options *o)
{
    struct training_files files = cogvideo_files(o);
    const struct ckpt_path more[] = {
        {"--features", o->features, CKPT_PATH_INPUT, 0},
        {"--videos", o->videos, CKPT_PATH_INPUT, 0},
        {"--prompts", o->prompts, CKPT_PATH_INPUT, 0},
        {"--csv", o->csv, CKPT_PATH_INPUT, 0},
        {"--lora-merge", o->merge, CKPT_PATH_FILE, 0},
        {"--sample-text", o->sample_text, CKPT_PATH_INPUT, 0},
        {"--sample-prompts", o->sample_prompts, CKPT_PATH_INPUT, 0},
        {"--sample-image", o->image, CKPT_PATH_INPUT, 0},
        {"--negative", o->negative, CKPT_PATH_INPUT, 0},
        {"--images", o->images, CKPT_PATH_INPUT, 0},
        {"--val", o->validation.file, CKPT_PATH_INPUT, 0},
    };

    return outputs_check(&files, more, sizeof more / sizeof *more);
}

/* All ranks must have the same data: they share the samples of a step. */
static int agree_on_data(const struct cogvideo_run *r)
{
    const struct cogvideo_data *d = &r->data;
    struct ckpt_fact facts[] = {
        {"number of samples", &d->rows, sizeof d->rows},
        {"shape of the latents", &d->geometry, sizeof d->geometry},
    };

    return ckpt_agree(r->context, facts, sizeof facts / sizeof *facts)
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}

/* The programs beside training are compiled twice: in as few bytes as possible before the training
 * program, and again within its memory. */
static int compile(struct cogvideo_run *r)
{
    struct training_setup setup;

    training_setup_begin(&setup, r->context, cogvideo_parameters(&r->model.config),
                         r->options.library.plan_only);
    if (cogvideo_images_compile(r->images, true) || cogvideo_watch_compile_first(r->watch) ||
        cogvideo_compile(r) || cogvideo_validation_compile(r->validation, r) ||
        cogvideo_watch_compile(r->watch) || cogvideo_images_compile(r->images, false) ||
        compiled_all(r->context))
        return -1;
    ckpt_plan_print(r->training, stdout);
    training_setup_end(&setup);
    return 0;
}

static int train(struct cogvideo_run *r)
{
    if (resume_note_count(r->context, "samples of the data", r->data.rows) ||
        cogvideo_options_note(&r->options, r->context) ||
        resume_load(&r->options.train.state, r->context, NULL, &r->first) || cogvideo_log_open(r))
        return -1;
    return cogvideo_train(r);
}

/* --steps 0 without a state trains nothing, and compiles only for --plan-only. */
static int run(struct cogvideo_run *r)
{
    const struct cogvideo_options *o = &r->options;
    bool trains = o->train.steps > 0 || o->train.state.from;

    if ((trains || o->library.plan_only) && compile(r))
        return -1;
    if (trains && !o->library.plan_only && train(r))
        return -1;
    if (o->merge && cogvideo_merge_adapters(r, o->merge))
        return -1;
    return ckpt_unwritten(r->context) ? say_fail("%s", ckpt_error(r->context)) : 0;
}

static int go(struct cogvideo_run *r)
{
    const struct cogvideo_options *o = &r->options;

    /* With several ranks the first one writes; ranks are known only after the rendezvous. */
    if (!o->library.ranks && check_outputs(o))
        return -1;
    if (cogvideo_watch_encode(r->watch, r))
        return -1;
    if (ckpt_open(&r->context, &o->library))
        return say_fail("%s", ckpt_error(NULL));
    say_as_rank(ckpt_rank(r->context), ckpt_ranks(r->context));
    if (cogvideo_options_agree(o, r->context) || resume_find(&r->options.train.state, r->context) ||
        (o->library.ranks && !ckpt_rank(r->context) && check_outputs(o)))
        return -1;
    if (o->train.dump && ckpt_ranks(r->context) > 1)
        return say_fail("--dump is for one rank alone");
    r->options.train.samples = o->train.batch * ckpt_ranks(r->context);
    if (cogvideo_data_open(&r->data, o) || agree_on_data(r) ||
        cogvideo_validation_open(r->validation, r) || cogvideo_images_open(r->images, r) ||
        cogvideo_watch_open(r->watch) || cogvideo_make_model(r))
        return -1;
    introduce(r);
    return run(r);
}

int main(int argc, char **argv)
{
    struct cogvideo_watch watch = {.draws = false};
    struct cogvideo_images images = {.seed = 0};
    struct cogvideo_validation validation = {.batch = {.run = NULL}};
    struct cogvideo_run r = {.watch = &watch, .images = &images, .validation = &validation};

    say_begin();
    signals_open();
    int rc = cogvideo_options_parse(&r.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&r);
    if (log_close(&r.log))
        rc = -1;
    ckpt_close(r.context);
    cogvideo_watch_close(&watch);
    cogvideo_images_close(&images);
    cogvideo_validation_close(&validation);
    cogvideo_free(&r.model);
    cogvideo_data_close(&r.data);
    free(r.note);
    return say_finish(rc ? 1 : 0);
}

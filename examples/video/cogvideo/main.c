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
#include "../../common/say.h"
#include "../../common/trainer.h"
#include "ckpt_dist.h"
#include "validate.h"
#include "watch.h"

const char say_program[] = "cogvideo-train";

static void introduce(const void *run)
{
    const struct cogvideo_run *r = run;
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

static int check_outputs(const void *run)
{
    const struct cogvideo_options *o = &((const struct cogvideo_run *)run)->options;
    struct training_files files = cogvideo_files(o);
    char config[4096];
    const struct ckpt_path more[] = {
        {"--features", o->features, CKPT_PATH_INPUT, 0},
        {"--videos", o->videos, CKPT_PATH_INPUT, 0},
        {"--prompts", o->prompts, CKPT_PATH_INPUT, 0},
        {"--csv", o->csv, CKPT_PATH_INPUT, 0},
        {"--lora-merge", o->merge, CKPT_PATH_FILE, 0},
        {"--lora-format", cogvideo_lora_config(o, config), CKPT_PATH_FILE, 0},
        {"--sample-text", o->sample_text, CKPT_PATH_INPUT, 0},
        {"--sample-prompts", o->sample_prompts, CKPT_PATH_INPUT, 0},
        {"--sample-image", o->image, CKPT_PATH_INPUT, 0},
        {"--negative", o->negative, CKPT_PATH_INPUT, 0},
        {"--images", o->images, CKPT_PATH_INPUT, 0},
        {"--val", o->validation.file, CKPT_PATH_INPUT, 0},
    };

    return outputs_check(&files, more, sizeof more / sizeof *more);
}

/* Encodes the prompts of samples with a context of its own. */
static int encode_prompts(void *run)
{
    struct cogvideo_run *r = run;

    return cogvideo_watch_encode(r->watch, r);
}

static int open_data(void *run)
{
    struct cogvideo_run *r = run;

    return cogvideo_data_open(&r->data, &r->options);
}

static int facts(const void *run, struct ckpt_fact fact[TRAINER_FACTS])
{
    const struct cogvideo_data *d = &((const struct cogvideo_run *)run)->data;

    fact[0] = (struct ckpt_fact){"number of samples", &d->rows, sizeof d->rows};
    fact[1] = (struct ckpt_fact){"shape of the latents", &d->geometry, sizeof d->geometry};
    return 2;
}

static int make_model(void *run)
{
    struct cogvideo_run *r = run;

    return cogvideo_validation_open(r->validation, r) || cogvideo_images_open(r->images, r) ||
                   cogvideo_watch_open(r->watch) || cogvideo_make_model(r)
               ? -1
               : 0;
}

static int64_t parameters(const void *run)
{
    return cogvideo_parameters(&((const struct cogvideo_run *)run)->model.config);
}

/* The programs beside training are compiled twice: in as few bytes as possible before the training
 * program, and again within its memory. */
static int compile(void *run, bool trains)
{
    struct cogvideo_run *r = run;

    if (!trains)
        return 0;
    return cogvideo_images_compile(r->images, true) || cogvideo_watch_compile_first(r->watch) ||
                   cogvideo_compile(r) || cogvideo_validation_compile(r->validation, r) ||
                   cogvideo_watch_compile(r->watch) || cogvideo_images_compile(r->images, false)
               ? -1
               : 0;
}

static int fits(void *run, bool trains)
{
    if (trains)
        ckpt_plan_print(((struct cogvideo_run *)run)->training, stdout);
    return 0;
}

static int note(void *run, struct resume_place *place)
{
    (void)place; /* the number of steps gives it */
    return cogvideo_note_adapters(run);
}

static ckpt_program *program(const void *run)
{
    return ((const struct cogvideo_run *)run)->training;
}

static void report(const void *run)
{
    validation_report(&((const struct cogvideo_run *)run)->validation->common);
}

static int merge(void *run, bool trained)
{
    struct cogvideo_run *r = run;

    (void)trained;
    return r->options.merge ? cogvideo_merge_adapters(r, r->options.merge) : 0;
}

static int parse(void *run, int argc, char **argv)
{
    return cogvideo_options_parse(&((struct cogvideo_run *)run)->options, argc, argv);
}

static int tables(const void *run, struct option_table table[TRAINER_TABLES])
{
    table[0] = cogvideo_options_table(&((const struct cogvideo_run *)run)->options);
    return 1;
}

static void close(void *run)
{
    struct cogvideo_run *r = run;

    cogvideo_watch_close(r->watch);
    cogvideo_images_close(r->images);
    cogvideo_validation_close(r->validation);
    cogvideo_free(&r->model);
    cogvideo_data_close(&r->data);
    cogvideo_lora_close(&r->options.lora);
}

int main(int argc, char **argv)
{
    /* Too large for a small stack. */
    static struct cogvideo_watch watch = {.draws = false};
    static struct cogvideo_images images = {.seed = 0};
    static struct cogvideo_validation validation = {.batch = {.run = NULL}};
    static struct cogvideo_run r = {.watch = &watch, .images = &images, .validation = &validation};
    const struct trainer t = {TRAINER_RUN(r),
                              .parse = parse,
                              .tables = tables,
                              .outputs = check_outputs,
                              .before = encode_prompts,
                              .data = open_data,
                              .facts = facts,
                              .model = make_model,
                              .introduce = introduce,
                              .parameters = parameters,
                              .compile = compile,
                              .fits = fits,
                              .program = program,
                              .counted = "samples of the data",
                              .samples = &r.data.rows,
                              .notes = note,
                              .describe = cogvideo_describe,
                              .open_steps = cogvideo_open_steps,
                              .look_last = cogvideo_look_last,
                              .close_steps = cogvideo_close_steps,
                              .report = report,
                              .finish = merge,
                              .close = close};

    return trainer_main(&t, argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that trains a model, or adapters of it, inside a memory budget, on latents and text
 * features that were encoded before: see programs.h.
 *
 * Everything that can be refused is checked before the first step: options, output files, the data
 * of all ranks, the plan of every program of the run.  All programs are compiled before a state is
 * loaded.  Without steps it only merges adapters.
 */
#include <stdlib.h>
#include "../common/say.h"
#include "../common/trainer.h"
#include "ckpt_dist.h"
#include "programs.h"
#include "validate.h"
#include "watch.h"

static int64_t most_tokens(const struct video_run *r)
{
    const struct video_shapes *d = &r->data.shapes;
    int64_t most = 0;

    for (int i = 0; i < d->n; i++) {
        int64_t n = video_tokens(&r->options.net, &d->shape[i].geometry);
        most = n > most ? n : most;
    }
    return most;
}

/* Both models of a pair have as many. */
static int64_t all_parameters(const struct video_run *r)
{
    const struct video_net *net = &r->options.net;

    return net->model->parameters(net) * (1 + video_is_pair(r));
}

static void introduce(const void *run)
{
    const struct video_run *r = run;
    const struct video_net *net = &r->options.net;
    const struct video_sizes *c = &net->sizes;
    char all[32], count[32], tokens[32];

    printf("model: %s%s, %s parameters, %s of them trained%s (hidden %lld, %lld heads, %lld "
           "layers, %s)\n",
           c->name, video_is_pair(r) ? ", both experts" : "", say_count(all, all_parameters(r)),
           say_count(count, r->trainable), r->options.adapters.rank ? " as adapters" : "",
           (long long)c->width, (long long)c->heads, (long long)c->layers, r->options.dtype);
    say_print("%s; %s%s tokens\n", r->data.title, r->data.shapes.n > 1 ? "at most " : "",
              say_count(tokens, most_tokens(r)));
    if (r->data.missing)
        printf("%lld of %lld samples are skipped\n", (long long)r->data.missing,
               (long long)(r->data.missing + r->data.shapes.rows));
}

/* Encodes the prompts of samples with a context of its own. */
static int encode_prompts(void *run)
{
    struct video_run *r = run;

    return video_watch_encode(r->watch, r);
}

static int open_data(void *run)
{
    struct video_run *r = run;

    return video_data_open(&r->data, &r->options);
}

static int make_model(void *run)
{
    struct video_run *r = run;

    return video_leave_base(r) || video_validation_open(r->validation, r) ||
                   video_images_open(r->images, r) || video_watch_open(r->watch) ||
                   video_make_model(r)
               ? -1
               : 0;
}

static int64_t parameters(const void *run)
{
    return all_parameters(run);
}

/* The programs beside training are compiled twice: in as few bytes as possible before the training
 * program, and again within its memory. */
static int compile(void *run, bool trains)
{
    struct video_run *r = run;
    const struct ckpt_adamw adamw = training_adamw(&r->options.train);

    if (!trains)
        return 0;
    return video_images_compile(r->images, true) || video_watch_compile_first(r->watch) ||
                   video_compile_steps(r, &adamw) || video_validation_compile(r->validation, r) ||
                   video_watch_compile(r->watch) || video_images_compile(r->images, false)
               ? -1
               : 0;
}

static int fits(void *run, bool trains)
{
    return trains ? video_open_order(run) : 0;
}

static int note(void *run, struct resume_place *place)
{
    const struct adapter_run adapters = video_adapters(run);
    const struct video_run *r = run;

    return adapters_note(&adapters) || video_watch_check(r->watch, r->options.train.state.from)
               ? -1
               : video_note(run, place);
}

static int merge(void *run, bool trained)
{
    struct video_run *r = run;

    (void)trained;
    return adapters_merge(r->context, &r->options.adapters, video_owns, r);
}

static void close(void *run)
{
    struct video_run *r = run;

    video_watch_close(r->watch);
    video_images_close(r->images);
    video_validation_close(r->validation);
    video_order_close(&r->order);
    video_data_close(&r->data);
    free(r->bad);
    adapter_file_close(&r->options.adapters.file);
    r->options.net.model->close(&r->options.net);
    if (video_is_pair(r))
        r->options.low.model->close(&r->options.low);
}

int video_train(const struct video_model *m, int argc, char **argv)
{
    /* Too large for a small stack. */
    static struct video_watch watch = {.draws = false};
    static struct video_images images = {.seed = 0};
    static struct video_validation validation = {.batch = {.run = NULL}};
    static struct video_run r = {.watch = &watch, .images = &images, .validation = &validation};
    const struct trainer t = {TRAINER_RUN(r),
                              .reading = video_options_reading(&r.options, m),
                              .check = video_options_check,
                              .outputs = video_check_outputs,
                              .before = encode_prompts,
                              .splits = true,
                              .varies = video_varies,
                              .data = open_data,
                              .facts = video_facts,
                              .model = make_model,
                              .introduce = introduce,
                              .parameters = parameters,
                              .compile = compile,
                              .fits = fits,
                              .program = &r.training,
                              .counted = "samples of the data",
                              .samples = &r.data.shapes.rows,
                              .notes = note,
                              .resumed = video_resumed,
                              .describe = video_describe,
                              .open_steps = video_open_steps,
                              .close_steps = video_close_steps,
                              .report = video_validation_report,
                              .finish = merge,
                              .close = close};

    return trainer_main(&t, argc, argv);
}

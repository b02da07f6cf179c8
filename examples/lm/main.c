/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lm-train: trains GPT-2, Llama 3 and Qwen 2.5 inside a memory budget, on files of tokens or text,
 * from random initial values or from Hugging Face weights.
 */
#include <string.h>
#include <sys/stat.h>
#include "../common/compiled.h"
#include "../common/outputs.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "run.h"

const char say_program[] = "lm-train";

static void introduce(const struct lm_run *r)
{
    const struct lm_config *c = &r->model.config;
    char count[32];

    printf("model: %s, %s trainable parameters (hidden %lld, %lld layers, %lld heads, "
           "%lld of keys, vocabulary %lld, %s)\n",
           lm_family_name(c->family), say_count(count, r->trainable), (long long)c->width,
           (long long)c->layers, (long long)c->heads, (long long)c->kv_heads,
           (long long)c->vocabulary, r->options.dtype);
    say_print("%s\n", r->title);
}

/* NULL for what names no single file: a pattern, "random", "bytes", a preset. */
static const char *file_only(const char *path)
{
    struct stat st;

    return path && !stat(path, &st) && S_ISREG(st.st_mode) ? path : NULL;
}

/* A pattern must not match an output: it would be replaced, or be data of the resumed run. */
static int check_pattern(const struct training_files *files, const char *option,
                         const char *pattern)
{
    static const char *const inside[] = {"config.json",
                                         "model.safetensors",
                                         "model-00001-of-00002.safetensors",
                                         "model.safetensors.index.json",
                                         "events.out.tfevents.1",
                                         NULL};

    if (!pattern || !strcmp(pattern, "random") || file_only(pattern))
        return 0;
    return outputs_check_pattern(files, option, pattern, inside);
}

static int check_outputs(const struct lm_options *o)
{
    struct training_files files = lm_files(o);
    const struct ckpt_path inputs[] = {
        {"--model", file_only(o->model), CKPT_PATH_INPUT, 0},
        {"--data", file_only(o->data), CKPT_PATH_INPUT, 0},
        {"--val", file_only(o->validation), CKPT_PATH_INPUT, 0},
        {"--tokenizer", file_only(o->tokenizer), CKPT_PATH_INPUT, 0},
    };

    return outputs_check(&files, inputs, sizeof inputs / sizeof *inputs) ||
                   check_pattern(&files, "--data", o->data) ||
                   check_pattern(&files, "--val", o->validation)
               ? -1
               : 0;
}

/* Checks that all ranks have the same data: each takes its own samples of a step from it. */
static int agree_on_data(const struct lm_run *r)
{
    const struct dataset *d = &r->data;
    struct ckpt_fact facts[] = {
        {"number of samples", &d->rows, sizeof d->rows},
        {"number of tokens", &d->tokens.count, sizeof d->tokens.count},
        {"number of samples of --val", &r->validation.rows, sizeof r->validation.rows},
    };

    return ckpt_agree(r->context, facts, sizeof facts / sizeof *facts)
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}

static int compile(struct lm_run *r, bool trains)
{
    struct training_setup setup;
    const bool chosen = r->options.loss_chunk == CKPT_AUTO;

    training_setup_begin(&setup, r->context, trains ? r->trainable : 0,
                         r->options.library.plan_only);
    if (lm_compile(r, trains) || compiled_all(r->context))
        return -1;
    if (trains)
        ckpt_plan_print(r->training, stdout);
    if (chosen && r->options.loss_chunk > 0)
        printf("loss: at most %lld tokens at a time (--loss-chunk %lld; another number may change "
               "the last bits)\n",
               (long long)r->options.loss_chunk, (long long)r->options.loss_chunk);
    training_setup_end(&setup);
    return 0;
}

static int train(struct lm_run *r)
{
    if (resume_note_count(r->context, "samples of the data", r->data.rows) ||
        lm_options_note(&r->options, r->context) ||
        resume_load(&r->options.train.state, r->context, NULL, &r->first) || lm_log_open(r))
        return -1;
    return lm_train(r);
}

/* Without training steps: prints the loss of the loaded weights, or saves them in another format.
 */
static int look(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    double loss;

    if (r->measuring) {
        if (lm_measure(r, &loss))
            return -1;
        printf("validation loss %.4f\n", loss);
    }
    return o->to_hf ? lm_save_hf(&r->model, r->context, o->to_hf, o->shard_size) : 0;
}

static int run(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    bool trains = o->train.steps > 0 || o->train.state.from || o->library.plan_only;

    if (compile(r, trains))
        return -1;
    if (!o->library.plan_only && (trains ? train(r) : look(r)))
        return -1;
    return ckpt_unwritten(r->context) ? say_fail("%s", ckpt_error(r->context)) : 0;
}

static int go(struct lm_run *r)
{
    const struct lm_options *o = &r->options;

    /* With several ranks only rank 0 writes; ranks are known only after the rendezvous. */
    if (!o->library.ranks && check_outputs(o))
        return -1;
    if (ckpt_open(&r->context, &o->library))
        return say_fail("%s", ckpt_error(NULL));
    say_as_rank(ckpt_rank(r->context), ckpt_ranks(r->context));
    if (lm_options_agree(o, r->context) || resume_find(&r->options.train.state, r->context) ||
        (o->library.ranks && !ckpt_rank(r->context) && check_outputs(o)))
        return -1;
    if (o->train.dump && ckpt_ranks(r->context) > 1)
        return say_fail("--dump is for one rank alone");
    if (lm_data_open(r) || agree_on_data(r) || lm_make_model(r))
        return -1;
    introduce(r);
    return run(r);
}

int main(int argc, char **argv)
{
    return lm_main(argc, argv, lm_options_parse, go);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lm-train: trains the language models of config.h inside a memory budget, on files of tokens or
 * text, from random initial values or from Hugging Face weights.
 */
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include "../common/compiled.h"
#include "../common/trainer.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "run.h"

const char say_program[] = "lm-train";

static void introduce(const void *run)
{
    const struct lm_run *r = run;
    const struct lm_config *c = &r->model.config;
    char all[32], count[32];

    printf("model: %s, %s parameters, %s of them trained%s (hidden %lld, %lld layers, %lld heads, "
           "%lld of keys, vocabulary %lld, %s)\n",
           lm_traits(c)->type, say_count(all, r->parameters), say_count(count, r->trainable),
           r->options.adapters.rank ? " as adapters" : "", (long long)c->width,
           (long long)c->layers, (long long)c->heads, (long long)c->kv_heads,
           (long long)c->vocabulary, r->options.dtype);
    if (!r->options.longest)
        say_print("%s\n", r->title);
    adapters_introduce(&r->options.adapters);
    if (lm_traits(c)->masked)
        printf("masks: %lld of %lld tokens of a sample at most%s%s; [CLS] %ld, [SEP] %ld, [MASK] "
               "%ld\n",
               (long long)r->masking.most, (long long)r->data.length,
               r->masking.words ? ", whole words" : "", r->masking.pairs ? ", pairs" : "",
               (long)r->masking.marks.begin, (long)r->masking.marks.end,
               (long)r->masking.marks.mask);
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
    return outputs_check_pattern(files, NULL, 0, option, pattern, inside);
}

static int check_outputs(const void *run)
{
    const struct lm_options *o = &((const struct lm_run *)run)->options;
    struct training_files files = lm_files(o);
    char beside[2][4096];
    enum { OWN = 13 };
    struct ckpt_path inputs[OWN + LM_ADAPTERS] = {
        {"--model", file_only(o->model), CKPT_PATH_INPUT, 0},
        {"--data", file_only(o->data), CKPT_PATH_INPUT, 0},
        {"--val", file_only(o->validation), CKPT_PATH_INPUT, 0},
        {"--tokenizer", file_only(o->tokenizer), CKPT_PATH_INPUT, 0},
        {"--distill", o->distill.from, CKPT_PATH_INPUT, 0},
        {"--save-logits", o->distill.to, CKPT_PATH_FILE, 0},
        {"--reference-cache", o->preference.cache,
         file_only(o->preference.cache) ? CKPT_PATH_INPUT : CKPT_PATH_FILE, 0},
        {"--chat-template", file_only(o->chat_template), CKPT_PATH_INPUT, 0},
        {"--eval", file_only(o->eval), CKPT_PATH_INPUT, 0},
        {"--adapter", adapter_input(&o->adapters), CKPT_PATH_INPUT, FAMILY_WEIGHTS},
        {"--lora-merge", o->adapters.merge, CKPT_PATH_FILE, 0},
        adapter_beside(&o->adapters, &o->train, false, beside[0]),
        adapter_beside(&o->adapters, &o->train, true, beside[1]),
    };
    int n = OWN;

    for (int i = 1; i < o->others.n; i++)
        inputs[n++] = (struct ckpt_path){"--adapter", o->others.each[i].options.file.path,
                                         CKPT_PATH_INPUT, FAMILY_WEIGHTS};
    return outputs_check(&files, inputs, n) || check_pattern(&files, "--data", o->data) ||
                   check_pattern(&files, "--val", o->validation)
               ? -1
               : 0;
}

static int facts(const void *run, struct ckpt_fact fact[TRAINER_FACTS])
{
    const struct lm_run *r = run;
    const struct dataset *d = &r->data, *v = &r->validation;

    fact[0] = (struct ckpt_fact){"number of samples", &d->rows, sizeof d->rows};
    fact[1] = (struct ckpt_fact){"number of tokens", &d->tokens.count, sizeof d->tokens.count};
    fact[2] = (struct ckpt_fact){"number of samples of --val", &v->rows, sizeof v->rows};
    fact[3] = (struct ckpt_fact){"texts of --data", &r->preference.data.digest,
                                 sizeof r->preference.data.digest};
    fact[4] = (struct ckpt_fact){"digest of the conversations", &r->conversations.digest,
                                 sizeof r->conversations.digest};
    return 5;
}

static int compile(void *run, bool trains)
{
    struct lm_run *r = run;

    r->chosen = r->options.loss_chunk == CKPT_AUTO;
    return lm_compile(r, trains);
}

static int fits(void *run, bool trains)
{
    const struct lm_run *r = run;
    long long chunk = (long long)r->options.loss_chunk;

    if (r->options.longest)
        lm_length_print(r);
    if (trains)
        ckpt_plan_print(r->training, stdout);
    if (r->chosen && chunk > 0)
        printf("loss: at most %lld tokens at a time (--loss-chunk %lld; another number may change "
               "the last bits)\n",
               chunk, chunk);
    return 0;
}

/* Without training steps: prints the loss of the loaded weights, or saves them in another format.
 */
static int finish(void *run, bool trained)
{
    struct lm_run *r = run;
    const struct lm_options *o = &r->options;
    double loss;
    int64_t right;

    if (!trained && r->measuring) {
        if (lm_measure(r, &loss))
            return -1;
        if (!isnan(loss)) /* a signal */
            printf("validation loss %.4f\n", loss);
    }
    if (o->distill.to && distill_write(r))
        return -1;
    if (!trained && r->eval.n) {
        if (lm_answer(r, &right))
            return -1;
        if (right >= 0)
            printf("exact answers: %lld of %lld\n", (long long)right, (long long)r->eval.n);
    }
    if (adapters_merge(r->context, &o->adapters, NULL, NULL))
        return -1;
    if (!o->to_hf || trained)
        return 0;
    if (lm_save_hf(r))
        return -1;
    say_print("weights: %s\n", o->to_hf);
    return 0;
}

static int note(void *run, struct resume_place *place)
{
    struct lm_run *r = run;

    (void)place; /* the number of steps gives it */
    if (r->data.first_piece &&
        resume_note_count(r->context, "digest of the conversations", r->conversations.digest))
        return -1;
    return adapters_note(&r->adapters) || lm_adapters_note(r) || preference_note(run) ? -1 : 0;
}

int main(int argc, char **argv)
{
    static struct lm_run r = LM_RUN_INIT;
    const struct trainer t = {TRAINER_RUN(r),
                              .reading = lm_options_reading(&r.options),
                              .check = lm_options_check,
                              .outputs = check_outputs,
                              .splits = true,
                              .widths = true,
                              .data = lm_data_open,
                              .facts = facts,
                              .model = lm_make_model,
                              .introduce = introduce,
                              .compile = compile,
                              .fits = fits,
                              .program = &r.training,
                              .counted = "samples of the data",
                              .samples = &r.data.rows,
                              .notes = note,
                              .describe = lm_describe,
                              .open_steps = lm_open_steps,
                              .close_steps = lm_close_steps,
                              .finish = finish,
                              .close = lm_close};

    return trainer_main(&t, argc, argv);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the model of a run, and frees the run. */
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/trainer.h"
#include "ckpt_dist.h"
#include "run.h"

struct adapter_run lm_adapters(struct lm_run *r)
{
    struct lm_options *o = &r->options;

    return (struct adapter_run){.context = r->context,
                                .options = &o->adapters,
                                .names = lm_adapter_names(o),
                                .saved = lm_traits(&o->config)->adapters->prefix,
                                .model = lm_traits(&o->config)->title,
                                .tied = o->config.tied ? lm_traits(&o->config)->embedding : NULL,
                                .whole = true,
                                .trains = o->train.steps > 0};
}

/* Before a load, so that the host holds frozen weights only in codes. */
static int add_adapters(const struct adapter_run *r)
{
    char blocks[64];

    snprintf(blocks, sizeof blocks, "%s*.weight", r->names->blocks);
    return adapters_add(r) || adapters_code(r, "model", blocks) ? -1 : 0;
}

int lm_make_model(void *run)
{
    struct lm_run *r = run;
    const struct lm_options *o = &r->options;
    enum ckpt_dtype dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16;

    r->adapters = lm_adapters(r);

    if (lm_create(&r->model, r->context, &o->config, dtype, o->next_sentence))
        return say_fail("no memory for %lld layers", (long long)o->config.layers);
    r->parameters = trainer_count(r->context);
    if (o->adapters.rank && (add_adapters(&r->adapters) || lm_adapters_add(r)))
        return -1;
    r->trainable = trainer_count(r->context);
    if (resume_check_base(&o->train.state, o->train.load) ||
        (o->adapters.rank && o->train.load &&
         adapters_leave_base(&r->adapters, "--load", o->train.load)) ||
        (o->train.load && lm_load(r)))
        return -1;
    if (o->adapters.rank && o->train.load &&
        lm_base_digest(&r->model, o->train.load, r->options.adapters.base))
        return -1;
    return o->adapters.rank && (adapters_begin(&r->adapters) || lm_adapters_begin(r)) ? -1 : 0;
}

int64_t lm_first_sample(const struct lm_run *r, int64_t step)
{
    const int64_t groups = ckpt_sample_groups(r->context);

    return (step * groups + ckpt_sample_group(r->context)) * r->options.train.batch;
}

int lm_open_batch(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    bool whole = true;

    if (o->preference.loss)
        return preference_begin(r);
    for (int i = 0; i < LM_INPUTS; i++) {
        if (r->width[i])
            r->in[i] = MEMORY_FOR(sizeof *r->in[i], o->train.batch, r->width[i]);
        whole &= r->in[i] || !r->width[i];
    }
    return whole ? 0 : say_fail("no memory for a batch of %lld samples", (long long)o->train.batch);
}

void lm_close_steps(void *user)
{
    struct lm_run *r = user;

    preference_end(&r->preference);
    for (int i = 0; i < LM_INPUTS; i++) {
        free(r->in[i]);
        r->in[i] = NULL;
    }
}

/* Generated text ends where a turn does. */
static void add_end(struct lm_ids *ends, int32_t token)
{
    bool known = token < 0;

    for (int i = 0; i < ends->n && !known; i++)
        known = ends->id[i] == token;
    if (!known && ends->n < (int)(sizeof ends->id / sizeof *ends->id))
        ends->id[ends->n++] = token;
}

static int open_template(struct lm_run *r, const char *path)
{
    if (chat_open(&r->chat, &r->tokenizer, path))
        return -1;
    add_end(&r->options.ends, chat_end(&r->chat));
    return 0;
}

int lm_chat_open(struct lm_run *r)
{
    static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json"};
    const struct lm_options *o = &r->options;
    char path[4096];

    if (o->chat_template)
        return open_template(r, o->chat_template);
    for (int i = 0; i < 2; i++)
        if (lm_options_companion(o, names[i], path))
            return open_template(r, path);
    return say_fail("conversations need the chat template of the model: there is none beside the "
                    "tokenizer; give --chat-template FILE");
}

void lm_close(void *run)
{
    struct lm_run *r = run;
    lm_decoder_close(&r->decoder);
    lm_free(&r->model);
    preference_close(&r->preference);
    distill_close(&r->distill);
    dataset_close(&r->data);
    dataset_close(&r->validation);
    eval_close(&r->eval);
    chat_close(&r->chat);
    tokenizer_close(&r->tokenizer);
    adapter_file_close(&r->options.adapters.file);
    lm_adapters_close(&r->options);
}

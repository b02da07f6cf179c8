/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the model of a run, and frees the run. */
#include <string.h>
#include "../common/trainer.h"
#include "run.h"

int lm_make_model(void *run)
{
    struct lm_run *r = run;
    const struct lm_options *o = &r->options;
    enum ckpt_dtype dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16;

    if (lm_create(&r->model, r->context, &o->config, dtype, o->next_sentence))
        return say_fail("no memory for %lld layers", (long long)o->config.layers);
    r->trainable = trainer_count(r->context);
    return o->train.load ? lm_load(&r->model, r->context, o->train.load, o->train.partial) : 0;
}

void lm_close(void *run)
{
    struct lm_run *r = run;
    lm_decoder_close(&r->decoder);
    lm_free(&r->model);
    dataset_close(&r->data);
    dataset_close(&r->validation);
    tokenizer_close(&r->tokenizer);
}

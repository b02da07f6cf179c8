/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the model of a run, and runs a whole program. */
#include <string.h>
#include "../common/signals.h"
#include "run.h"

int lm_make_model(struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    enum ckpt_dtype dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16;

    if (lm_create(&r->model, r->context, &o->config, dtype))
        return say_fail("no memory for %lld layers", (long long)o->config.layers);
    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        if (!ckpt_param_info(r->context, ckpt_param_at(r->context, i), &info) && info.trainable)
            r->trainable += info.numel;
    }
    return o->train.load ? lm_load(&r->model, r->context, o->train.load, o->train.partial) : 0;
}

int lm_main(int argc, char **argv, int (*parse)(struct lm_options *o, int argc, char **argv),
            int (*go)(struct lm_run *r))
{
    struct lm_run run = {.tokenizer = {.bytes = true}};

    say_begin();
    signals_open();
    int rc = parse(&run.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&run);
    if (log_close(&run.log))
        rc = -1;
    ckpt_close(run.context);
    lm_decoder_close(&run.decoder);
    lm_free(&run.model);
    dataset_close(&run.data);
    dataset_close(&run.validation);
    tokenizer_close(&run.tokenizer);
    return say_finish(rc ? 1 : 0);
}

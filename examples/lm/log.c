/* SPDX-License-Identifier: Apache-2.0 */
/* lm-train's log for other programs: JSON lines; the first one has the configuration. */
#include "../common/log.h"
#include "run.h"

static void put_model(FILE *f, const struct lm_run *r)
{
    const struct lm_config *m = &r->model.config;

    json_put_string(f, "family", lm_traits(m)->type);
    json_put_int(f, "hidden", m->width);
    json_put_int(f, "layers", m->layers);
    json_put_int(f, "heads", m->heads);
    json_put_int(f, "kv_heads", m->kv_heads);
    json_put_int(f, "mlp", m->mlp);
    json_put_int(f, "vocabulary", m->vocabulary);
    json_put_int(f, "parameters", r->trainable);
    json_put_float(f, "token_flops",
                   lm_token_flops(m, r->options.length, lm_options_targets(&r->options)), ", ");
}

void lm_describe(const void *run, FILE *f)
{
    const struct lm_run *r = run;
    const struct lm_options *o = &r->options;

    json_put_string(f, "model", o->model);
    json_put_string(f, "dtype", o->dtype);
    json_put_string(f, "data", r->title);
    put_model(f, r);
    json_put_int(f, "rows", r->data.rows);
    json_put_int(f, "length", o->length);
    json_put_int(f, "loss_chunk", o->loss_chunk);
    json_put_int(f, "lora_rank", o->adapters.rank);
    json_put_string(f, "frozen", o->adapters.frozen);
    json_put_float(f, "weight_decay", o->train.weight_decay, ", ");
}

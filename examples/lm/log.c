/* SPDX-License-Identifier: Apache-2.0 */
/* The log for other programs: JSON lines, the first with the configuration. */
#include "../common/log.h"
#include "ckpt_dist.h"
#include "run.h"

static void put_model(FILE *f, const struct lm_run *r)
{
    const struct lm_config *m = &r->model.config;

    json_put_string(f, "family", lm_family_name(m->family));
    json_put_int(f, "hidden", m->width);
    json_put_int(f, "layers", m->layers);
    json_put_int(f, "heads", m->heads);
    json_put_int(f, "kv_heads", m->kv_heads);
    json_put_int(f, "mlp", m->mlp);
    json_put_int(f, "vocabulary", m->vocabulary);
    json_put_int(f, "parameters", r->trainable);
    json_put_float(f, "token_flops", lm_token_flops(m, r->options.length), ", ");
}

static void put_config(FILE *f, const struct lm_run *r)
{
    const struct lm_options *o = &r->options;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    ckpt_program_info(r->training, &info);
    fputs("{\"config\": {", f);
    json_put_string(f, "libckpt", ckpt_version());
    json_put_string(f, "model", o->model);
    json_put_string(f, "dtype", o->dtype);
    json_put_string(f, "data", r->title);
    put_model(f, r);
    json_put_int(f, "rows", r->data.rows);
    json_put_int(f, "length", o->length);
    json_put_int(f, "batch", o->batch);
    json_put_int(f, "ranks", ckpt_ranks(r->context));
    json_put_string(f, "place", ckpt_rank_location(r->context, ckpt_rank(r->context)));
    json_put_int(f, "micro_batch", info.micro_batch);
    json_put_int(f, "steps", o->steps);
    json_put_int(f, "warmup", o->warmup);
    json_put_string(f, "schedule", o->schedule ? o->schedule : "constant");
    json_put_int(f, "vram", o->library.vram);
    json_put_string(f, "device", o->library.device);
    json_put_int(f, "seed", o->library.seed);
    json_put_float(f, "weight_decay", o->weight_decay, ", ");
    json_put_float(f, "clip_norm", o->clip_norm, ", ");
    json_put_float(f, "ema_decay", o->ema_decay, ", ");
    json_put_float(f, "lr", o->lr, "}}\n");
}

int lm_log_open(struct lm_run *r)
{
    if (log_open(&r->log, r->options.log, ckpt_rank(r->context)))
        return -1;
    if (r->log.f)
        put_config(r->log.f, r);
    log_flush(&r->log);
    return 0;
}

void lm_log_step(struct lm_run *r, int64_t step, double loss, double lr, double ms)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    int64_t tokens = r->options.batch * r->options.length * ckpt_ranks(r->context);

    if (!r->log.f)
        return;
    ckpt_program_info(r->training, &info);
    log_step_begin(&r->log, step, loss, &info);
    json_put_float(r->log.f, "lr", lr, ", ");
    json_put_float(r->log.f, "ms", ms, ", ");
    json_put_float(r->log.f, "tokens_per_second", (double)tokens * 1e3 / ms, ", ");
    log_step_end(&r->log, &info);
}

void lm_log_validation(struct lm_run *r, int64_t step, double loss)
{
    if (!r->log.f)
        return;
    fputc('{', r->log.f);
    json_put_int(r->log.f, "validation_step", step);
    json_put_float(r->log.f, "validation_loss", loss, "}\n");
    log_flush(&r->log);
}

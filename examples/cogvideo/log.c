/* SPDX-License-Identifier: Apache-2.0 */
/* The log for other programs: JSON lines, the first with the configuration. */
#include "../common/log.h"
#include "../common/say.h"
#include "ckpt_dist.h"
#include "run.h"

static void put_model(FILE *f, const struct cogvideo_run *r)
{
    const struct cogvideo_config *m = &r->model.config;
    const struct cogvideo_geometry *g = &r->data.geometry;

    json_put_string(f, "model", cogvideo_config_name(m));
    json_put_int(f, "hidden", m->width);
    json_put_int(f, "heads", m->heads);
    json_put_int(f, "depth", m->layers);
    json_put_int(f, "frames", g->frames);
    json_put_int(f, "height", g->height);
    json_put_int(f, "width", g->width);
    json_put_int(f, "tokens", g->tokens + cogvideo_grid(m, g).tokens);
    json_put_int(f, "parameters", cogvideo_parameters(m));
    json_put_int(f, "trainable", r->trainable);
}

static void put_config(FILE *f, const struct cogvideo_run *r)
{
    const struct cogvideo_options *o = &r->options;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    ckpt_program_info(r->training, &info);
    fputs("{\"config\": {", f);
    json_put_string(f, "libckpt", ckpt_version());
    put_model(f, r);
    json_put_string(f, "dtype", o->dtype);
    json_put_string(f, "data", r->data.title);
    json_put_int(f, "rows", r->data.rows);
    json_put_int(f, "missing", r->data.missing);
    json_put_int(f, "lora_rank", o->rank);
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
    json_put_float(f, "clip_norm", o->clip_norm, ", ");
    json_put_float(f, "ema_decay", o->ema_decay, ", ");
    json_put_float(f, "lr", o->lr, "}}\n");
}

int cogvideo_log_open(struct cogvideo_run *r)
{
    if (log_open(&r->log, r->options.log, ckpt_rank(r->context)))
        return -1;
    if (r->log.f)
        put_config(r->log.f, r);
    log_flush(&r->log);
    return 0;
}

void cogvideo_log_step(struct cogvideo_run *r, int64_t step, double loss, double lr, double ms)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    if (!r->log.f)
        return;
    ckpt_program_info(r->training, &info);
    log_step_begin(&r->log, step, loss, &info);
    json_put_float(r->log.f, "lr", lr, ", ");
    json_put_float(r->log.f, "ms", ms, ", ");
    log_step_end(&r->log, &info);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The log as JSON lines for other programs; the first line has the configuration. */
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

static void put_config(struct cogvideo_run *r)
{
    const struct cogvideo_options *o = &r->options;
    FILE *f = r->log.f;

    log_config_begin(&r->log);
    put_model(f, r);
    json_put_string(f, "dtype", o->dtype);
    json_put_string(f, "data", r->data.title);
    json_put_int(f, "rows", r->data.rows);
    json_put_int(f, "missing", r->data.missing);
    json_put_int(f, "lora_rank", o->rank);
    json_put_string(f, "frozen", o->frozen);
    log_config_end(&r->log, r->context, r->training, &o->train, &o->library);
}

int cogvideo_log_open(struct cogvideo_run *r)
{
    if (log_open(&r->log, &r->options.train, ckpt_rank(r->context), r->first))
        return -1;
    if (r->log.f)
        put_config(r);
    return 0;
}

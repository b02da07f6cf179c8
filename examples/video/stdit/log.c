/* SPDX-License-Identifier: Apache-2.0 */
/* The machine-readable log: JSON lines, the first with the configuration. */
#include "run.h"

static void put_model(FILE *f, const struct video_run *r)
{
    const struct stdit_config *m = &r->stdit->config;
    const struct video_geometry *g = &r->data.shapes.shape->geometry;

    json_put_int(f, "hidden", m->hidden);
    json_put_int(f, "heads", m->heads);
    json_put_int(f, "depth", m->depth);
    json_put_float(f, "mlp_ratio", m->mlp_ratio, ", ");
    json_put_int(f, "in_channels", m->in_channels);
    json_put_int(f, "caption_channels", m->caption_channels);
    json_put_int(f, "text_tokens", m->text_tokens);
    json_put_int(f, "frames", g->frames);
    json_put_int(f, "height", g->height);
    json_put_int(f, "width", g->width);
    json_put_int(f, "parameters", r->trainable);
}

void stdit_describe(const void *run, FILE *f)
{
    const struct video_run *r = run;
    const struct video_options *o = &r->options;

    json_put_string(f, "model", o->model);
    json_put_string(f, "dtype", o->dtype);
    json_put_string(f, "data", r->data.title);
    put_model(f, r);
    json_put_int(f, "rows", r->data.shapes.rows);
    json_put_int(f, "buckets", r->data.shapes.buckets.n ? r->data.shapes.n : 0);
    json_put_string(f, "mask_stage", o->mask_stage);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The log as JSON lines for other programs; the first line has the configuration. */
#include "../common/say.h"
#include "run.h"

static void put_model(FILE *f, const struct video_run *r)
{
    const struct video_net *net = &r->options.net;
    const struct video_sizes *m = &net->sizes;
    const struct video_geometry *g = &r->data.shapes.shape->geometry;

    json_put_string(f, "model", m->name);
    json_put_int(f, "hidden", m->width);
    json_put_int(f, "heads", m->heads);
    json_put_int(f, "depth", m->layers);
    json_put_int(f, "frames", g->frames);
    json_put_int(f, "height", g->height);
    json_put_int(f, "width", g->width);
    json_put_int(f, "tokens", video_tokens(net, g));
    json_put_int(f, "parameters", net->model->parameters(net) * (1 + video_is_pair(r)));
    json_put_int(f, "trainable", r->trainable);
}

void video_describe(const void *run, FILE *f)
{
    const struct video_run *r = run;
    const struct video_options *o = &r->options;

    put_model(f, r);
    json_put_string(f, "dtype", o->dtype);
    json_put_string(f, "data", r->data.title);
    json_put_int(f, "rows", r->data.shapes.rows);
    json_put_int(f, "missing", r->data.missing);
    json_put_int(f, "lora_rank", o->adapters.rank);
    json_put_string(f, "frozen", o->adapters.frozen);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The log as JSON lines for other programs; the first line has the configuration. */
#include "ckpt_dist.h"
#include "run.h"

static void put_config(struct volume_run *r)
{
    const struct volume_options *o = &r->options;
    FILE *f = r->log.f;

    log_config_begin(&r->log);
    json_put_string(f, "model", "unet3d");
    json_put_string(f, "dtype", o->dtype);
    json_put_int(f, "levels", o->levels);
    json_put_int(f, "width", o->width);
    json_put_int(f, "max_width", o->widest);
    json_put_int(f, "parameters", r->trainable);
    json_put_string(f, "data", o->data);
    json_put_int(f, "volumes", r->data.n);
    json_put_int(f, "classes", r->data.classes);
    json_put_string(f, "intensity", o->intensity ? o->intensity : "mr");
    json_put_string(f, "patch", o->patch);
    json_put_float(f, "foreground", o->foreground, ", ");
    log_config_end(&r->log, r->context, r->training, &o->train, &o->library);
}

int volume_log_open(struct volume_run *r)
{
    if (log_open(&r->log, &r->options.train, ckpt_rank(r->context), r->first))
        return -1;
    if (r->log.f)
        put_config(r);
    return 0;
}

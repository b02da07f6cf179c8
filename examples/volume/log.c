/* SPDX-License-Identifier: Apache-2.0 */
/* The log as JSON lines for other programs; the first line has the configuration. */
#include "run.h"

void volume_describe(const void *run, FILE *f)
{
    const struct volume_run *r = run;
    const struct volume_options *o = &r->options;

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
}

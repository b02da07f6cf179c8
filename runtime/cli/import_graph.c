/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/import_graph.h"
#include <float.h>
#include <stdlib.h>
#include "ckpt_import.h"
#include "cli/cli.h"

struct step {
    ckpt_import *m;
    int n_in, n_out;
    ckpt_tensor *in, *out;
};

static ckpt_tensor record_input(ckpt_tape *t, const struct step *s, int i)
{
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
    const int64_t one = 1;

    if (ckpt_import_input(s->m, i, &v))
        return CKPT_NONE;
    if (v.desc.ndim)
        return ckpt_input(t, v.name, v.desc.dtype, v.desc.ndim, v.desc.shape);
    return ckpt_reshape(t, ckpt_input(t, v.name, v.desc.dtype, 1, &one), 0, NULL);
}

/* The mean squared distance of an output from a target. */
static ckpt_tensor record_distance(ckpt_tape *t, const struct step *s, int i, const char *name)
{
    char target[300];
    struct ckpt_desc d = ckpt_desc_of(t, s->out[i]);

    snprintf(target, sizeof target, "target.%s", name);
    ckpt_tensor y = d.ndim > 0 ? ckpt_input(t, target, CKPT_F32, d.ndim, d.shape) : CKPT_NONE;
    ckpt_tensor x = ckpt_cast(t, s->out[i], CKPT_F32);
    x = y.id ? ckpt_sub(t, x, y) : x;
    return ckpt_reshape(t, ckpt_mean(t, ckpt_mul(t, x, x), CKPT_ALL_AXES), 0, NULL);
}

static ckpt_tensor record_loss(ckpt_tape *t, const struct step *s)
{
    ckpt_tensor sum = CKPT_NONE;

    for (int i = 0; i < s->n_out; i++) {
        struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
        if (ckpt_import_output(s->m, i, &v))
            return CKPT_NONE;
        if (v.loss)
            return s->out[i];
    }
    for (int i = 0; i < s->n_out; i++) {
        struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
        ckpt_import_output(s->m, i, &v);
        if (v.desc.dtype == CKPT_I32)
            continue;
        ckpt_tensor d = record_distance(t, s, i, v.name);
        sum = sum.id ? ckpt_add(t, sum, d) : d;
    }
    return sum;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    struct step *s = user;

    (void)batch;
    for (int i = 0; i < s->n_in; i++)
        s->in[i] = record_input(t, s, i);
    ckpt_import_record(t, s->m, s->in, s->out);
    ckpt_tensor loss = record_loss(t, s);
    if (!loss.id)
        ckpt_tape_fail(t, CKPT_EINVAL, "the model has no output that a loss could be made of");
    return loss;
}

/* The samples of a step: the first axis of the first input that has one. */
static int64_t batch_of(const struct step *s)
{
    for (int i = 0; i < s->n_in; i++) {
        struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
        if (!ckpt_import_input(s->m, i, &v) && v.desc.ndim)
            return v.desc.shape[0];
    }
    return 1;
}

/* Records the step, which writes its graph.  No plan takes less than no time, so none is made. */
static int forecast(ckpt *c, const struct import_report *r, struct step *s)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_forecast f = CKPT_FORECAST_INIT;

    if (ckpt_import_open(c, archive_path(r->archive), &s->m))
        return 1;
    for (int i = 0; i < r->symbols.n; i++)
        if (ckpt_import_set_size(s->m, r->symbols.at[i].name, r->symbols.at[i].n))
            return 1;
    s->n_in = ckpt_import_input_count(s->m);
    s->n_out = ckpt_import_output_count(s->m);
    s->in = calloc((size_t)s->n_in + 1, sizeof *s->in);
    s->out = calloc((size_t)s->n_out + 1, sizeof *s->out);
    if (!s->in || !s->out)
        return 1;
    return ckpt_forecast(c, record, s, ckpt_adamw(c, &adamw), batch_of(s), DBL_MIN, &f);
}

int import_graph_write(const struct import_report *r, const char *machine, const char *ranks,
                       const char *path)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct step s = {0};
    ckpt *c;

    options.device = "cpu";
    options.vram = CKPT_VRAM_NONE;
    options.plan_only = true;
    options.machine = machine;
    options.ranks = ranks;
    options.graph_out = path;
    if (ckpt_open(&c, &options))
        return cli_fail("%s", ckpt_error(NULL));
    int rc = forecast(c, r, &s);
    if (rc)
        rc = cli_fail("%s", *ckpt_error(c) ? ckpt_error(c) : "out of host memory");
    ckpt_import_close(s.m);
    ckpt_close(c);
    free(s.in);
    free(s.out);
    return rc;
}

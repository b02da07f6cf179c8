/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/import_graph.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_import.h"
#include "cli/cli.h"
#include "context/context.h"
#include "import/calls.h"
#include "import/source.h"
#include "tape/tape.h"

struct step {
    ckpt_import *m;
    int n_in, n_out;
    ckpt_tensor *in, *out;
    struct trace *trace; /* of the calls; NULL: they are not noted */
    int32_t loss;        /* in the trace */
    int64_t batch;
    bool whole; /* the inputs have no axis for samples in common: a call is one sample */
};

static ckpt_tensor make_input(ckpt_tape *t, const struct step *s, const char *name,
                              enum ckpt_dtype dtype, int ndim, const int64_t *shape)
{
    int64_t of_call[CKPT_MAX_DIMS + 1] = {1};

    if (ndim && !s->whole)
        return ckpt_input(t, name, dtype, ndim, shape);
    for (int i = 0; i < ndim; i++)
        of_call[i + 1] = shape[i];
    return ckpt_reshape(t, ckpt_input(t, name, dtype, ndim + 1, of_call), ndim, shape);
}

static ckpt_tensor record_input(ckpt_tape *t, const struct step *s, int i)
{
    struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;

    if (ckpt_import_input(s->m, i, &v))
        return CKPT_NONE;
    return make_input(t, s, v.name, v.desc.dtype, v.desc.ndim, v.desc.shape);
}

/* The mean squared distance of an output from a target. */
static ckpt_tensor record_distance(ckpt_tape *t, const struct step *s, int i, const char *name)
{
    char target[300];
    struct ckpt_desc d = ckpt_desc_of(t, s->out[i]);

    snprintf(target, sizeof target, "target.%s", name);
    ckpt_tensor y = d.ndim > 0 ? make_input(t, s, target, CKPT_F32, d.ndim, d.shape) : CKPT_NONE;
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
            return ckpt_cast(t, s->out[i], CKPT_F32);
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
    if (s->trace) {
        trace_free(s->trace); /* of an earlier recording */
        trace_begin(s->trace, t);
    }
    for (int i = 0; i < s->n_in; i++)
        s->in[i] = record_input(t, s, i);
    ckpt_import_record(t, s->m, s->in, s->out);
    ckpt_tensor loss = record_loss(t, s);
    if (!loss.id)
        ckpt_tape_fail(t, CKPT_EINVAL, "the model has no output that a loss could be made of");
    trace_end();
    s->loss = tape_resolve(t, loss).id;
    return loss;
}

/* The samples of a step: the first axis of the inputs, if all agree; no axis counts as 1. */
static void set_batch(struct step *s)
{
    s->batch = 0;
    s->whole = false;
    for (int i = 0; i < s->n_in; i++) {
        struct ckpt_import_value v = CKPT_IMPORT_VALUE_INIT;
        ckpt_import_input(s->m, i, &v);
        const int64_t samples = v.desc.ndim ? v.desc.shape[0] : 1;
        s->whole |= i && s->batch != samples;
        s->batch = samples;
    }
    s->batch = s->whole || !s->n_in ? 1 : s->batch;
}

/* An axis 0 of other size than at the export, if that may be: the batch is then no constant. */
static int set_other_batch(const struct import_report *r, struct step *s)
{
    const struct pt2_program *p = &r->program;

    for (int i = 0; i < p->n_in; i++) {
        const int32_t value = p->in[i].kind == PT2_USER_INPUT ? p->in[i].value : -1;
        const struct pt2_tensor *t = value < 0 ? NULL : &p->graph->value[value].tensor;
        if (!t || t->ndim < 1)
            continue;
        for (int k = 0; t->size[0].expr && k < r->symbols.n; k++) {
            const char *name = r->symbols.at[k].name;
            if (strstr(t->size[0].expr, name) &&
                !ckpt_import_set_size(s->m, name, r->symbols.at[k].n + 1))
                return 0;
        }
        return 1;
    }
    return 1;
}

static int open_step(ckpt *c, const struct import_report *r, struct step *s)
{
    if (ckpt_import_open(c, archive_path(r->archive), &s->m))
        return 1;
    for (int i = 0; i < r->symbols.n; i++)
        if (ckpt_import_set_size(s->m, r->symbols.at[i].name, r->symbols.at[i].n))
            return 1;
    s->n_in = ckpt_import_input_count(s->m);
    s->n_out = ckpt_import_output_count(s->m);
    s->in = calloc((size_t)s->n_in + 1, sizeof *s->in);
    s->out = calloc((size_t)s->n_out + 1, sizeof *s->out);
    return s->in && s->out ? 0 : 1;
}

/* Records the step, which writes its graph.  No plan takes less than no time, so none is made. */
static int forecast(ckpt *c, struct step *s)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_forecast f = CKPT_FORECAST_INIT;

    set_batch(s);
    return ckpt_forecast(c, record, s, ckpt_adamw(c, &adamw), s->batch, DBL_MIN, &f);
}

/* Records the step twice, where it may have another batch, and writes it as C. */
static int compile_source(ckpt *c, const struct import_report *r, struct step *s, const char *path)
{
    struct trace first = {0}, second = {0};
    char constants[4200];
    const size_t n = strlen(path);

    s->trace = &first;
    int rc = forecast(c, s);
    struct source to = {.trace = &first,
                        .batch = s->batch,
                        .params = &c->params,
                        .loss = s->loss,
                        .archive = archive_path(r->archive),
                        .constants = constants};
    snprintf(constants, sizeof constants, "%.*s.safetensors",
             (int)(n > 2 && !strcmp(path + n - 2, ".c") ? n - 2 : n), path);
    if (!rc && !s->whole && !set_other_batch(r, s)) {
        s->trace = &second;
        rc = forecast(c, s);
        to.other = rc ? NULL : &second;
        to.other_batch = s->batch;
    }
    if (!rc)
        rc = source_write(&to, path);
    trace_free(&first);
    trace_free(&second);
    return rc;
}

static int write_step(const struct import_report *r, struct ckpt_options *options,
                      const char *source)
{
    struct step s = {0};
    ckpt *c;

    options->device = "cpu";
    options->vram = CKPT_VRAM_NONE;
    options->plan_only = true;
    if (ckpt_open(&c, options))
        return cli_fail("%s", ckpt_error(NULL));
    int rc = open_step(c, r, &s);
    if (!rc)
        rc = source ? compile_source(c, r, &s, source) : forecast(c, &s);
    if (rc)
        rc = cli_fail("%s", ckpt_error(*ckpt_error(c) ? c : NULL));
    ckpt_import_close(s.m);
    ckpt_close(c);
    free(s.in);
    free(s.out);
    return rc;
}

int import_graph_write(const struct import_report *r, const char *machine, const char *ranks,
                       const char *path)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;

    options.machine = machine;
    options.ranks = ranks;
    options.graph_out = path;
    return write_step(r, &options, NULL);
}

/* A constant without a value would be written as zeros; NULL: there is none. */
static const char *missing_constant(const struct import_report *r)
{
    const struct pt2_program *p = &r->program;

    for (int i = 0; i < p->n_in; i++) {
        const struct pt2_input *in = &p->in[i];
        const struct weight *w =
            in->kind == PT2_CONSTANT || (in->kind == PT2_BUFFER && !in->persistent)
                ? weights_find(r->weights, in->name)
                : NULL;
        if (w && !w->has_values)
            return in->name;
    }
    return NULL;
}

int import_source_write(const struct import_report *r, const char *path)
{
    const char *missing = missing_constant(r);
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    char shown[200];

    if (missing)
        return cli_fail("--c-out: '%s' is a constant, and the model was exported without values: "
                        "export it with its values",
                        text_shown(missing, shown, sizeof shown));
    return write_step(r, &options, path);
}

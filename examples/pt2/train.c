/* SPDX-License-Identifier: Apache-2.0 */
/* Training: the recorded step, the samples of each one, and the loss of validation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/compiled.h"
#include "../common/dump.h"
#include "../common/memory.h"
#include "ckpt_dist.h"
#include "ckpt_ops.h"
#include "run.h"

/* ---- recording ------------------------------------------------------------------------------- */

/* Samples lie along axis 0 of what is fed. */
static ckpt_tensor record_fed(ckpt_tape *t, const struct pt2_feed *f, int64_t batch)
{
    int64_t shape[CKPT_MAX_DIMS + 1] = {batch};

    memcpy(shape + 1, f->shape, (size_t)f->ndim * sizeof *shape);
    return ckpt_input(t, f->name, f->whole ? CKPT_I32 : CKPT_F32, f->ndim + 1, shape);
}

/* Moves the samples of an input to where the model has them. */
static ckpt_tensor record_input(ckpt_tape *t, const struct signature_value *v, ckpt_tensor x)
{
    int axes[CKPT_MAX_DIMS];

    if (v->role == ROLE_WHOLE)
        return ckpt_reshape(t, x, v->desc.ndim, v->desc.shape);
    for (int i = 0; i < v->desc.ndim; i++)
        axes[i] = i < v->axis ? i + 1 : i == v->axis ? 0 : i;
    return v->axis ? ckpt_permute(t, x, axes) : x;
}

/* fed: what a step is fed.  in: the inputs of the model. */
static void record_inputs(const struct pt2_run *r, ckpt_tape *t, int64_t batch, ckpt_tensor *fed,
                          ckpt_tensor *in)
{
    const struct signature *s = &r->signature;

    for (int k = 0; k < r->n_feeds; k++)
        fed[k] = record_fed(t, &r->feed[k], batch);
    for (int i = 0, k = 0; i < s->n_in; i++) {
        const struct signature_value *v = &s->in[i];
        if (v->role != ROLE_SHARED)
            in[i] = record_input(t, v, fed[k++]);
        else
            in[i] = ckpt_constant(t, v->name, v->desc.dtype == CKPT_I32 ? CKPT_I32 : CKPT_F32,
                                  v->desc.ndim, v->desc.shape, r->common[i]);
    }
}

static ckpt_tensor record_model(const struct pt2_run *r, ckpt_tape *t, int64_t batch, bool trains,
                                ckpt_tensor *in, ckpt_tensor *out)
{
    ckpt_tensor *fed = out + r->signature.n_out;

    record_inputs(r, t, batch, fed, in);
    ckpt_tensor target = r->target < 0 ? CKPT_NONE : fed[r->target];
    if (r->target >= 0 && r->feed[r->target].whole && !loss_counts(&r->loss))
        target = ckpt_cast(t, target, CKPT_F32);
    ckpt_import_set_training(r->model, trains);
    ckpt_import_record(t, r->model, in, out);
    if (trains && r->options.train.dump)
        dump_record(r->context, t, ckpt_cast(t, out[0], CKPT_F32));
    ckpt_label(t, "loss");
    return loss_record(&r->loss, &r->signature, t, out, target);
}

/* A model of fixed sizes has no other number of samples: the step is not compared with one. */
static ckpt_tensor record(const struct pt2_run *r, ckpt_tape *t, int64_t batch, bool trains)
{
    const struct signature *s = &r->signature;
    const size_t n = (size_t)(s->n_in + s->n_out + r->n_feeds) + 1;
    ckpt_tensor *all = calloc(n, sizeof *all), loss = CKPT_NONE;

    if (!all)
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the inputs of a model");
    else if (s->n_batch || batch == s->fixed)
        loss = record_model(r, t, batch, trains, all, all + s->n_in);
    free(all);
    return loss;
}

static ckpt_tensor record_training(ckpt_tape *t, int64_t batch, void *user)
{
    return record(user, t, batch, true);
}

static ckpt_tensor record_measuring(ckpt_tape *t, int64_t batch, void *user)
{
    return record(user, t, batch, false);
}

int pt2_compile(void *run, bool trains)
{
    struct pt2_run *r = run;
    const int64_t batch = r->options.train.batch;
    const ckpt_optimizer *optimizer = trains ? pt2_optimizer(r) : NULL;
    int rc = 0;

    if (trains && !optimizer)
        return -1;
    if (trains)
        rc = compiled(r->context,
                      ckpt_compile(r->context, record_training, r, optimizer, batch, &r->training),
                      r->training, "");
    if (!rc && r->validation.n)
        rc = compiled(r->context,
                      ckpt_compile(r->context, record_measuring, r, NULL, batch, &r->measuring),
                      r->measuring, "validation: ");
    return rc;
}

/* ---- batches --------------------------------------------------------------------------------- */

static int open_batch(struct pt2_run *r)
{
    for (int i = 0; i < r->n_feeds; i++) {
        struct pt2_feed *f = &r->feed[i];
        f->batch = MEMORY_FOR(sizeof(float), r->options.train.batch, f->values);
        if (!f->batch)
            return say_fail("no memory for a batch of %lld samples",
                            (long long)r->options.train.batch);
    }
    return 0;
}

void pt2_close_steps(void *user)
{
    struct pt2_run *r = user;

    for (int i = 0; i < r->n_feeds; i++) {
        free(r->feed[i].batch);
        r->feed[i].batch = NULL;
    }
}

/* An input that nothing of a program reads is not fed. */
static int feed_one(const struct pt2_run *r, ckpt_program *p, const struct pt2_feed *f)
{
    const int64_t bytes = r->options.train.batch * f->values * (int64_t)sizeof(float);
    struct ckpt_desc d;

    if (ckpt_program_desc(p, f->name, &d))
        return 0;
    return ckpt_feed(p, f->name, f->batch, bytes) ? say_fail("%s", ckpt_error(r->context)) : 0;
}

/* Feeds the samples from `first` on; order NULL: in the order of the files. */
static int feed(struct pt2_run *r, ckpt_program *p, struct dataset *d, struct sample_order *order,
                int64_t first)
{
    for (int k = 0; k < r->n_feeds; k++) {
        struct pt2_feed *f = &r->feed[k];
        const struct dataset_column *c = dataset_find(d, f->name);
        for (int64_t i = 0; i < r->options.train.batch; i++) {
            const int64_t row = order ? sample_order_row(order, first + i) : first + i;
            if (dataset_read(d, c, row, (float *)f->batch + i * f->values))
                return -1;
        }
        if (feed_one(r, p, f))
            return -1;
    }
    return 0;
}

/* ---- validation ------------------------------------------------------------------------------ */

/* The mean over whole batches; NaN if the run was asked to stop meanwhile.  All ranks measure the
 * same ones, because sharded weights need every rank. */
static int measure(struct pt2_run *r, double *loss)
{
    const int64_t batch = r->options.train.batch, n = r->validation.rows / batch;
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        float mean;
        if (training_is_stopped(r->context)) {
            *loss = NAN;
            return 0;
        }
        if (feed(r, r->measuring, &r->validation, NULL, i * batch))
            return -1;
        if (ckpt_step(r->measuring, &mean))
            return say_fail("%s", ckpt_error(r->context));
        sum += (double)mean;
    }
    *loss = sum / (double)n;
    return 0;
}

int pt2_measure(struct pt2_run *r, double *loss)
{
    int rc = open_batch(r);

    rc = rc ? rc : measure(r, loss);
    pt2_close_steps(r);
    return rc;
}

static int report_validation(void *run, int64_t step)
{
    struct pt2_run *r = run;
    double loss;

    if (measure(r, &loss))
        return -1;
    if (isnan(loss))
        return 0;
    say_print("step %lld: validation loss %.6f\n", (long long)step, loss);
    fflush(stdout);
    log_line_begin(&r->log, "validation_step", step);
    log_float(&r->log, "validation_loss", loss);
    log_line_end(&r->log);
    return 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int feed_step(struct training *t, int64_t step)
{
    struct pt2_run *r = t->user;
    const int64_t batch = r->options.train.batch;
    const double from = run_clock_now();

    if (feed(r, r->training, &r->data, &r->order,
             (step * ckpt_sample_groups(r->context) + ckpt_sample_group(r->context)) * batch))
        return -1;
    t->data_ms = 1e3 * (run_clock_now() - from);
    return 0;
}

static int end(struct training *t, int64_t step)
{
    return training_end(t, t->only, step, 0) || adapters_check_step(t, step) ? -1 : 0;
}

int pt2_open_steps(void *run, struct training *t)
{
    struct pt2_run *r = run;

    t->reads = true;
    t->feed = feed_step;
    t->end = end;
    t->user = r;
    t->saves = r->options.adapters.rank ? ckpt_lora_only : NULL;
    if (r->measuring)
        t->look[0] = (struct training_look){report_validation, r->options.validation_every, true};
    return open_batch(r);
}

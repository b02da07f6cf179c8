/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loss on clips that are not trained on, by noise level: the ten inner points of twelve that
 * divide [0, 1000], without the shift for resolution and length, as Open-Sora's eval_loss has them.
 * The noise of a clip at a level follows from the seed alone.  Clips are measured one by one, all
 * of them by every rank, so the losses depend on the weights only.
 */
#include <math.h>
#include <stdlib.h>
#include "../common/average.h"
#include "../common/memory.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"
#include "schedule.h"

static double time_of(int level)
{
    return 1000.0 * (level + 1) / (STDIT_LEVELS + 1);
}

/* ---- data and program ---------------------------------------------------------------------- */

/* Every frame is noised, as its level says. */
static void drop_draws(struct stdit_data *d, const char *path)
{
    if (d->t || d->eps || d->x_mask)
        say_note("--val %s: its times, noise and frame masks are not used", path);
    free(d->t);
    free(d->eps);
    free(d->x_mask);
    d->t = d->eps = NULL;
    d->x_mask = NULL;
}

/* A run of its own for the recorder and the batches, with clips, times and noise of a file. */
int stdit_validation_open(struct stdit_run *r)
{
    struct stdit_validation *v = &r->validation;

    if (!r->options.val)
        return 0;
    v->run = calloc(1, sizeof *v->run);
    if (!v->run)
        return say_fail("no memory for --val");
    v->run->options = r->options;
    v->run->options.features = r->options.val;
    v->run->options.buckets = v->run->options.video = v->run->options.video_dir = NULL;
    v->run->options.cache = NULL;
    v->run->options.train.batch = 1;
    v->run->options.train.dump = NULL;
    struct stdit_data *d = &v->run->data;
    if (stdit_data_open(d, &v->run->options, false))
        return -1;
    drop_draws(d, r->options.val);
    d->t = MEMORY_FOR(sizeof *d->t, d->rows);
    d->eps = MEMORY_FOR(sizeof *d->eps, d->rows, stdit_data_z(d, d->shape));
    return d->t && d->eps ? 0 : say_fail("--val: no memory for noise");
}

int stdit_compile_validation(struct stdit_run *r)
{
    struct stdit_validation *v = &r->validation;

    if (!v->run)
        return 0;
    v->run->context = r->context;
    v->run->model = r->model;
    return stdit_compile_loss(v->run, v->run->data.shape, NULL, "validation: ");
}

/* The model is the run's. */
void stdit_validation_close(struct stdit_run *r)
{
    if (r->validation.run)
        stdit_data_close(&r->validation.run->data);
    free(r->validation.run);
    r->validation.run = NULL;
}

/* ---- measuring ------------------------------------------------------------------------------ */

static void set_level(struct stdit_run *v, int level)
{
    struct stdit_data *d = &v->data;
    int64_t z = stdit_data_z(d, d->shape);
    uint64_t seed = (uint64_t)v->options.library.seed;

    for (int64_t row = 0; row < d->rows; row++) {
        d->t[row] = (float)time_of(level);
        ckpt_fill_normal(seed, (uint64_t)(row * STDIT_LEVELS + level), STREAM_VALID,
                         d->eps + row * z, z);
    }
}

static int measure_clip(struct stdit_run *v, struct stdit_batch *b, int64_t row, double *sum)
{
    const struct stdit_shape *s = v->data.shape;
    /* less what a rank adds */
    int64_t before = row + v->data.rows * ckpt_ranks(v->context) - ckpt_rank(v->context);
    float loss;

    if (stdit_batch_fill(b, v, &(struct stdit_turn){.shape = s, .before = before}))
        return -1;
    if (stdit_batch_feed(b, v, s->training, false) ||
        stdit_batch_feed_training(b, v, s->training) || ckpt_step(s->training, &loss))
        return say_fail("validation: %s", ckpt_error(v->context));
    *sum += loss;
    return 0;
}

/* Sets the loss of each level; stopped: before all were measured. */
static int measure(struct stdit_run *v, struct stdit_batch *b, double *loss, bool *stopped)
{
    int64_t rows = v->data.rows;

    for (int level = 0; level < STDIT_LEVELS; level++) {
        loss[level] = 0;
        set_level(v, level);
        for (int64_t row = 0; row < rows; row++) {
            *stopped = training_is_stopped(v->context);
            if (*stopped)
                return 0;
            if (measure_clip(v, b, row, &loss[level]))
                return -1;
        }
        loss[level] /= (double)rows;
    }
    return 0;
}

static void report(struct stdit_run *r, int64_t step)
{
    struct stdit_validation *v = &r->validation;
    double mean = 0;
    char name[32];

    for (int i = 0; i < STDIT_LEVELS; i++)
        mean += v->loss[i] / STDIT_LEVELS;
    say_print("step %lld: validation loss %.4f\n", (long long)step, mean);
    log_line_begin(&r->log, "validation_step", step);
    log_float(&r->log, "validation_loss", mean);
    for (int i = 0; i < STDIT_LEVELS; i++) {
        snprintf(name, sizeof name, "validation_loss_%.0f", time_of(i));
        log_float(&r->log, name, v->loss[i]);
    }
    log_line_end(&r->log);
    v->step = step;
}

int stdit_validate(struct stdit_run *r, int64_t step)
{
    struct stdit_run *v = r->validation.run;
    bool average = r->options.val_ema, stopped = false;
    struct stdit_batch b;

    if (stdit_batch_create(&b, v, v->data.shape, 1))
        return -1;
    int rc = average ? average_swap(r->context) : 0;
    if (!rc) {
        rc = measure(v, &b, r->validation.loss, &stopped);
        if (average && average_swap(r->context))
            rc = -1;
    }
    stdit_batch_free(&b);
    if (!rc && !stopped)
        report(r, step);
    return rc;
}

void stdit_validation_report(const struct stdit_run *r)
{
    const struct stdit_validation *v = &r->validation;

    if (!v->step)
        return;
    say_print("validation: by timestep, after %lld steps%s:\n", (long long)v->step,
              r->options.val_ema ? ", from the moving average" : "");
    for (int i = 0; i < STDIT_LEVELS; i++)
        say_print("  %5.1f  %.4f\n", time_of(i), v->loss[i]);
}

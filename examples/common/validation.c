/* SPDX-License-Identifier: Apache-2.0 */
/* Validation loss of a diffusion model: see validation.h. */
#include "validation.h"
#include <math.h>
#include <stdlib.h>
#include "average.h"
#include "ckpt_tools.h"
#include "memory.h"
#include "say.h"
#include "training.h"

static double time_of(const struct validation *v, int level)
{
    const double to = v->to > 0 ? v->to : 1000;
    double t = v->from + (to - v->from) * (level + 1) / (VALIDATION_LEVELS + 1);

    return v->whole ? floor(t) : t;
}

int validation_noise(struct validation *v, float **t, float **eps)
{
    free(*t);
    free(*eps);
    v->t = *t = MEMORY_FOR(sizeof *v->t, v->rows);
    v->eps = *eps = MEMORY_FOR(sizeof *v->eps, v->rows, v->values);
    return v->t && v->eps ? 0 : say_fail("--val: no memory for noise");
}

static void set_level(struct validation *v, int level)
{
    for (int64_t row = 0; row < v->rows; row++) {
        v->t[row] = (float)time_of(v, level);
        ckpt_fill_normal(v->seed, (uint64_t)(row * VALIDATION_LEVELS + level), v->stream,
                         v->eps + row * v->values, v->values);
    }
}

/* Computes the loss of each level; *stopped: the run was stopped before all were computed. */
static int measure(struct validation *v, double *loss, bool *stopped)
{
    for (int level = 0; level < VALIDATION_LEVELS; level++) {
        loss[level] = 0;
        set_level(v, level);
        for (int64_t row = 0; row < v->rows; row++) {
            *stopped = training_is_stopped(v->context);
            if (*stopped)
                return 0;
            if (v->measure(v, row, &loss[level]))
                return -1;
        }
        loss[level] /= (double)v->rows;
    }
    return 0;
}

static void report(struct validation *v, int64_t step)
{
    double mean = 0;
    char name[32];

    for (int i = 0; i < VALIDATION_LEVELS; i++)
        mean += v->loss[i] / VALIDATION_LEVELS;
    say_print("step %lld: validation loss %.4f\n", (long long)step, mean);
    log_line_begin(v->log, "validation_step", step);
    log_float(v->log, "validation_loss", mean);
    for (int i = 0; i < VALIDATION_LEVELS; i++) {
        snprintf(name, sizeof name, "validation_loss_%.0f", time_of(v, i));
        log_float(v->log, name, v->loss[i]);
    }
    log_line_end(v->log);
    v->step = step;
}

int validation_run(struct validation *v, int64_t step)
{
    bool stopped = false;

    if (v->average && average_swap(v->context))
        return -1;
    int rc = measure(v, v->loss, &stopped);
    if (v->average && average_swap(v->context))
        return -1;
    if (!rc && !stopped)
        report(v, step);
    return rc;
}

void validation_report(const struct validation *v)
{
    if (!v->step)
        return;
    say_print("validation: by timestep, after %lld steps%s:\n", (long long)v->step,
              v->average ? ", from the moving average" : "");
    for (int i = 0; i < VALIDATION_LEVELS; i++)
        say_print("  %5.1f  %.4f\n", time_of(v, i), v->loss[i]);
}

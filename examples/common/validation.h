/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loss of a diffusion model on clips that are not trained on, by noise level.  The noise of a
 * clip at a level follows from the seed alone, and clips are measured one by one, all of them by
 * every rank, so the losses depend on the weights only.
 */
#ifndef EXAMPLES_VALIDATION_H
#define EXAMPLES_VALIDATION_H

#include <stdbool.h>
#include <stdint.h>
#include "ckpt.h"
#include "log.h"

struct validation_options {
    const char *file; /* features of the clips; NULL: none are measured */
    int64_t every;    /* steps between two measurements; 0: at the end */
    bool average;     /* of the moving average of the weights */
};

/* Rows for all structs that have the one above as member `validation`. */
#define VALIDATION_ROWS                                                                            \
    ROW("val", STRING, validation.file, "FILE",                                                    \
        "features, as of --features, of clips whose loss is measured at ten noise levels at the "  \
        "end"),                                                                                    \
        RANGE("val-every", INT, validation.every, "N",                                             \
              "measure it every N steps, too (default: at the end)", 1, OPTION_MOST),              \
        ROW("val-ema", FLAG, validation.average, NULL,                                             \
            "measure it of the moving average of the weights")

/* What options_parse cannot see.  Returns 0, or -1 after a sentence. */
int validation_check(const struct validation_options *o, double ema_decay);

/* Levels are the inner ones of points that divide all timesteps evenly, as Open-Sora's eval_loss
 * has them. */
enum { VALIDATION_LEVELS = 10 };

struct validation {
    ckpt *context;
    struct run_log *log;
    int64_t rows; /* clips */
    bool average; /* of the moving average of the weights */
    double time[VALIDATION_LEVELS];
    /* Gives every clip the noise of a level; adds the loss of a clip to *sum.  The second returns
     * 0, or -1 after a sentence. */
    void (*set)(struct validation *v, int level);
    int (*measure)(struct validation *v, int64_t row, double *sum);
    void *user;
    /* of validation_run */
    double loss[VALIDATION_LEVELS];
    int64_t step; /* behind which they were measured; 0: not yet */
};

/* Point `level` of the range [0, 1000]. */
double validation_time(int level);

/* Measures behind so many steps and reports, to the log too; not where the run is asked to stop
 * meanwhile.  Returns 0, or -1 after a sentence. */
int validation_run(struct validation *v, int64_t step);

/* The table of what was measured last. */
void validation_report(const struct validation *v);

#endif

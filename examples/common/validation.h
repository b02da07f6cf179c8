/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The validation loss of a diffusion model, by noise level.  The noise of a clip at a level depends
 * only on the seed.  Clips are measured one by one, and every rank measures all of them, so the
 * losses depend only on the weights.
 */
#ifndef EXAMPLES_VALIDATION_H
#define EXAMPLES_VALIDATION_H

#include <stdbool.h>
#include <stdint.h>
#include "ckpt.h"
#include "log.h"

struct validation_options {
    const char *file; /* features of the validation clips, or a cache; NULL: no validation */
    int64_t every;    /* steps between two validations; 0: only at the end */
    bool average;     /* use the moving average of the weights */
};

/* Option rows for structs that have struct validation_options as member `validation`. */
#define VALIDATION_ROWS                                                                            \
    CKPT_OPTION_GROUP("Validation"),                                                               \
        ROW("val", STRING, validation.file, "FILE",                                                \
            "clips for validation, in the format of --features, or a cache as for --cache: their " \
            "loss is measured at ten noise levels at the end"),                                    \
        RANGE("val-every", INT, validation.every, "N",                                             \
              "measure the loss of --val also every N steps (default: only at the end)", 1,        \
              OPTION_MOST),                                                                        \
        ROW("val-ema", FLAG, validation.average, NULL,                                             \
            "validate with the moving average of the weights")

/* Checks what options_parse cannot.  Returns 0, or -1 after an error message. */
int validation_check(const struct validation_options *o, double ema_decay);

/* Whether the clips are a cache of video-encode: a directory. */
bool validation_is_cached(const struct validation_options *o);

/* The levels are the inner points of an even division of all timesteps, as in Open-Sora's
 * eval_loss. */
enum { VALIDATION_LEVELS = 10 };

struct validation {
    ckpt *context;
    struct run_log *log;
    int64_t rows;          /* number of clips */
    bool average;          /* use the moving average of the weights */
    bool whole;            /* timesteps are whole numbers */
    double from, to;       /* timesteps that the model learns; to 0: up to 1000 */
    uint64_t seed, stream; /* of the noise */
    /* The timestep of each clip [rows], and its noise [rows, values]: of one level, set before its
     * clips are measured. */
    float *t, *eps;
    int64_t values;
    /* Adds the loss of a clip to *sum and returns 0, or -1 after an error message. */
    int (*measure)(struct validation *v, int64_t row, double *sum);
    void *user;
    /* results of validation_run */
    double loss[VALIDATION_LEVELS];
    int64_t step; /* number of steps before the last validation; 0: none yet */
};

/* Allocates timesteps and noise, whose sizes are known, in place of those of the data, which the
 * caller owns.  Returns 0, or -1 after an error message. */
int validation_noise(struct validation *v, float **t, float **eps);

/* Validates after `step` steps and reports, also to the log; reports nothing if the run is asked to
 * stop meanwhile.  Returns 0, or -1 after an error message. */
int validation_run(struct validation *v, int64_t step);

/* Prints the table of the last validation. */
void validation_report(const struct validation *v);

#endif

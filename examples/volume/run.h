/* SPDX-License-Identifier: Apache-2.0 */
/* One run of volume-train: what its parts share. */
#ifndef VOLUME_RUN_H
#define VOLUME_RUN_H

#include "../common/log.h"
#include "../common/say.h"
#include "options.h"

struct volume_run {
    struct volume_options options;
    struct volume_set data;
    struct unet model;
    ckpt *context;
    ckpt_program *training; /* owned by the context */
    int64_t trainable;      /* parameters that are trained */
    int64_t first;          /* steps of the runs that this one goes on with */
    struct run_log log;
};

/* Cross entropy plus 1 - Dice of scores [N, D, H, W, C] and labels i32 [N, D, H, W].  Dice is that
 * of probabilities (Milletari et al. 2016) of each sample and each class but the background,
 * (2 sum p g + 1e-5) / (sum (p + g) + 1e-5), of which the mean is taken. */
ckpt_tensor volume_loss(ckpt_tape *t, ckpt_tensor scores, ckpt_tensor labels, int64_t classes);

/* Compiles the program that trains.  Returns 0, or -1 after a sentence. */
int volume_compile(struct volume_run *r);
/* Runs the steps, logs them, dumps the first and saves at the end.  Returns 0 or -1. */
int volume_train(struct volume_run *r);

/* The log with its first line.  Returns 0, or -1 after a sentence. */
int volume_log_open(struct volume_run *r);

#endif

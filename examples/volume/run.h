/* SPDX-License-Identifier: Apache-2.0 */
/* One run of volume-train: the state that its parts share. */
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
    int64_t trainable;      /* number of trained parameters */
    int64_t first;          /* steps of the runs that this one resumes */
    struct run_log log;
};

/* Cross entropy plus 1 - Dice of scores [N, D, H, W, C] and labels i32 [N, D, H, W].  Dice
 * (Milletari et al. 2016) is computed from probabilities, (2 sum p g + 1e-5) / (sum (p + g) +
 * 1e-5), and averaged over the samples and the classes except the background. */
ckpt_tensor volume_loss(ckpt_tape *t, ckpt_tensor scores, ckpt_tensor labels, int64_t classes);

/* Compiles the training program.  Returns 0, or -1 after an error message. */
int volume_compile(struct volume_run *r);
/* Runs and logs the steps, dumps the first and saves at the end.  Returns 0 or -1. */
int volume_train(struct volume_run *r);

/* Opens the log and writes its first line.  Returns 0, or -1 after an error message. */
int volume_log_open(struct volume_run *r);

#endif

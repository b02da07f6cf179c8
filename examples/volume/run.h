/* SPDX-License-Identifier: Apache-2.0 */
/* One run of volume-train: the state that its parts share. */
#ifndef VOLUME_RUN_H
#define VOLUME_RUN_H

#include "../common/say.h"
#include "../common/training.h"
#include "options.h"

struct volume_run {
    struct volume_options options;
    struct volume_set data;
    struct unet model;
    ckpt *context;
    ckpt_program *training; /* owned by the context */
    int64_t trainable;      /* number of trained parameters */
    int64_t first;          /* steps of the runs that this one resumes */
    float *image;           /* of a step: [batch][patch] */
    int32_t *label;
    struct run_log log;
};

/* Compiles the training program.  Returns 0, or -1 after an error message. */
int volume_compile(struct volume_run *r);
/* Callbacks of struct trainer, which describes them. */
void volume_describe(const void *run, FILE *f);
int volume_open_steps(void *run, struct training *t);
void volume_close_steps(void *user);

#endif

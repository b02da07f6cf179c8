/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a model that is trained or sampled: the state that the parts share. */
#ifndef VIDEO_RUN_H
#define VIDEO_RUN_H

#include "../common/training.h"
#include "dataset.h"
#include "options.h"

struct video_images;
struct video_validation;
struct video_watch;

struct video_run {
    struct video_options options;
    struct video_data data;
    ckpt *context;
    ckpt_program *training;    /* owned by the context */
    int64_t trainable;         /* number of trained parameters */
    int64_t first;             /* steps of the runs that this one resumes */
    struct video_watch *watch; /* only in training, as is the next */
    struct video_images *images;
    struct video_validation *validation;
    struct run_log log;
};

/* Whether a parameter is the model's: the autoencoder has its own file. */
bool video_owns(void *run, const char *name);
/* Makes the model with its adapters, and loads the weights of both.  Returns 0, or -1 after an
 * error message. */
int video_make_model(struct video_run *r);

/* The adapters of a run. */
struct adapter_run video_adapters(struct video_run *r);

/* ---- training ------------------------------------------------------------------------------ */

/* Compiles the loss on the data of a run, with an optimizer or, NULL, alone; what: begins the error
 * message.  Returns 0, or -1 after an error message. */
int video_compile_loss(struct video_run *r, const ckpt_optimizer *optimizer, const char *what);
/* Compiles the training program, before the first step.  Returns 0, or -1 after an error
 * message. */
int video_compile(struct video_run *r);

/* ---- callbacks of struct trainer, which describes them -------------------------------------- */

void video_describe(const void *run, FILE *f);
int video_open_steps(void *run, struct training *t);
void video_close_steps(void *user);

#endif

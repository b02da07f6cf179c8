/* SPDX-License-Identifier: Apache-2.0 */
/* One run of cogvideo-train: the state that its parts share. */
#ifndef COGVIDEO_RUN_H
#define COGVIDEO_RUN_H

#include "../../common/training.h"
#include "dataset.h"
#include "model.h"
#include "options.h"
#include "schedule.h"

struct cogvideo_images;
struct cogvideo_validation;
struct cogvideo_watch;

struct cogvideo_run {
    struct cogvideo_options options;
    struct cogvideo_data data;
    struct cogvideo model;
    struct cogvideo_schedule schedule;
    ckpt *context;
    ckpt_program *training;       /* owned by the context */
    int64_t trainable;            /* number of trained parameters */
    int64_t first;                /* steps of the runs that this one resumes */
    struct cogvideo_watch *watch; /* only in training, as is the next */
    struct cogvideo_images *images;
    struct cogvideo_validation *validation;
    struct run_log log;
};

/* Makes the model with its adapters, and loads the weights of both.  Returns 0, or -1 after an
 * error message. */
int cogvideo_make_model(struct cogvideo_run *r);

/* ---- adapters ------------------------------------------------------------------------------ */

/* Adds the adapters of the file, or those that the options name, and selects the dtype of the
 * frozen weights.  Returns 0, or -1 after an error message. */
int cogvideo_add_adapters(struct cogvideo_run *r);
/* Loads the adapters from the file.  Returns 0, or -1 after an error message. */
int cogvideo_load_adapters(struct cogvideo_run *r);
/* Stores in the states of this run what its options do not say of the adapters.  Returns 0, or -1
 * after an error message. */
int cogvideo_note_adapters(const struct cogvideo_run *r);
/* Adds the adapters to the weights and writes a whole transformer; all ranks must call it.  Returns
 * 0, or -1 after an error message. */
int cogvideo_merge_adapters(struct cogvideo_run *r, const char *path);

/* ---- training ------------------------------------------------------------------------------ */

/* Compiles the loss on the data of a run, with an optimizer or, NULL, alone; what: begins the error
 * message.  Returns 0, or -1 after an error message. */
int cogvideo_compile_loss(struct cogvideo_run *r, const ckpt_optimizer *optimizer,
                          const char *what);
/* Compiles the training program, before the first step.  Returns 0, or -1 after an error
 * message. */
int cogvideo_compile(struct cogvideo_run *r);

/* ---- callbacks of struct trainer, which describes them -------------------------------------- */

void cogvideo_describe(const void *run, FILE *f);
int cogvideo_open_steps(void *run, struct training *t);
int cogvideo_look_last(void *run, struct training *t);
void cogvideo_close_steps(void *user);

#endif

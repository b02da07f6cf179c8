/* SPDX-License-Identifier: Apache-2.0 */
/* One run of cogvideo-train: what its parts share. */
#ifndef COGVIDEO_RUN_H
#define COGVIDEO_RUN_H

#include "../common/log.h"
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
    int64_t trainable;            /* parameters that are trained */
    int64_t first;                /* steps of the runs that this one goes on with */
    char *note;                   /* of the files of adapters */
    struct cogvideo_watch *watch; /* of a training, as is the next */
    struct cogvideo_images *images;
    struct cogvideo_validation *validation;
    struct run_log log;
};

/* Makes the model with its adapters, and loads the weights of both.  Returns 0, or -1 after a
 * sentence. */
int cogvideo_make_model(struct cogvideo_run *r);

/* ---- adapters ------------------------------------------------------------------------------ */

/* Where PEFT's settings stand in the metadata of a file of adapters, as diffusers reads it. */
#define COGVIDEO_LORA_NOTE "lora_adapter_metadata"

/* Adds adapters to the weights of the options, chooses what those below are kept in, and makes
 * r->note.  Returns 0, or -1 after a
 * sentence. */
int cogvideo_add_adapters(struct cogvideo_run *r);
/* Their values from a file of diffusers or PEFT.  Returns 0, or -1 after a sentence. */
int cogvideo_load_adapters(struct cogvideo_run *r, const char *path);
/* Adds them to the weights and writes these, as those of a whole transformer; a call of all ranks.
 * Returns 0, or -1 after a sentence. */
int cogvideo_merge_adapters(struct cogvideo_run *r, const char *path);

/* ---- training ------------------------------------------------------------------------------ */

/* Compiles the loss on the data of a run, with an optimizer or, NULL, alone; what: begins the
 * sentence.  Returns 0, or -1 after one. */
int cogvideo_compile_loss(struct cogvideo_run *r, const ckpt_optimizer *optimizer,
                          const char *what);
/* Compiles the program that trains, before the first step.  Returns 0, or -1 after a sentence. */
int cogvideo_compile(struct cogvideo_run *r);

/* Runs the steps, logs them, dumps the first and saves at the end.  Returns 0 or -1. */
int cogvideo_train(struct cogvideo_run *r);

/* The log with its first line.  Returns 0, or -1 after a sentence. */
int cogvideo_log_open(struct cogvideo_run *r);

#endif

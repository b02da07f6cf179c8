/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a model that is trained or sampled: the state that the parts share. */
#ifndef VIDEO_RUN_H
#define VIDEO_RUN_H

#include "../common/trainer.h"
#include "dataset.h"
#include "options.h"
#include "step_order.h"

struct stdit;
struct stdit_script;
struct video_images;
struct video_validation;
struct video_watch;

struct video_run {
    struct video_options options;
    struct video_data data;
    ckpt *context;
    ckpt_program *training;    /* of the first shape; owned by the context */
    int64_t trainable;         /* number of trained parameters */
    int64_t first;             /* steps of the runs that this one resumes */
    bool drops;                /* random captions are dropped */
    struct video_order order;  /* of data with videos or buckets */
    struct loader_hold hold;   /* during compilation */
    char *bad;                 /* RESUME_BAD of the resumed state, or NULL */
    struct video_watch *watch; /* only in training, as is the next */
    struct video_images *images;
    struct video_validation *validation;
    struct run_log log;
    /* of STDiT */
    struct stdit *stdit;         /* its parameters, borrowed */
    ckpt_program *sampling;      /* the context's; NULL: not requested */
    bool given;                  /* sampled clips have given frames */
    struct stdit_script *script; /* of stdit-sample, borrowed */
};

/* Whether a parameter is the model's: the autoencoder has its own file. */
bool video_owns(void *run, const char *name);
/* Makes the model with its adapters, and loads the weights of both.  Returns 0, or -1 after an
 * error message. */
int video_make_model(struct video_run *r);

/* The adapters of a run. */
struct adapter_run video_adapters(struct video_run *r);

/* ---- training ------------------------------------------------------------------------------ */

/* Compiles the loss on clips of a shape, with an optimizer or, NULL, alone; what: begins the error
 * message.  Returns 0, or -1 after an error message. */
int video_compile_loss(struct video_run *r, struct video_shape *s, const ckpt_optimizer *optimizer,
                       const char *what);
/* Compiles the training program, before the first step.  Returns 0, or -1 after an error
 * message. */
int video_compile(struct video_run *r);

/* ---- callbacks of struct trainer, which describes them -------------------------------------- */

int video_check_outputs(const void *run);
int video_facts(const void *run, struct ckpt_fact fact[TRAINER_FACTS]);
void video_describe(const void *run, FILE *f);
int video_open_steps(void *run, struct training *t);
void video_close_steps(void *user);

#endif

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
/* Lets states leave out the weights below adapters.  Call it before anything is loaded.  Returns 0,
 * or -1 after an error message. */
int video_leave_base(struct video_run *r);

/* Whether both models of a pair train. */
bool video_is_pair(const struct video_run *r);
/* Its first or its second model. */
const struct video_net *video_net_of(const struct video_run *r, bool second);

/* The adapters of a run. */
struct adapter_run video_adapters(struct video_run *r);

/* ---- training ------------------------------------------------------------------------------ */

/* What the recorder of a model gets. */
struct video_recorded {
    const struct video_run *run;
    const struct video_shape *shape;
    const struct video_net *net;
};

/* The loss of the family's models. */
ckpt_tensor video_record(ckpt_tape *t, int64_t batch, void *recorded);

/* Compiles the loss on clips of a shape, with an optimizer or, NULL, alone; what: begins the error
 * message.  A pair of models has an optimizer and a program each.  Returns 0, or -1 after an error
 * message, as do the next. */
int video_compile_loss(struct video_run *r, struct video_shape *s,
                       ckpt_optimizer *const optimizer[2], const char *what);
/* Compiles the training program of each shape, before the first step, after the batches that a
 * table of buckets leaves open were chosen. */
int video_compile_steps(struct video_run *r, const struct ckpt_adamw *adamw);
/* When all programs fit, weighs the shapes for --balance, opens the order of the steps, and prints
 * the table of buckets, or the plan of the only shape. */
int video_open_order(struct video_run *r);

/* ---- the shapes of the steps (course.c) ------------------------------------------------------ */

enum { VIDEO_FLIGHT = 2 };

/* The clips of the steps in flight, by the remainder of their number; with buckets, the place
 * before each of these selections. */
struct video_course {
    struct video_run *run;
    struct video_selection selection[VIDEO_FLIGHT];
    char *place[VIDEO_FLIGHT];
    int64_t selected; /* steps whose clips are selected */
};

const struct video_selection *video_course_of(const struct video_course *c, int64_t step);
/* Parts of the callbacks of struct training.  Return 0, or -1 after an error message. */
int video_course_select(struct video_course *c, int64_t step);
int video_course_end(struct video_course *c, struct training *t, int64_t step);
int video_course_note(const struct video_course *c, const struct training *t);
void video_course_close(struct video_course *c);

/* ---- callbacks of struct trainer, which describes them -------------------------------------- */

bool video_varies(const void *run);
int video_note(void *run, struct resume_place *place);
int video_resumed(void *run, struct resume_place *place);

int video_check_outputs(const void *run);
int video_facts(const void *run, struct ckpt_fact fact[TRAINER_FACTS]);
void video_describe(const void *run, FILE *f);
int video_open_steps(void *run, struct training *t);
void video_close_steps(void *user);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* One run of pt2-train: the state that its parts share. */
#ifndef PT2_RUN_H
#define PT2_RUN_H

#include "../common/order.h"
#include "../common/say.h"
#include "../common/training.h"
#include "dataset.h"
#include "loss.h"

/* A tensor that a step is fed: an input of the model, or the target of the loss. */
struct pt2_feed {
    const char *name;
    const struct signature_value *in; /* NULL: the target, which is no input */
    bool whole;                       /* i32, else fp32 */
    int ndim;                         /* of a sample */
    int64_t shape[CKPT_MAX_DIMS], values;
    void *batch; /* of a step; NULL between uses */
};

struct pt2_run {
    struct pt2_options options;
    struct signature signature;
    struct loss loss;
    struct dataset data, shared, validation; /* rows 0: none */
    struct sample_order order;
    struct pt2_feed *feed;
    int n_feeds, target; /* target: its number among them; -1: none */
    void **common;       /* per input: the values of a shared one */
    ckpt *context;
    ckpt_import *model;
    ckpt_program *training, *measuring; /* owned by the context; NULL: not needed */
    int64_t trainable, parameters;      /* numbers of values */
    int64_t first;                      /* steps of the runs that this one resumes */
    struct run_log log;
};

/* Reads the archive's inputs and the headers of the data, and settles the batch.  Returns 0, or -1
 * after an error message. */
int pt2_prepare(void *run);

/* Makes the parameters, as the options say which of them are trained and how they are stored.
 * Returns 0, or -1 after an error message. */
int pt2_make_model(void *run);
/* The optimizer with its groups; NULL after an error message. */
ckpt_optimizer *pt2_optimizer(const struct pt2_run *r);
/* Writes what is written at the end alone.  Returns 0, or -1 after an error message. */
int pt2_save(struct pt2_run *r);

/* Compiles the programs.  Returns 0, or -1 after an error message. */
int pt2_compile(void *run, bool trains);
/* Measures the loaded weights.  Returns 0, or -1 after an error message. */
int pt2_measure(struct pt2_run *r, double *loss);
/* Callbacks of struct trainer, which describes them. */
int pt2_open_steps(void *run, struct training *t);
void pt2_close_steps(void *user);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by all programs of the zoo: options, the steps of training and test, the exit status.  A
 * program has a model and draws its data; it describes a run of them as a struct zoo_run or, if the
 * model names classes, as a struct zoo_classifier.
 */
#ifndef ZOO_H
#define ZOO_H

#include "ckpt_tools.h"

/* Parses the options of the program (own, into values; or NULL), of the library, and --dump, and
 * opens a context.  Ends the process with status 2, after a message, if it cannot. */
ckpt *zoo_open(int argc, char **argv, const struct ckpt_option *own, void *values);

/* ---- recording ------------------------------------------------------------------------------- */

/* Makes x an output, and returns it. */
ckpt_tensor zoo_output(ckpt_tape *t, const char *name, ckpt_tensor x);

/* Adds x, a random draw of the recorder, to the dump. */
void zoo_keep(ckpt_tape *t, const char *name, ckpt_tensor x);

/* ---- a run ----------------------------------------------------------------------------------- */

struct zoo_input {
    const char *name;
    const void *data; /* one batch */
};

struct zoo_data {
    void (*draw)(uint64_t step); /* a batch of all inputs, before each step */
    struct zoo_input input[3];   /* up to the first without a name */
};

struct zoo_steps {
    int64_t batch; /* samples a step */
    int steps;
    double lr;          /* decays to 0 along a cosine; 0: the optimizers' own */
    int warmup;         /* steps in which lr rises */
    int tests;          /* of a classifier: batches after those of the training */
    int64_t test_batch; /* of the test program; 0: batch */
};

struct zoo_training {
    ckpt_recorder record;
    ckpt_optimizer *optimizer;
    const struct zoo_data *data; /* NULL: no inputs */
    const char *trained; /* what the names of the trained parameters begin with; NULL: all are */
};

/* Tests a model that has been trained.  Prints a line that begins with "learned", and sets
 * *learned.  Returns 0, or another number after a library error. */
typedef int (*zoo_test)(ckpt_program *p, bool *learned);

struct zoo_run {
    void *model;                     /* passed to recorders */
    struct zoo_training training[2]; /* one, or two that take turns */
    ckpt_recorder record_test; /* without an optimizer; NULL: the test gets the training program */
    zoo_test test;
};

/*
 * Compiles, prints the plans of the training and, unless --plan-only is given, trains and tests.
 * Prints the loss after every fifth of the steps with all digits: a budget must not change it.
 * Closes the context; returns main()'s exit status: 0 if nothing failed and the model has learned.
 */
int zoo_run(ckpt *c, const struct zoo_run *run, const struct zoo_steps *steps);

/* ---- classifiers ----------------------------------------------------------------------------- */

/* A model that names classes, one for each sample or place; the loss is the cross entropy. */
struct zoo_classifier {
    void *model;
    /* Records the inputs but the first, and returns logits [batch, ..., classes]. */
    ckpt_tensor (*forward)(ckpt_tape *t, int64_t batch, bool training, const void *model);
    const struct zoo_data *data; /* the first input: the right classes, i32 [batch, ...] */
    ckpt_optimizer *optimizer;
    /* The end of a zoo_test, from how often the answer to class i was class j, n [i * classes + j].
     * NULL: 90 % of the answers must be right. */
    bool (*judge)(const int64_t *n, int classes);
    zoo_test test; /* NULL: counts answers.  The program has the output "answer". */
};

int zoo_classify(ckpt *c, const struct zoo_classifier *z, const struct zoo_steps *steps);

#endif

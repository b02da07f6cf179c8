/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one order of all trainers: options, outputs, context, ranks, the state to resume, data,
 * model, programs, steps, weights.  Everything that can be refused is refused before the first
 * step.
 */
#ifndef EXAMPLES_TRAINER_H
#define EXAMPLES_TRAINER_H

#include "options.h"
#include "outputs.h"
#include "training.h"

enum { TRAINER_FACTS = 8 };

/*
 * What makes a trainer.  Functions get `run`.  Those that return int return 0, or -1 after an error
 * message, where nothing else is said; NULL: nothing to do.
 */
struct trainer {
    void *run;

    /* ---- members of the run: the options, and what trainer_main sets ---- */
    struct ckpt_options *library;
    struct training_options *train;
    ckpt **context;
    int64_t *first; /* steps of the runs that this one resumes */
    struct run_log *log;

    /* ---- options ---- */
    struct option_reading reading;
    /* Checks the options that were read, and fills in what follows from them. */
    void *options;
    int (*check)(void *options);
    /* Checks the outputs (outputs_check); only the rank that writes does so. */
    int (*outputs)(const void *run);
    /* Runs without a context, before it is opened. */
    int (*before)(void *run);

    /* ---- data and model ---- */
    bool splits; /* its recorder says which axis is the sequence (--sequence) */
    bool widths; /* its wide layers can be split over ranks (--tensor) */
    /* Whether the number of samples differs from step to step; NULL: no.  Then --plan-only, too,
     * searches no plan if everything fits without one. */
    bool (*varies)(const void *run);
    int (*data)(void *run);
    /* What all ranks must have alike, because a step takes samples from all of it.  Returns the
     * number of facts. */
    int (*facts)(const void *run, struct ckpt_fact fact[TRAINER_FACTS]);
    /* Makes the model and loads its weights. */
    int (*model)(void *run);
    void (*introduce)(const void *run);

    /* ---- programs ---- */
    int64_t (*parameters)(const void *run); /* all that are loaded; NULL: the trained ones */
    /* trains: the training program is needed, for steps or for --plan-only. */
    int (*compile)(void *run, bool trains);
    /* Prints the plans, when all programs fit; NULL: prints that of training. */
    int (*fits)(void *run, bool trains);
    ckpt_program *const *program; /* of training: described and profiled; set by compile */

    /* ---- the state to resume ---- */
    const char *counted;    /* what the data consist of: the name of their number in states */
    const int64_t *samples; /* that number */
    /* Adds notes to the states, and names the place, before a state is loaded. */
    int (*notes)(void *run, struct resume_place *place);
    /* Continues at the place of the loaded state. */
    int (*resumed)(void *run, struct resume_place *place);

    /* ---- steps ---- */
    void (*describe)(const void *run, FILE *f); /* the program's fields of the log's first line */
    /* Opens what the steps need, and sets the callbacks, the looks and the user of t. */
    int (*open_steps)(void *run, struct training *t);
    void (*close_steps)(void *user); /* of t; also after a failure, if there is a user */
    const char *measure;             /* what the summary is about; NULL: the loss */
    void (*report)(const void *run);

    /* ---- the end ---- */
    /* Not with --plan-only.  trained: there were steps, and the weights are saved. */
    int (*finish)(void *run, bool trained);
    void (*close)(void *run);
};

/* The members of a run r that trainer_main uses, as initializers. */
#define TRAINER_RUN(r)                                                                             \
    .run = &(r), .options = &(r).options, .library = &(r).options.library,                         \
    .train = &(r).options.train, .context = &(r).context, .first = &(r).first, .log = &(r).log

/* The whole program.  Returns its exit status. */
int trainer_main(const struct trainer *t, int argc, char **argv);

/* Number of elements of all trainable parameters. */
int64_t trainer_count(ckpt *c);

#endif

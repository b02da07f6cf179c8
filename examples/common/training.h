/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop: submits steps, reports on them, saves. */
#ifndef EXAMPLES_TRAINING_H
#define EXAMPLES_TRAINING_H

#include <time.h>
#include "ckpt_files.h"
#include "ckpt_optim.h"
#include "ckpt_tools.h"
#include "log.h"
#include "resume.h"
#include "run_clock.h"
#include "stragglers.h"

/* Mean values over the first and over the last few steps. */
struct training_summary {
    double first, last;
    int64_t n;
};

/*
 * Surrounds the compiles of a run.  If everything fits without recomputation, no other plan is
 * searched, so training starts at once but the smallest possible budget stays unknown.  With
 * --plan-only, whose table shows it, the search is made.  Refusals are gathered until compiled_all.
 * For large models, whose compile takes a while, a message is printed.
 */
struct training_setup {
    bool says;
    time_t start;
};

void training_setup_begin(struct training_setup *s, ckpt *c, int64_t parameters, bool plan_only);
void training_setup_end(const struct training_setup *s);

/* Examines the weights after `step` steps, with no step under way: validates, samples.  Not once a
 * stop was requested.  Returns 0, or -1 after an error message. */
struct training_look {
    int (*look)(void *run, int64_t step); /* NULL: none */
    int64_t every;                        /* steps from one to the next; 0: not between steps */
    bool at_end;                          /* also after the last step */
};
enum { TRAINING_LOOKS = 2 };

struct training {
    ckpt *context;
    const struct training_options *options; /* its steps: of all resumed runs together */
    struct resume_options *grows;           /* theirs, where an elastic job that grows says so */
    int64_t first;                          /* steps done by the runs that this one resumes */
    int64_t ahead;                          /* steps submitted before the oldest is waited for */
    struct run_log *log;
    bool reads;       /* steps wait for input data */
    double data_ms;   /* time that the step just ended waited for data, in ms; set by submit */
    const char *part; /* data bucket of the step just ended; NULL: only one */
    /* The parameters that training_save writes; NULL: all.  Their names in the file
     * (ckpt_save_params_aliased); NULL: their own.  Both get saves_user, which outlives
     * `user`. */
    ckpt_param_filter saves;
    ckpt_param_filter saves_low; /* the same for --save-low, of a pair of models */
    ckpt_name_alias alias;
    void *saves_user;
    /* turn chooses what a step trains on, without reading it; NULL: that follows from its number.
     * feed feeds its data to its program.  end waits for a step: it calls training_end if the loss
     * is the only result, otherwise training_wait, training_ended and training_show.  All return 0,
     * or -1 after an error message. */
    int (*select)(struct training *t, int64_t step);
    int (*feed)(struct training *t, int64_t step);
    /* Returns the program of a step, after `select`; NULL: all steps have `only`. */
    ckpt_program *(*program)(const struct training *t, int64_t step);
    ckpt_program *only;
    int (*end)(struct training *t, int64_t step);
    /* Adds fields to the line of a step in training_end, from its outputs; NULL: none.  Returns 0,
     * or -1 after an error message. */
    int (*fields)(struct training *t, int64_t step);
    struct training_look look[TRAINING_LOOKS]; /* one after the other */
    void *run;                                 /* theirs */
    /* Called before a state is written, with no step under way: stores the trainer's notes in it.
     * All ranks call it; NULL: nothing to store.  Returns 0, or -1 after an error message. */
    int (*notes)(struct training *t);
    /* Writes the weights into options->directory; with a directory only, where they are written to
     * --save, and also after close_steps: it uses saves_user.  All ranks call it.  Returns 0, or -1
     * after an error message. */
    int (*write_directory)(struct training *t);
    void *user;
    /* set by training_run; 0 before */
    struct training_summary summary;
    ckpt_progress *progress;
    int64_t submitted, ended; /* steps */
    int64_t saved, written;   /* step numbers of the last state and weights; -1: none */
    int64_t begun;            /* the step of a state that may not be on the disk yet; -1: none */
    bool broken;              /* a step failed, or a save: what is on the disk stays */
    bool lacks;               /* data of this rank failed: its steps are abandoned */
    bool abandoned; /* a step was, as data of a rank failed: all ranks are after the step before */
    double last;    /* time in seconds from which the next step is measured */
    struct run_clock clock;
    struct stragglers stragglers; /* of rank 0 */
    double ms, waited_ms;         /* totals of all steps: duration, and waiting for data */
};

/* Refuses outputs that do not fit on their disks, by rank 0.  Returns 0, or -1 after an error
 * message. */
int training_fits(const struct training *t);

/* Runs the steps until all are done, one fails, or a signal (signals.h) or the clock requests a
 * stop.  Writes state and weights when they are due, or when a signal or the clock requests it; at
 * the end the state alone, also if no step failed but its data, a look or a save.  Returns 0, or -1
 * after an error message. */
int training_run(struct training *t);

/* The looks after the last step, if there was one and nobody asked to stop. */
int training_look_last(struct training *t);

/* Whether a look should end early because a stop was requested.  With several ranks always false:
 * all ranks learn of a stop only after the next step. */
bool training_is_stopped(const ckpt *c);

/* The learning rate of a step. */
double training_rate(const struct training *t, int64_t step);

/* For end: ckpt_wait, whose result it returns; sets abandoned. */
int training_wait(struct training *t, ckpt_program *p, float *loss);
/* For end: waits for a step of p, writes its log line, updates the summary and shows the loss.
 * tokens: number over all ranks, for the log; 0: not logged. */
int training_end(struct training *t, ckpt_program *p, int64_t step, int64_t tokens);
/* For end: milliseconds from the end of the previous step, or the start of the run, to the end of
 * the step of p just waited for, without looks and saves.  Adds them and data_ms to the totals. */
double training_lap(struct training *t, const ckpt_program *p);
/* For end: the oldest step succeeded; `value` enters the summary. */
void training_ended(struct training *t, double value);
/* For end, after training_ended: updates the progress line with this value and the arena bytes of
 * p, which ran the step; after the first step writes what --dump requests.  Returns 0, or -1 after
 * an error message. */
int training_show(struct training *t, ckpt_program *p, int64_t step, double shown, float loss);

/* Prints a summary of the run; `what` names the summarized value, p the program to profile. */
void training_report(const struct training *t, const char *what, const ckpt_program *p);

/* Writes the weights and their moving average, each to its path in the options.  rc is the result
 * of training_run: after a failure the weights of the last good step are saved anyway, unless this
 * run made none.  Returns rc, or -1 after an error message. */
int training_save(struct training *t, int rc);

#endif

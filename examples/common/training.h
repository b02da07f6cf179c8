/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a training run: steps under way, what is said of them, what is saved. */
#ifndef EXAMPLES_TRAINING_H
#define EXAMPLES_TRAINING_H

#include <time.h>
#include "ckpt_files.h"
#include "ckpt_optim.h"
#include "ckpt_tools.h"
#include "log.h"
#include "resume.h"
#include "run_clock.h"

/* The mean of what was counted over the first and over the last few steps. */
struct training_summary {
    double first, last;
    int64_t n;
};

/*
 * Around the compiles of a run.  A run that fits with everything kept searches for no other plan,
 * so it starts at once and does not know the smallest possible budget; with --plan-only, whose
 * table names it, the search is made.  Of a model so large that compiling takes a while something
 * is said.
 */
struct training_setup {
    bool says;
    time_t start;
};

void training_setup_begin(struct training_setup *s, ckpt *c, int64_t parameters, bool plan_only);
void training_setup_end(const struct training_setup *s);

struct training {
    ckpt *context;
    const struct training_options *options; /* steps are those of all runs together */
    int64_t first;                          /* steps of the runs that this one goes on with */
    int64_t ahead; /* steps that are handed over before the oldest is waited for */
    struct run_log *log;
    bool reads;       /* steps wait for data that is read */
    double data_ms;   /* that the step which ends waited for it: set by submit */
    const char *part; /* of the data, that the step which ends took; NULL: there is but one */
    /* A line of the metadata of weights that are saved (ckpt_save_params_noted); NULL: none. */
    const char *note_key, *note;
    /* Feeds a step and hands it over; waits for one: training_end where the loss is all there is to
     * it, else training_ended and training_show.  Both return 0, or -1 after a sentence. */
    int (*submit)(struct training *t, int64_t step);
    int (*end)(struct training *t, int64_t step);
    /* Looks at the weights behind `step` steps, between two of them, none under way; behind the
     * last one the trainer does.  Where looks says so; NULL: it never does.  Returns 0, or -1 after
     * a sentence. */
    bool (*looks)(const struct training *t, int64_t step);
    int (*look)(struct training *t, int64_t step);
    /* Before a state is written, no step under way: notes what it has beside the parameters.  A
     * call of all ranks; NULL: nothing.  Returns 0, or -1 after a sentence. */
    int (*notes)(struct training *t);
    void *user;
    /* of training_run: all 0 before */
    struct training_summary summary;
    ckpt_progress *progress;
    int64_t submitted, ended; /* steps */
    int64_t saved;            /* steps in the state that was written last; -1: none was */
    double last; /* when the last one ended, or what is none of the next one's time: seconds */
    struct run_clock clock;
    double ms, waited_ms; /* of all steps: in all, and for data */
};

/* Runs the steps until there are enough, one fails, or a signal (signals.h) or the clock says
 * stop; writes the state where it is due, or a signal or the clock asks for it.  Returns 0, or -1
 * after a sentence. */
int training_run(struct training *t);

/* Whether what comes every so many steps (0: never) is due behind `step` of them. */
bool training_is_due(int64_t every, int64_t step);

/* Whether a look ends early, for the run was asked to stop.  Of several ranks all know that behind
 * the next step only, and go on until then. */
bool training_is_stopped(const ckpt *c);

/* The learning rate of a step. */
double training_rate(const struct training *t, int64_t step);

/* For end: waits for a step of p, writes its line of the log, sums up and shows its loss.  tokens:
 * of all ranks, for the log; 0: it says none. */
int training_end(struct training *t, ckpt_program *p, int64_t step, int64_t tokens);
/* For end: milliseconds from the end of the step before, or the begin of the run, to that of the
 * step of p that was waited for, but for looks and saves between them; counts them, and data_ms,
 * for the report. */
double training_lap(struct training *t, const ckpt_program *p);
/* For end: the oldest step has ended well, with a value to sum up. */
void training_ended(struct training *t, double value);
/* For end, behind that: the progress line with this value and the bytes of the arena of p, whose
 * step it was; and of the first step what `dump` asks for.  Returns 0, or -1 after a sentence. */
int training_show(struct training *t, ckpt_program *p, int64_t step, double shown, float loss);

/* Prints how it went: what the summary is about, and what p took. */
void training_report(const struct training *t, const char *what, const ckpt_program *p);

/* Writes the weights and their moving average, each where the options say, of the parameters that
 * choose (NULL: all) takes.  rc is that of training_run: after a failed step the weights are those
 * of the last good one, and saved all the same.  Returns rc, or -1 after a sentence. */
int training_save(const struct training *t, int rc, ckpt_param_filter choose);

#endif

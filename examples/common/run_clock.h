/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a run saves and ends by the clock: --time-limit and --save-every with a time.  Times are
 * seconds; `now` is what run_clock_now returned.
 */
#ifndef EXAMPLES_RUN_CLOCK_H
#define EXAMPLES_RUN_CLOCK_H

#include <stdbool.h>

struct run_clock {
    double limit; /* the run must have ended by then; 0: there is no limit */
    double every; /* between two saves; 0: not by the clock */
    bool saves;   /* there is a state to write */
    double begun; /* the program, of which the limit is */
    /* of the steps; 0 before */
    double saved;     /* when the last save ended, or the first step began */
    double save;      /* the longest save; 0: none was timed */
    double look;      /* the longest look at the weights between two steps; 0: there was none */
    double step;      /* the longest step but for the first one, while there is another */
    long long timed;  /* steps */
    bool asked, over; /* for a save that has not come yet; to end */
};

double run_clock_now(void);

/* Before the first step. */
void run_clock_start(struct run_clock *k, double now);

/* A step, a look or a save began then and has ended now. */
void run_clock_step(struct run_clock *k, double from, double now);
void run_clock_look(struct run_clock *k, double from, double now);
void run_clock_save(struct run_clock *k, double from, double now);

/* Whether to end, of which it says yes once: when there is no time for `ahead` more steps, a look
 * and the saves at the end. */
bool run_clock_ends(struct run_clock *k, double now, int ahead);

/* Whether to save, of which it says yes once until run_clock_save: when it is time, or to learn how
 * long a save takes before half of the limit is over. */
bool run_clock_saves(struct run_clock *k, double now);

#endif

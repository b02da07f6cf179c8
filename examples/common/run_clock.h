/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides by the clock when a run saves and ends: --time-limit, and --save-every with a time.
 * Times are in seconds; `now` is a result of run_clock_now.
 */
#ifndef EXAMPLES_RUN_CLOCK_H
#define EXAMPLES_RUN_CLOCK_H

#include <stdbool.h>

struct run_clock {
    double limit; /* the run must end within this time; 0: no limit */
    double every; /* time between two saves; 0: no timed saves */
    bool saves;   /* the run writes states */
    double begun; /* start of the program; the limit counts from here */
    /* measured; 0 before */
    double saved;     /* end of the last save, or start of the first step */
    double save;      /* longest save; 0: none yet */
    double look;      /* longest look at the weights between two steps; 0: none yet */
    double step;      /* longest step; excludes the first one as soon as there is another */
    long long timed;  /* number of timed steps */
    bool asked, over; /* asked: a save was requested and has not been made; over: the run ends */
};

double run_clock_now(void);

/* Call it before the first step. */
void run_clock_start(struct run_clock *k, double now);

/* Reports a step, a look or a save that lasted from `from` to `now`. */
void run_clock_step(struct run_clock *k, double from, double now);
void run_clock_look(struct run_clock *k, double from, double now);
void run_clock_save(struct run_clock *k, double from, double now);

/* Whether to end: true once, when no time is left for `ahead` more steps, a look and the saves at
 * the end. */
bool run_clock_ends(struct run_clock *k, double now, int ahead);

/* Whether to save: true once until run_clock_save, when a save is due, or to measure the time of a
 * save before half of the limit has passed. */
bool run_clock_saves(struct run_clock *k, double now);

#endif

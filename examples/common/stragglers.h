/* SPDX-License-Identifier: Apache-2.0 */
/* Finds ranks that compute longer than the others, which wait for them in every step. */
#ifndef EXAMPLES_STRAGGLERS_H
#define EXAMPLES_STRAGGLERS_H

#include "ckpt_dist.h"

/* A rank is slow after this many steps in which it took so many times the median of all ranks: one
 * slow step, as beside another program, is none. */
#define STRAGGLER_TIMES 1.2
enum { STRAGGLER_STEPS = 8 };

struct stragglers {
    int ranks; /* 0: not watched */
    int steps; /* since the last numbers */
    double *seconds, *sorted;
    struct slow_rank {
        int64_t steps; /* in a row */
        bool named;    /* until it is as fast as the others */
    } * slow;
};

/* Watches two or more ranks.  Returns 0, or -1 after an error message. */
int stragglers_open(struct stragglers *s, int ranks);
void stragglers_close(struct stragglers *s);

/* Call it after each step.  Once every rank has told its time again, names those that became slow,
 * a line each, and returns the seconds of all ranks; else NULL. */
const double *stragglers_look(struct stragglers *s, ckpt *c);

/* Judges s->seconds; marks the slow ranks as named.  Returns the median: of an even number the
 * lower of the two in the middle, so that of two ranks one can be slow. */
double stragglers_judge(struct stragglers *s, void (*name)(void *user, int rank, double median),
                        void *user);

#endif

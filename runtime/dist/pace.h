/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long each rank computes in a step.  All ranks end a step together, so a slow one shows only
 * in how little it waits: a device adds up how long its kernels wait for collectives, and the rest
 * of its steps is its own time.  With each update one rank in turn tells all others its mean since
 * its last turn, in the number of a request that is nearly always 0: no call and no wait more.
 */
#ifndef CKPT_PACE_H
#define CKPT_PACE_H

#include "core/base.h"

struct pace {
    int64_t *waited; /* nanoseconds of waits so far, by kernel_stopwatch */
    int64_t here[2]; /* what it points to unless a device needs memory of its own */
    int64_t seen;    /* *waited at the last turn of this rank */
    double busy;     /* seconds of the steps since then, with waits */
    int64_t steps;   /* their number */
    double ended;    /* when the last one ended */
    double *seconds; /* of each rank, 0 if not known yet; NULL: a single rank */
    int ranks, rank;
};

/* Returns 0 or CKPT_ENOMEM. */
int pace_open(struct pace *w, int ranks, int rank);
void pace_close(struct pace *w);

/* A step has ended.  Time between the end of one and the submission of the next does not count. */
void pace_step(struct pace *w, double submitted, double ended);

/* What this rank sends with this update: seconds, or 0 if it has no turn or nothing to tell. */
float pace_send(struct pace *w, int64_t update);
/* The sum of what all ranks sent with it. */
void pace_receive(struct pace *w, int64_t update, float seconds);

#endif

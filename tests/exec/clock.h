/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that runs nothing and knows when everything would have ended: the queues of a step as
 * the executor hands them over, with the times that the planner goes by.  So what a change from one
 * program to another costs is a number that follows from plans and instructions alone.
 */
#ifndef CKPT_TESTS_CLOCK_H
#define CKPT_TESTS_CLOCK_H

#include "exec/program.h"

/* Who the compute queue waited for. */
enum clock_wait { CLOCK_OWN, CLOCK_OTHER, CLOCK_JOINT, CLOCK_WAITS };

struct clock {
    struct device d; /* the first member: the executor sees this */
    struct programs *ps;
    struct device *real;           /* what the programs have else */
    const struct ckpt_program *at; /* whose step is handed over, or recorded */
    double now[QUEUE_COUNT];       /* when a queue has done what it has so far */
    double waited[CLOCK_WAITS];    /* seconds that the compute queue was held up, since the start */
    struct {
        double *data; /* when an event was last recorded */
        int64_t capacity;
    } events;
    struct device_step *recording; /* or NULL */
};

/* Puts the clock in the place of the device of these programs, which are only planned, and has
 * their instructions made and recorded; end gives the device back.  Returns 0 or CKPT_ENOMEM. */
int clock_begin(struct clock *k, struct programs *ps);
void clock_end(struct clock *k);

/* Submits a step.  Returns when its last kernel has ended. */
double clock_step(struct clock *k, struct ckpt_program *p);

#endif

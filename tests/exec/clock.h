/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated device: it runs nothing and computes when each command would end, from the queues
 * that the executor fills and the planner's times.  So the cost of switching programs is a number
 * that depends only on plans and instructions.
 */
#ifndef CKPT_TESTS_CLOCK_H
#define CKPT_TESTS_CLOCK_H

#include "exec/program.h"

/* The program whose command delayed the compute queue. */
enum clock_wait { CLOCK_OWN, CLOCK_OTHER, CLOCK_JOINT, CLOCK_WAITS };

struct clock {
    struct device d; /* the first member: the executor sees this */
    struct programs *ps;
    struct device *real;           /* the programs' own device */
    const struct ckpt_program *at; /* whose step is being submitted or recorded */
    double now[QUEUE_COUNT];       /* when each queue finishes its commands so far */
    double waited[CLOCK_WAITS];    /* total seconds that the compute queue was delayed */
    struct {
        double *data; /* when each event was last recorded */
        int64_t capacity;
    } events;
    struct device_step *recording; /* or NULL */
};

/* Replaces the device of these programs, which are only planned, by the clock, and makes and
 * records their instructions; clock_end restores the device.  Returns 0 or CKPT_ENOMEM. */
int clock_begin(struct clock *k, struct programs *ps);
void clock_end(struct clock *k);

/* Submits a step.  Returns the time when its last kernel ends. */
double clock_step(struct clock *k, struct ckpt_program *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions of a step, handed over to the queues of the device in the order of the list: to
 * be run, or between its begin and end to be recorded.  A failure is the device's to keep.
 */
#ifndef CKPT_ENQUEUE_H
#define CKPT_ENQUEUE_H

#include "exec/program.h"

/* Which step under way, and which of its micro-steps; in the tail 0. */
struct moment {
    int flight;
    int32_t micro;
};

void enqueue_instr(struct ckpt_program *p, const struct instr *i, struct moment at);

/* Before the first kernel of a step: the device gets its copy of what kernels see of the step. */
void enqueue_run(struct ckpt_program *p, int flight);

/* A whole step, and of it the tail. */
void enqueue_step(struct ckpt_program *p, int flight);
void enqueue_tail(struct ckpt_program *p, int flight);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Submits the instructions of a step to the queues of the device, in the order of the list: to be
 * run, or between the device's begin and end to be recorded.  The device keeps any failure.
 */
#ifndef CKPT_ENQUEUE_H
#define CKPT_ENQUEUE_H

#include "exec/program.h"

/* In-flight slot and micro-step of an instruction; micro is 0 in the tail. */
struct moment {
    int slot;
    int32_t micro;
};

void enqueue_instr(struct ckpt_program *p, const struct instr *i, struct moment at);

/* Before the first kernel of a step: copies the struct ckpt_run of the slot to the device, and that
 * of the step before if updates are deferred. */
void enqueue_run(struct ckpt_program *p, int slot);

/* Submits a whole step; submits only its tail. */
void enqueue_step(struct ckpt_program *p, int slot);
void enqueue_tail(struct ckpt_program *p, int slot);

#endif

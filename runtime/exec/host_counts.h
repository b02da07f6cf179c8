/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counts that the means of a step divide by (ops/means.c), computed by the host from the bytes
 * that were fed, before the step is submitted.
 */
#ifndef CKPT_HOST_COUNTS_H
#define CKPT_HOST_COUNTS_H

#include "exec/program.h"

/* Sets p->counts; NULL if the tape has no such counts.  Returns 0 or CKPT_ENOMEM. */
int host_counts_new(struct ckpt_program *p);
void host_counts_free(struct host_counts *h);

/* Writes the mean of each count over the micro-steps to its input of the step in this in-flight
 * slot, whose inputs and runs are complete.  Returns 0, or the code of a kernel that failed. */
int host_counts_run(struct ckpt_program *p, int slot);

#endif

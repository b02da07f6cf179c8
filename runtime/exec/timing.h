/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of ops as they are met in training: kernels are timed where they run, on the compute queue,
 * so that nothing else of a step changes.  The medians go to a machine file under the cost keys of
 * the graph.
 */
#ifndef CKPT_TIMING_H
#define CKPT_TIMING_H

#include "exec/program.h"

struct timing;

/* Returns 0 or CKPT_ENOMEM. */
int timing_new(struct timing **t, const struct ckpt_program *p);
void timing_free(struct timing *t);

/* Where the device puts the time of the next run of a tape op; NULL: enough was seen of it. */
double *timing_slot(struct timing *t, int32_t op);

/* The median seconds of a tape op; 0 if it was not seen. */
double timing_median(const struct timing *t, int32_t op);

/* After the device is idle: writes the machine of the context with the times so far, on steps 1, 2,
 * 4, 8 and 16; later ones change nothing.  Returns 0 or a code, the sentence in the
 * context. */
int timing_step(const struct timing *t, const struct ckpt_program *p);

#endif

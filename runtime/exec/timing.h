/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of ops as they are met in training: kernels are timed where they run, on the compute queue,
 * so that nothing else of a step changes.  The medians go to a machine file under the cost keys of
 * the graph.  Of some steps it is also kept when everything began and ended, for a trace.
 */
#ifndef CKPT_TIMING_H
#define CKPT_TIMING_H

#include "exec/program.h"

struct timing;

/* Returns 0 or CKPT_ENOMEM. */
int timing_new(struct timing **t, const struct ckpt_program *p);
void timing_free(struct timing *t);

/* Before a step is handed over: whether it will be traced. */
void timing_begin_step(struct ckpt_program *p);
/* Before and behind an instruction of micro-step `micro`: has its queue note the time, if the step
 * is traced. */
void timing_stamp(struct ckpt_program *p, const struct instr *i, int32_t micro, bool end);

/* Where the device puts the time of a kernel that is handed over; NULL: nobody wants it. */
double *timing_slot(struct ckpt_program *p, const struct instr *i, int32_t micro);

/* The plan of its program is another one now: the step that was traced is none of it. */
void timing_forget(struct timing *t);

/* The median seconds of a tape op; 0 if it was not seen. */
double timing_median(const struct timing *t, int32_t op);

/* After the device is idle: writes the machine of the context with the times so far, on steps 1, 2,
 * 4, 8 and 16, and the trace of a step; later ones change nothing.  Returns 0 or a code, the
 * sentence in the context. */
int timing_step(struct timing *t, const struct ckpt_program *p);

#endif

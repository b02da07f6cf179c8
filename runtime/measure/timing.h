/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of ops as they run in training: each kernel is timed on the compute queue, so that nothing
 * else of a step changes.  The medians go to a machine file under the cost keys of the graph.  For
 * some steps the begin and end of every instruction are kept as well, for a trace.
 */
#ifndef CKPT_TIMING_H
#define CKPT_TIMING_H

#include "exec/program.h"

struct timing;

/* Returns 0 or CKPT_ENOMEM. */
int timing_new(struct timing **t, const struct ckpt_program *p);
void timing_free(struct timing *t);

/* Before a step is submitted: decides whether it is traced. */
void timing_begin_step(struct ckpt_program *p);
/* Before and after an instruction of micro-step `micro`: has its queue record the time, if the step
 * is traced. */
void timing_stamp(struct ckpt_program *p, const struct instr *i, int32_t micro, bool end);

/* Where the device stores the seconds of a kernel that is submitted now; NULL: not timed. */
double *timing_slot(struct ckpt_program *p, const struct instr *i, int32_t micro);

/* Drops the traced step: the program has another plan now. */
void timing_forget(struct timing *t);

/* The median seconds of a tape op; 0 if it was never timed. */
double timing_median(const struct timing *t, int32_t op);

/* After the device is idle: writes the context's machine with the times so far, after steps 1, 2,
 * 4, 8 and 16, and the trace of a step; later steps write nothing.  Returns 0 or a code, the
 * sentence in the context. */
int timing_step(struct timing *t, const struct ckpt_program *p);

#endif

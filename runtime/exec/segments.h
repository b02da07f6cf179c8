/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that the device has recorded, to be submitted in one call.  A step without offloads is
 * recorded whole, once per in-flight slot.  Of a step with offloads only the kernels are recorded,
 * in segments from one wait to the next: recorded whole it would not overlap with the copies of the
 * step before.  If there are many micro-steps, only as many are recorded as fit in a fixed number
 * of device bytes; the others are submitted instruction by instruction.
 */
#ifndef CKPT_RECORD_H
#define CKPT_RECORD_H

#include "exec/program.h"

/* Whether an instruction belongs to another queue than the segments' compute queue; such
 * instructions are submitted after the segment they stand in. */
static inline bool instr_is_other_queue(const struct instr *i)
{
    return i->queue != QUEUE_COMPUTE;
}

/* The end of segment `next` if it begins at instruction `first`; otherwise returns first. */
int32_t segment_end(const struct ckpt_program *p, int32_t first, int32_t next);

/* Submits segment n; the caller submits the instructions of other queues inside its range. */
void segment_replay(struct ckpt_program *p, int32_t n);

#endif

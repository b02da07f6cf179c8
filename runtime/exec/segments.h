/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that the device has recorded, to be handed over in one call.  A step without offloads is
 * recorded whole, once for each of those that may be under way.  Of one with offloads only the
 * kernels are, in segments from one wait to the next: recorded whole it would not overlap with the
 * copies of the step before.  Of many micro-steps only as many are recorded as a fixed room on the
 * device takes; the others are handed over command by command.
 */
#ifndef CKPT_RECORD_H
#define CKPT_RECORD_H

#include "exec/program.h"

/* Other queues go on beside a segment; what they do is handed over behind it. */
static inline bool instr_is_beside(const struct instr *i)
{
    return i->queue != QUEUE_COMPUTE;
}

/* The end of the segment that begins at this instruction, if that is the next one of the step; or
 * first where there is none. */
int32_t segment_end(const struct ckpt_program *p, int32_t first, int32_t next);

/* Hands over a segment; of its instructions those beside it are left to the caller. */
void segment_replay(struct ckpt_program *p, int32_t n);

#endif

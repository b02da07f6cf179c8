/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handover between programs: which waits a step needs when the step before was another program's.
 *
 * Waits within a program are part of its instructions.  Between two steps that copy to tiers the
 * rule is the same (hazards.h): the first access to a range in this step waits for the last
 * accesses of the step before.  So copies and host updates of a step may continue under the next
 * step, even if that belongs to another program.  Work of still earlier steps has ended by then:
 * all queues wait for the point where the step before began.
 *
 * If one of the two steps is recorded as a whole, and for the queues that are host threads, every
 * queue waits for every other one, except for the host updates.
 */
#ifndef CKPT_HANDOVER_H
#define CKPT_HANDOVER_H

#include "exec/hazards.h"

struct handover;

/* Keeps the edges of a program that was lowered; at[i] is the instruction of command i.  Returns 0
 * or CKPT_ENOMEM. */
int handover_new(struct ckpt_program *p, const struct commands *c, const struct hazards *h,
                 const int32_t *at);
void handover_free(struct handover *t);

/* Call before a step; before instruction i is submitted; before the kernels of [i, end) are. */
void handover_begin(struct ckpt_program *p);
void handover_wait(struct ckpt_program *p, int32_t i);
void handover_wait_kernels(struct ckpt_program *p, int32_t i, int32_t end);

#endif

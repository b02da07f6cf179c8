/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs in turn: what a step waits for when the one before was another program's.
 *
 * Hazards within a program are in its instructions.  Between two steps that copy to tiers the rule
 * is the same (hazards.h): what touches a range first in the step at hand waits for what the one
 * before left there.  So copies of a step, and updates on the host, go on under the next one, whose
 * program it may be.  What was left by steps before that one has ended by then: all queues wait for
 * where it began.
 *
 * Where one of the two is recorded as a whole, and for the queues that are threads of the host,
 * all wait for all, but for the updates on the host.
 */
#ifndef CKPT_TURNS_H
#define CKPT_TURNS_H

#include "exec/hazards.h"

struct turns;

/* Keeps the edges of a program that was lowered: command i became instruction at[i].  Returns 0 or
 * CKPT_ENOMEM. */
int turns_make(struct ckpt_program *p, const struct commands *c, const struct hazards *h,
               const int32_t *at);
void turns_free(struct turns *t);

/* In front of a step; and before instruction i of it is handed over, or the kernels of [i, end). */
void turns_begin(struct ckpt_program *p);
void turns_wait(struct ckpt_program *p, int32_t i);
void turns_wait_kernels(struct ckpt_program *p, int32_t i, int32_t end);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs in turn: what a step waits for when the one before was another program's.
 *
 * Hazards are known within a program.  Between two of them all queues wait for all, but for that of
 * the host: its updates may go on under the step of the next program, whose copies wait for those
 * of what they bring.  An update touches its state and value, where they live in the host tier, and
 * the clip values; these lie before all else that a plan has there.
 */
#ifndef CKPT_TURNS_H
#define CKPT_TURNS_H

#include "exec/program.h"

/* Lists the updates on the host of a program that was lowered.  Returns 0 or CKPT_ENOMEM. */
int turns_find(struct ckpt_program *p);

/* Around the instructions of a step: what it waits for as a whole, what the copy at hand waits for
 * in front of it, and what others are to wait for. */
void turns_begin(struct ckpt_program *p);
void turns_wait(struct ckpt_program *p, const struct instr *i);
void turns_end(struct ckpt_program *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Recorders of several ops, for rules, passes and the update: sums, buffers, counts, gradients. */
#ifndef CKPT_OPS_RECORDERS_H
#define CKPT_OPS_RECORDERS_H

#include "tape/tape.h"

/* What a tape calls of this room. */
extern const struct tape_calls ops_calls;

/* Buffers (buffers.c).  Does ckpt_update_buffer for n <= AVERAGE_PAIRS buffers by one op. */
void tape_update_buffers(ckpt_tape *t, int n, const ckpt_tensor *buffer, const ckpt_tensor *value,
                         float momentum);
/* Records the updates of buffers that happen once per step, in the update. */
void tape_update_once(ckpt_tape *t);
/* Records sum += g in place, as often as mode says, and returns the sum. */
ckpt_tensor tape_accumulate(ckpt_tape *t, ckpt_tensor sum, ckpt_tensor g, enum accumulate mode);

/* Whether a step is the mean over several parts: micro-steps, or ranks that train. */
bool tape_has_parts(const ckpt_tape *t);
/* Whether the host can compute x: it follows from inputs and constants alone. */
bool tape_can_count(ckpt_tape *t, int32_t x);
/* The tape on which a count is to be recorded that follows from the n tensors of x, which become
 * tensors of that tape: t, or the tape of the counts.  what: the mean, for the note. */
ckpt_tape *tape_count_on(ckpt_tape *t, const char *what, int n, ckpt_tensor *x);
/* The mean, over the micro-steps of a step and the ranks that train, of a count (fp32, ndim 0) that
 * was recorded on that tape. */
ckpt_tensor tape_mean_count(ckpt_tape *t, const ckpt_tape *on, ckpt_tensor count);

/* Sets dx to the gradients of x[0] to x[n - 1] through the ops from first_op on, with dy the
 * gradients of y; for rules of ops that are gradients (ops/decompose.h).  These ops do not make
 * x, and no two x are one tensor.  dx[i] is CKPT_NONE if no y depends on x[i].  Returns 0 or the
 * tape's error. */
int tape_pull(ckpt_tape *t, int32_t first_op, int ny, const ckpt_tensor *y, const ckpt_tensor *dy,
              int n, const ckpt_tensor *x, ckpt_tensor *dx);

#endif

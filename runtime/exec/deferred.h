/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deferred updates (struct plan_step): a step leaves them to the body of the next one, on the
 * device for the values and on the host for the state.
 *
 * Between two steps of such a program its updates are pending: value ranges on the device hold
 * gradients, and the clip values are there for both.  What reads or writes parameters, and the step
 * of another program, needs them done: programs_run_pending runs them on the host, on the ranges of
 * the repeated updates, and copies the values to the device.
 *
 * A step of the program without pending updates finds clip values that are NaN.  Then updates
 * change nothing but round the values from the masters, which they are already.
 */
#ifndef CKPT_DEFERRED_H
#define CKPT_DEFERRED_H

#include "exec/program.h"

/* Before a step of p is submitted, and its runs set.  Returns 0 or a code, with the sentence. */
int deferred_begin(struct ckpt_program *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* --dump: loss, prediction and gradients of a step, for comparison with another implementation. */
#ifndef EXAMPLES_DUMP_H
#define EXAMPLES_DUMP_H

#include "ckpt.h"

/* Records what a dump holds: the prediction and the gradient of every parameter that is trained. */
void dump_record(ckpt *c, ckpt_tape *t, ckpt_tensor pred);

/* Writes loss, pred and grad.<name> of the step that p just ran.  Returns 0, or -1 after a
 * sentence.
 */
int dump_step(ckpt *c, ckpt_program *p, const char *path, float loss);

/* After a run of so many steps: without any nothing was written.  path may be NULL.  Returns 0, or
 * -1 after a sentence. */
int dump_check(const char *path, int64_t steps);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* --dump: loss, prediction and gradients of a step, for comparison with another implementation. */
#ifndef EXAMPLES_DUMP_H
#define EXAMPLES_DUMP_H

#include "ckpt.h"

/* Records the outputs of a dump: the prediction and the gradient of every trained parameter. */
void dump_record(ckpt *c, ckpt_tape *t, ckpt_tensor pred);

/* Writes loss, pred and grad.<name> of the step that p just ran.  Returns 0, or -1 after an error
 * message. */
int dump_step(ckpt *c, ckpt_program *p, const char *path, float loss);

/* Checks after a run of `steps` steps that a dump was written: without steps there is none.  path
 * may be NULL.  Returns 0, or -1 after an error message. */
int dump_check(const char *path, int64_t steps);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The dtype of weights and activations where --dtype is not given. */
#ifndef EXAMPLES_DTYPE_H
#define EXAMPLES_DTYPE_H

#include "resume.h"

enum { DTYPE_NOTE = 1024 };

/*
 * Checks *dtype, the argument of --dtype.  NULL becomes that of the run whose state is resumed,
 * else that of most values of the weights (bf16 for 16 bits and fewer), else fp32.  state and
 * weights: NULL if there are none; a file that cannot be read has no say, and is reported by those
 * who load it.  note, for say_note: where bf16 comes from, or that fp16 weights are rounded; "" if
 * there is nothing to say.  Returns 0, or -1 after an error message.
 */
int dtype_select(const char **dtype, const struct resume_options *state, const char *weights,
                 char note[DTYPE_NOTE]);

/* The same for a program that trains nothing: also prints the note. */
int dtype_select_for(const char **dtype, const char *weights);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of an op's gradient rule.  Who goes backward over the ops opens one, says which inputs
 * need a gradient and what the outputs' gradients are, and takes what the rule recorded.
 */
#ifndef CKPT_TAPE_RULE_H
#define CKPT_TAPE_RULE_H

#include "tape/tape.h"

struct rule {
    const struct op *op;     /* the caller's copy: the array of ops grows under the rule */
    ckpt_tensor *in, *out;   /* filled when it is opened */
    ckpt_tensor *dout, *din; /* n_out, n_in of them; all absent at first */
    bool *need, *want_bf16;  /* n_in of them; all false at first */
};

/* what: what there is no memory for.  Returns the tape's error; close it also then. */
int rule_open(struct rule *r, ckpt_tape *t, const struct op *o, const char *what);

/* Records the rule's ops, or nothing where no output has a gradient.  Then din are tensors of the
 * tape.  Returns the tape's error. */
int rule_call(struct rule *r, ckpt_tape *t);

void rule_close(struct rule *r);

#endif

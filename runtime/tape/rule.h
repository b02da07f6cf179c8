/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of an op's gradient rule.  The caller goes over the ops in reverse, opens a rule for
 * each, says which inputs need a gradient, gives the gradients of the outputs, and uses the
 * gradients of the inputs that the rule recorded.
 */
#ifndef CKPT_TAPE_RULE_H
#define CKPT_TAPE_RULE_H

#include "tape/tape.h"

struct rule {
    const struct op *op;     /* the caller's copy: the rule appends ops, which moves the array */
    ckpt_tensor *in, *out;   /* set by rule_open */
    ckpt_tensor *dout, *din; /* n_out, n_in elements; at first all absent */
    bool *need, *want_bf16;  /* n_in elements; at first all false */
};

/* what: purpose of the memory, for the error.  Returns the tape's error; close it also then. */
int rule_open(struct rule *r, ckpt_tape *t, const struct op *o, const char *what);

/* Records the rule's ops, or nothing if no output has a gradient; then din are tensors of the tape.
 * Returns the tape's error. */
int rule_call(struct rule *r, ckpt_tape *t);

void rule_close(struct rule *r);

/* Whether g, returned by a gradient rule, can be the gradient of tensor x.  Returns 0 or the tape's
 * error. */
int tape_check_gradient(ckpt_tape *t, int32_t x, ckpt_tensor g);

#endif

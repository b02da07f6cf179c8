/* SPDX-License-Identifier: Apache-2.0 */
/* Several programs become one: shared by fusion and pairs. */
#ifndef CKPT_PASSES_MERGE_H
#define CKPT_PASSES_MERGE_H

#include "expr/expr.h"
#include "tape/tape.h"

/* A combined program, whose operands are tensors of the tape. */
struct expr_merged {
    struct expr e;
    int32_t in[EXPR_INPUTS];
    bool fits;
};

/* Appends the nodes of e, the program of o, and returns its result.  If `replaced` is not -1, node
 * `value` stands for that operand. */
int expr_append(struct expr_merged *j, const ckpt_tape *t, const struct op *o, const struct expr *e,
                int32_t replaced, int value);

/* Replaces op i by a program with these results.  Returns 0 or CKPT_ENOMEM. */
int expr_replace_op(ckpt_tape *t, int32_t i, const struct expr_merged *j, const int32_t *out,
                    int n_out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the code of a program depends on, for a device that compiles before the first run. */
#ifndef CKPT_EXPR_CALL_H
#define CKPT_EXPR_CALL_H

#include "expr/expr.h"

struct expr_call {
    const struct expr *program;
    enum ckpt_dtype dtype[EXPR_INPUTS + 1]; /* of the result, then the operands */
};

#endif

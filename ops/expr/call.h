/* SPDX-License-Identifier: Apache-2.0 */
/* What the generated code of a program depends on, for a device that compiles it before the first
 * run. */
#ifndef CKPT_EXPR_CALL_H
#define CKPT_EXPR_CALL_H

#include "expr/expr.h"

struct expr_call {
    const struct expr *program;
    enum ckpt_dtype dtype[EXPR_INPUTS + 1]; /* of the result, then of the operands */
};

#endif

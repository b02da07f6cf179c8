/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of expressions on stretches of floats, one per code of expr/expr.h.  ctx: the
 * constants p and q of the node.  Ops with a kernel of their own (add, gelu, ...) call the same
 * ones, so that they give the same bits alone and in a chain.
 */
#ifndef CKPT_CPU_FUNCTIONS_H
#define CKPT_CPU_FUNCTIONS_H

#include "expr/expr.h"
#include "map.h"

#define X(code, function, arguments, flops)                                                        \
    void map_##function(float *y, const float *const *x, int64_t n, const void *ctx);
EXPR_FUNCTIONS(X)
#undef X

#endif

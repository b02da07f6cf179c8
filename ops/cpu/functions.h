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

/*
 * CPU_MAP begins the definition of one, CPU_MAP_CALL stands behind it: some compilers let only the
 * file that defines a function for several instruction sets call it, so others call a plain one
 * round it.  It comes second: clang 14 leaves the body out where a call stands before it.
 */
#define CPU_MAP(name)                                                                              \
    CKPT_CLONES static void name##_loop(float *y, const float *const *x, int64_t n, const void *ctx)
#define CPU_MAP_CALL(name)                                                                         \
    void name(float *y, const float *const *x, int64_t n, const void *ctx)                         \
    {                                                                                              \
        name##_loop(y, x, n, ctx);                                                                 \
    }

#endif

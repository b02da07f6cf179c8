/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of expressions on arrays of floats, one per code of expr/expr.h.  ctx: the
 * constants p and q of the node.  Ops with a kernel of their own (add, gelu, ...) call the same
 * functions, so results have the same bits alone and in a fused chain.
 */
#ifndef CKPT_CPU_FUNCTIONS_H
#define CKPT_CPU_FUNCTIONS_H

#include "expr/expr.h"
#include "kernels.h"
#include "map.h"

#define X(code, function, arguments, flops)                                                        \
    void map_##function(float *y, const float *const *x, int64_t n, const void *ctx);
EXPR_FUNCTIONS(X)
#undef X

/*
 * CPU_MAP begins the definition of such a function; CPU_MAP_CALL must follow it.  Some compilers
 * permit calls of a multi-versioned function only in the file that defines it, so other files call
 * a plain wrapper.  The wrapper comes second: clang 14 omits the body if a call precedes it.
 */
#define CPU_MAP(name)                                                                              \
    CKPT_CLONES static void name##_loop(float *y, const float *const *x, int64_t n, const void *ctx)
#define CPU_MAP_CALL(name)                                                                         \
    void name(float *y, const float *const *x, int64_t n, const void *ctx)                         \
    {                                                                                              \
        name##_loop(y, x, n, ctx);                                                                 \
    }

/* Define a whole function: y[i] = value, an expression in u, or in u and v. */
#define CPU_UNARY(name, value)                                                                     \
    CPU_MAP(name)                                                                                  \
    {                                                                                              \
        const float *in = x[0];                                                                    \
        (void)ctx;                                                                                 \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            float u = in[i];                                                                       \
            y[i] = (value);                                                                        \
        }                                                                                          \
    }                                                                                              \
    CPU_MAP_CALL(name)
#define CPU_BINARY(name, value)                                                                    \
    CPU_MAP(name)                                                                                  \
    {                                                                                              \
        const float *left = x[0], *right = x[1];                                                   \
        (void)ctx;                                                                                 \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            float u = left[i], v = right[i];                                                       \
            y[i] = (value);                                                                        \
        }                                                                                          \
    }                                                                                              \
    CPU_MAP_CALL(name)

/* Defines the kernel of an op: such a function of n inputs.  ctx is an expression in a, the call.
 */
#define CPU_ELEMENTS(op, n, function, ctx)                                                         \
    int cpu_##op(const struct ckpt_kernel_args *a)                                                 \
    {                                                                                              \
        cpu_map(&a->out[0], n, a->in, function, ctx);                                              \
        return cpu_write_extra(a, CKPT_OK);                                                        \
    }

#endif

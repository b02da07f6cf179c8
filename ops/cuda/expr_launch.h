/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to run an expression on the device; host side. */
#ifndef CKPT_CUDA_EXPR_LAUNCH_H
#define CKPT_CUDA_EXPR_LAUNCH_H

#include "expr/expr.h"
#include "loops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The loops of a call: the result, its operands, then the leaves with a place, whose strides are
 * those of the result in order (random values), or 1 along an axis. */
void expr_loops(const struct ckpt_kernel_args *a, struct loops *l);

/* Interprets the program, an element at a time; with a sum at its end, a row by a block.  Returns 0
 * or CKPT_EDEVICE. */
int expr_interpret(const struct ckpt_kernel_args *a);

/* Vectors, or elements, that a thread of the kernels of a program takes. */
int expr_unroll(const struct expr *e);

/* Elements of a vector of the kernel for these dtypes: of the result, then the operands. */
int expr_vector_elements(const struct expr *e, const enum ckpt_dtype *dtype);

/*
 * The source of the kernels expr_vector_kernel and expr_single_kernel of a program, for these
 * dtypes: malloc'ed, or NULL.  With a sum at its end a block of threads makes one result of them.
 * It says nothing of shapes, strides and streams, so equal layers share one.
 */
char *expr_source(const struct expr *e, const enum ckpt_dtype *dtype);

/* What stands in front: cuda/expr_math.cuh and cuda/expr_kernel.cuh. */
extern const char *const expr_math_text[], *const expr_kernel_text[];

#ifdef __cplusplus
}
#endif
#endif

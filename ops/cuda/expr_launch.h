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

/* Interprets the program, an element at a time.  Returns 0 or CKPT_EDEVICE. */
int expr_interpret(const struct ckpt_kernel_args *a);

#ifdef __cplusplus
}
#endif
#endif

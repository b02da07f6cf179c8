/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to run an expression on the device; host side. */
#ifndef CKPT_CUDA_EXPR_LAUNCH_H
#define CKPT_CUDA_EXPR_LAUNCH_H

#include <stdio.h>
#include "expr/call.h"
#include "loops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_libs;

/* What a call reads and writes: the result, its operands, and a second result where it has one. */
static inline int expr_views(const struct ckpt_kernel_args *a)
{
    return a->n_in + 1 + (((const struct expr *)a->attr)->second > 0);
}

static inline const struct ckpt_view *expr_view(const struct ckpt_kernel_args *a, int k)
{
    return k == 0 ? &a->out[0] : k <= a->n_in ? &a->in[k - 1] : &a->out[1];
}

/* The loops of a call: its views, then the leaves with a place, whose strides are those of the
 * result in order (random values), or 1 along an axis.  A program with two results has none. */
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

/*
 * Prepares the calls of so many programs: their code is read from disk or compiled, in several
 * threads, and kept with the calls of the device.  What fails is left to the first run.
 */
void cuda_expr_compile(struct cuda_libs *libs, const struct expr_call *calls, int64_t n);

/* What stands in front: cuda/expr_math.cuh, cuda/expr_pair.cuh and cuda/expr_kernel.cuh. */
extern const char *const expr_math_text[], *const expr_pair_text[], *const expr_kernel_text[];

/* Writes the function program_of_pair of two neighbours, or program_of_element. */
void expr_write_program(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype, bool pairs);

/* Whether a node is a leaf with a place, and how many are; what elements are in memory. */
bool expr_leaf_has_place(const struct expr_node *n);
int expr_count_leaves(const struct expr *e);
const char *expr_type_name(enum ckpt_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif

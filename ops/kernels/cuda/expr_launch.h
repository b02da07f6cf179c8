/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the kernels that run an expression. */
#ifndef CKPT_CUDA_EXPR_LAUNCH_H
#define CKPT_CUDA_EXPR_LAUNCH_H

#include <stdio.h>
#include "expr/call.h"
#include "loops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_libs;

/* The tensors of a call: the result, the operands, then the second result if there is one. */
static inline int expr_views(const struct ckpt_kernel_args *a)
{
    return a->n_in + 1 + (((const struct expr *)a->attr)->second > 0);
}

static inline const struct ckpt_view *expr_view(const struct ckpt_kernel_args *a, int k)
{
    return k == 0 ? &a->out[0] : k <= a->n_in ? &a->in[k - 1] : &a->out[1];
}

/* The loops of a call: its tensors, then the leaves with an index.  Random leaves have the strides
 * of a dense result, index leaves have 1 along their axis.  A program with two results has no such
 * leaves. */
void expr_loops(const struct ckpt_kernel_args *a, struct loops *l);

/* Interprets the program, one element per thread or, if it has sums, one row per block.  Returns 0
 * or CKPT_EDEVICE. */
int expr_interpret(const struct ckpt_kernel_args *a);

/* Vectors, or elements, that a thread of a compiled kernel handles. */
int expr_unroll(const struct expr *e);

/* Elements per vector of the compiled kernel; dtype: of the result, then of the operands. */
int expr_vector_elements(const struct expr *e, const enum ckpt_dtype *dtype);

/*
 * The source of the kernels expr_vector_kernel and expr_single_kernel of a program for these
 * dtypes; malloc'ed, or NULL.  If the expression has sums, one block handles one row.
 * The source does not depend on shapes, strides or random streams, so equal layers share it.
 */
char *expr_source(const struct expr *e, const enum ckpt_dtype *dtype);

/*
 * Prepares the kernels of n calls: reads their code from the disk cache or compiles it, in several
 * threads, and stores it with the device.  Failures are reported when a call first runs.
 */
void cuda_expr_compile(struct cuda_libs *libs, const struct expr_call *calls, int64_t n);

/* The texts at the start of every source: cuda/expr_math.cuh, cuda/expr_pair.cuh and
 * cuda/expr_kernel.cuh. */
extern const char *const expr_math_text[], *const expr_pair_text[], *const expr_kernel_text[];

/* Writes the function program_of_pair, for two adjacent elements, or program_of_element. */
void expr_write_program(FILE *f, const struct expr *e, const enum ckpt_dtype *dtype, bool pairs);

/* Is the node a leaf with an index?  How many such leaves are there?  What is the C type of an
 * element? */
bool expr_leaf_has_place(const struct expr_node *n);
int expr_count_leaves(const struct expr *e);
const char *expr_type_name(enum ckpt_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of gradient ops that have a kernel of their own (layer_norm_dx, attention_dx, ...).
 * Only a model whose loss depends on a gradient (ckpt_gradients) needs them.  Such models are few,
 * so there are no kernels for these.  The op is decomposed instead: recorded once more as a
 * sequence of ops that have gradients of gradients, which the tape then differentiates.  The cost
 * is the cost of those ops, a few passes over fp32 tensors.  Gradients of any order follow.
 */
#ifndef CKPT_OPS_DECOMPOSE_H
#define CKPT_OPS_DECOMPOSE_H

#include "ckpt_op.h"

enum { DECOMPOSED_OPERANDS = 16, DECOMPOSED_RESULTS = 4 };

/*
 * Records the decomposition of the op of g.
 *
 * in: operands of the op; floating-point ones are fp32 tensors that alias no other operand, absent
 * ones are CKPT_NONE.
 *
 * out: results, to be filled in.  Results without dout may stay CKPT_NONE.
 */
typedef void (*ops_decomposition)(const struct ckpt_grad *g, const ckpt_tensor *in,
                                  ckpt_tensor *out);

/* The gradient rule of an op with this decomposition. */
void ops_grad_decomposed(struct ckpt_grad *g, ops_decomposition decomposition);
#define OPS_DECOMPOSED(rule, decomposition)                                                        \
    static void rule(struct ckpt_grad *g)                                                          \
    {                                                                                              \
        ops_grad_decomposed(g, decomposition);                                                     \
    }

/* For a decomposition: gradients of y with respect to x[0] to x[n - 1], which are distinct tensors,
 * given the gradient dy of y.  first_op is ops_count() before y was recorded.  dx[i] is CKPT_NONE
 * where y does not depend on x[i]. */
void ops_pull(ckpt_tape *t, int first_op, ckpt_tensor y, ckpt_tensor dy, int n,
              const ckpt_tensor *x, ckpt_tensor *dx);
int ops_count(const ckpt_tape *t);

/* An fp32 scalar. */
ckpt_tensor ops_scalar(ckpt_tape *t, float value);

/* fp32 zeros of the shape of x, for a value of the forward op that the gradient op does not
 * read. */
ckpt_tensor ops_zeros_like(ckpt_tape *t, ckpt_tensor x);

/* (x - mean) / sqrt(mean of squares + eps) over the axes in mask.  If `centred` is false the mean
 * is not subtracted. */
ckpt_tensor ops_normalised(ckpt_tape *t, ckpt_tensor x, unsigned mask, float eps, bool centred);

#endif

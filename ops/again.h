/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of ops that are gradients themselves and have a kernel of their own (layer_norm_dx,
 * attention_dx, ...).  A model whose loss depends on a gradient needs them (ckpt_gradients), and
 * few models do, so there are no kernels: such an op is recorded once more, in ops that have
 * gradients of gradients, and these are differentiated.  It costs what those ops cost, in a few
 * passes over fp32 tensors, and gradients of any order follow.
 */
#ifndef CKPT_OPS_AGAIN_H
#define CKPT_OPS_AGAIN_H

#include "ckpt_op.h"

enum { AGAIN_OPERANDS = 16, AGAIN_RESULTS = 4 };

/*
 * Records the op of g once more.  in: its operands, floating ones in fp32 and tensors of their own,
 * absent ones CKPT_NONE.  out: to be filled with its results; those without dout may be left out.
 */
typedef void (*ops_again)(const struct ckpt_grad *g, const ckpt_tensor *in, ckpt_tensor *out);

/* The gradient rule of an op that `again` records. */
void ops_grad_again(struct ckpt_grad *g, ops_again again);

/* For an `again`: the gradients of x[0] to x[n - 1], each a tensor of its own, where that of y is
 * dy; first_op: t->n_ops before y was recorded.  dx[i] is CKPT_NONE where y does not depend on it.
 */
void ops_pull(ckpt_tape *t, int first_op, ckpt_tensor y, ckpt_tensor dy, int n,
              const ckpt_tensor *x, ckpt_tensor *dx);
int ops_count(const ckpt_tape *t);

/* fp32 zeros of the shape of x: what a gradient op does not read of its function. */
ckpt_tensor ops_zeros_like(ckpt_tape *t, ckpt_tensor x);

/* (x - mean) / sqrt(mean of squares + eps) over the axes of mask; without `centred` no mean. */
ckpt_tensor ops_normalised(ckpt_tape *t, ckpt_tensor x, unsigned mask, float eps, bool centred);

#endif

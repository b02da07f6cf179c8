/* SPDX-License-Identifier: Apache-2.0 */
/* Norms: attributes and shared parts of the shape rules. */
#ifndef CKPT_OPS_NORM_H
#define CKPT_OPS_NORM_H

#include "ckpt_op.h"

struct norm_attr {
    float eps;
};

/* The attribute for a backward op: that of the norm if the gradient may be differentiated, whose
 * rule needs eps, else none.  Kernels use the statistics and need no eps. */
const void *norm_dx_attr(const struct ckpt_grad *g, size_t *size);

/* out[1] becomes fp32 with the axes of operand 0 except the last; if n > 0 an axis of n values per
 * row follows. */
void norm_stats_shape(struct ckpt_call *call, int64_t n);

/* Checks the weight, operand w, of a norm of operand x. */
int norm_check_weight(struct ckpt_call *call, int w, int x);

/* Gradients of an RMS norm: sets out[0] for operand 1, out[1] for the weight, operand 2. */
void norm_weight_dx_shape(struct ckpt_call *call);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Norms: attributes, and what their shape rules share. */
#ifndef CKPT_OPS_NORM_H
#define CKPT_OPS_NORM_H

#include "ckpt_op.h"

struct norm_attr {
    float eps;
};

/* The attribute of a gradient's op: the norm's where a loss may depend on that gradient, whose rule
 * then asks for eps.  Kernels have the statistics and need none. */
const void *norm_dx_attr(const struct ckpt_grad *g, size_t *size);

/* Checks that eps is finite and not negative. */
int norm_check_eps(struct ckpt_call *call, float eps);

/* out[out] as fp32 with the axes of operand in but the last, and then n > 0 values a row. */
void norm_stats_shape(struct ckpt_call *call, int out, int in, int64_t n);

/* Checks operand w of an RMS norm of operand x. */
int norm_check_weight(struct ckpt_call *call, int w, int x);

/* The gradients of an RMS norm: out[0] of operand x, out[1] of the weight w, and the workspace. */
void norm_weight_dx_shape(struct ckpt_call *call, int x, int w);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU in the epilogue of a linear layer, and its gradient in the epilogue of the next layer's
 * gradient.
 *
 *   pre, post         = linear_gelu(x, w1, b1)          pre = x w1^T + b1, post = gelu(pre)
 *   y                 = linear(post, w2, b2)
 *   dpre, sums, post' = linear_dx_gelu(dy, w2, pre)     dpre = gelu'(pre) (dy w2)
 *   dw2               = linear_dw(dy, post')
 *
 * The first product has pre in registers when it computes post.  The gradient's product has dy w2
 * in registers when it computes dpre, and all inputs to recompute post.  Both save passes over the
 * widest activations of a model.  post' is post, recomputed where the backward pass reads pre
 * anyway, so no plan keeps post for the backward pass: half of the memory of such a layer.
 *
 * epilogue.c describes where this is done.
 */
#include "attr.h"
#include "ops.h"

/* ---- shape rules ----------------------------------------------------------------------------- */

/* {x, w, b} -> {pre, post}.  A result without a reader is not written. */
static int linear_gelu_shape(struct ckpt_call *call)
{
    const int rc = op_linear.shape(call);
    if (rc)
        return rc;
    if (call->out[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operands must be bf16");
    call->out[1] = call->out[0];
    return CKPT_OK;
}

/* {dy, w, pre} -> {dpre} */
static int linear_dx_gelu_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *pre = &call->in[2];
    const int rc = op_linear_dx.shape(call);
    if (rc)
        return rc;
    if (!desc_same_shape(pre, &call->out[0]) || pre->dtype != CKPT_BF16 ||
        call->out[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operand of gelu must be bf16 and of the gradient's shape");
    return CKPT_OK;
}

OPS_DEF(linear_gelu, .flags = CKPT_OP_OPTIONAL_OUT, .shape = linear_gelu_shape,
        .cost = linear_cost);

OPS_DEF(linear_dx_gelu, .shape = linear_dx_gelu_shape, .cost = linear_cost);

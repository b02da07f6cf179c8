/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gated MLPs (SwiGLU): the gate in the epilogue of the first two layers, and its gradient in the
 * epilogue of the third layer's gradient.
 *
 *   gate, up, h       = linear_gated(x, wg, wu)         gate = x wg^T, up = x wu^T,
 *                                                       h = silu(gate) up
 *   y                 = linear(h, wd)
 *   dgate, dup, h'    = linear_dx_gated(dy, wd, gate, up)
 *                                                       with dh = dy wd: dup = dh silu(gate),
 *                                                       dgate = silu'(gate) (dh up)
 *   dwd               = linear_dw(dy, h')
 *
 * Both fusions save a pass over the widest activations of a model.  h' is h recomputed where gate
 * and up are read anyway, so no plan keeps h, a third of the memory of these activations.  The
 * gradient is fused whether or not the forward pass is: layers with biases or adapters compute gate
 * and up separately.  epilogue.c describes where this is done.
 */
#include "ops.h"

/* ---- shape rules ----------------------------------------------------------------------------- */

/* {x, wg, wu} -> {gate, up, h}.  Results without a reader are not written. */
static int linear_gated_shape(struct ckpt_call *call)
{
    const struct ckpt_desc none = {.ndim = -1}, of_linear[] = {call->in[0], call->in[1], none};
    struct ckpt_call linear = *call;
    linear.in = of_linear;
    const int rc = op_linear.shape(&linear);
    if (rc)
        return rc;
    if (call->out[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operands must be bf16");
    if (call->in[2].dtype != CKPT_BF16 || !desc_same_shape(&call->in[1], &call->in[2]))
        return ckpt_call_fail(call, "the weights must be of one shape and dtype");
    call->out[1] = call->out[2] = call->out[0];
    return CKPT_OK;
}

/* {dy, w, gate, up} -> {dgate, dup, and h if requested} */
static int linear_dx_gated_shape(struct ckpt_call *call)
{
    const int rc = op_linear_dx.shape(call);
    if (rc)
        return rc;
    for (int k = 2; k < 4; k++)
        if (call->in[k].dtype != CKPT_BF16 || !desc_same_shape(&call->in[k], &call->out[0]))
            return ckpt_call_fail(call, "gate and up must be bf16 and of the gradient's shape");
    for (int k = 1; k < call->n_out; k++)
        call->out[k] = call->out[0];
    return CKPT_OK;
}

/* The cost of two products. */
static void linear_gated_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    linear_cost(call, cost);
    cost->flops *= 2;
}

OPS_DEF(linear_gated, .flags = CKPT_OP_OPTIONAL_OUT, .shape = linear_gated_shape,
        .cost = linear_gated_cost);

OPS_DEF(linear_dx_gated, .shape = linear_dx_gated_shape, .cost = linear_cost);

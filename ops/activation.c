/* SPDX-License-Identifier: Apache-2.0 */
/* Activations: GELU in its tanh approximation and SiLU, with their derivatives. */
#include "decompose.h"
#include "ops.h"

static int shape_activation(struct ckpt_call *call)
{
    call_like(call, 0, 0);
    return call_float(call, 0);
}

/* {dy, x} -> dx in the dtype of x; dy may be fp32 where x is bf16. */
static int shape_activation_dx(struct ckpt_call *call)
{
    if (!desc_same_shape(&call->in[0], &call->in[1]))
        return ckpt_call_fail(call, "the gradient differs in shape from the input");
    call_like(call, 0, 1);
    return call_float(call, 0) ? CKPT_ESHAPE : call_float(call, 1);
}

/* An exponential and a division, counted as the operations of their polynomials. */
OPS_COST(cost_activation, 24.0, out[0])

ckpt_tensor ckpt_gelu_tanh(ckpt_tape *t, ckpt_tensor x)
{
    return ops_record1(t, &op_gelu, 1, &x, NULL, 0);
}

ckpt_tensor ckpt_gelu(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_gelu_tanh(t, x);
}

static void grad_gelu(struct ckpt_grad *g)
{
    g->din[0] =
        ops_record1(g->tape, &op_gelu_dx, 2, (ckpt_tensor[]){g->dout[0], g->in[0]}, NULL, 0);
}

OPS_DEF(gelu, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_activation,
        .grad = grad_gelu, .cost = cost_activation);

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
static void decompose_gelu_dx(const struct ckpt_grad *g, const ckpt_tensor *in, ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const int first = ops_count(t);
    ckpt_tensor x = in[1], cube = ckpt_mul(t, ckpt_mul(t, x, x), x);
    ckpt_tensor u =
        ckpt_affine(t, ckpt_add(t, x, ckpt_affine(t, cube, 0.044715f, 0.f)), 0.7978845608f, 0.f);
    ckpt_tensor y = ckpt_mul(t, x, ckpt_affine(t, ckpt_tanh(t, u), 0.5f, 0.5f));
    ops_pull(t, first, y, in[0], 1, &x, out);
}

OPS_DECOMPOSED(grad_gelu_dx, decompose_gelu_dx)

OPS_DEF(gelu_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_activation_dx,
        .grad = grad_gelu_dx, .cost = cost_activation);

ckpt_tensor ckpt_silu(ckpt_tape *t, ckpt_tensor x)
{
    return ops_record1(t, &op_silu, 1, &x, NULL, 0);
}

static void grad_silu(struct ckpt_grad *g)
{
    g->din[0] =
        ops_record1(g->tape, &op_silu_dx, 2, (ckpt_tensor[]){g->dout[0], g->in[0]}, NULL, 0);
}

OPS_DEF(silu, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_activation,
        .grad = grad_silu, .cost = cost_activation);

static void decompose_silu_dx(const struct ckpt_grad *g, const ckpt_tensor *in, ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const int first = ops_count(t);
    ckpt_tensor x = in[1], y = ckpt_mul(t, x, ckpt_sigmoid(t, x));
    ops_pull(t, first, y, in[0], 1, &x, out);
}

OPS_DECOMPOSED(grad_silu_dx, decompose_silu_dx)

OPS_DEF(silu_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_activation_dx,
        .grad = grad_silu_dx, .cost = cost_activation);

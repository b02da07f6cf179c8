/* SPDX-License-Identifier: Apache-2.0 */
/* Vector quantisation: nearest codebook entry, with a straight-through gradient and the commitment
 * loss. */
#include "ckpt.h"
#include "decompose.h"
#include "ops.h"
#include "quantize.h"

/* {z, codebook} -> {entries, index, commitment} */
static int quantize_rule(struct ckpt_call *call)
{
    const struct ckpt_desc *z = &call->in[0], *book = &call->in[1];
    if (call_float(call, 0) || call_float(call, 1))
        return CKPT_ESHAPE;
    if (z->ndim < 1 || book->ndim != 2 || z->shape[z->ndim - 1] != book->shape[1])
        return ckpt_call_fail(call, "z must be [..., D] and the codebook [K, D]");
    if (z->dtype != book->dtype)
        return ckpt_call_fail(call, "z and the codebook must have the same dtype");
    if (book->shape[0] > INT32_MAX)
        return ckpt_call_fail(call, "%lld entries are too many", (long long)book->shape[0]);
    call_like(call, 0, 0);
    call->out[1] = *z;
    call->out[1].dtype = CKPT_I32;
    call->out[1].ndim--;
    call->out[1].offset = 0;
    desc_dense(&call->out[1]);
    call->out[2] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
    return CKPT_OK;
}

/* Straight-through: the gradient of the entries passes to z unchanged. */
static void quantize_grad(struct ckpt_grad *g)
{
    if (!g->dout[2].id)
        g->din[0] = g->dout[0];
    else
        g->din[0] = OPS_RECORD(g->tape, &op_quantize_dx, (const char *)NULL, g->dout[2], g->in[0],
                               g->out[0], g->dout[0]);
}

static void cost_quantize(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 3. * (double)desc_numel(&call->in[0]) * (double)call->in[1].shape[0];
}

OPS_DEF(quantize, .shape = quantize_rule, .grad = quantize_grad, .cost = cost_quantize);

/* {dcommitment, z, entries, dentries or none} -> dz */
static int quantize_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return CKPT_OK;
}

OPS_COST(cost_quantize_dx, 3., in[1])

/* The entries get no gradient, like the codebook. */
static void decompose_quantize_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                  ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const struct ckpt_desc d = ckpt_desc_of(t, in[1]);
    ckpt_tensor slope = ckpt_affine(t, in[0], 2.f / (float)desc_numel(&d), 0.f);
    out[0] = ckpt_mul(t, slope, ckpt_sub(t, in[1], ckpt_stop_gradient(t, in[2])));
    if (in[3].id)
        out[0] = ckpt_add(t, in[3], out[0]);
}

OPS_DECOMPOSED(quantize_dx_grad, decompose_quantize_dx)

OPS_DEF(quantize_dx, .shape = quantize_dx_rule, .grad = quantize_dx_grad, .cost = cost_quantize_dx);

ckpt_tensor ckpt_quantize(ckpt_tape *t, ckpt_tensor z, ckpt_tensor codebook, ckpt_tensor *index,
                          ckpt_tensor *commitment)
{
    ckpt_tensor in[] = {z, codebook}, out[3] = {CKPT_NONE, CKPT_NONE, CKPT_NONE};
    ckpt_record(t, &op_quantize, 2, in, 3, out, NULL, 0);
    if (index)
        *index = out[1];
    if (commitment)
        *commitment = out[2];
    return out[0];
}

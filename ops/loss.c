/* SPDX-License-Identifier: Apache-2.0 */
/* Mean squared error with a frame mask. */
#include "decompose.h"
#include "ops.h"

static void scalar(struct ckpt_call *call, int out)
{
    call->out[out] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
}

/* pred, target and mask are operands first, first + 1 and first + 2. */
static int check_mse(struct ckpt_call *call, int first)
{
    const struct ckpt_desc *pred = &call->in[first], *mask = &call->in[first + 2];
    if (call_float(call, first) || call_float(call, first + 1))
        return CKPT_ESHAPE;
    if (pred->ndim < 1 || !desc_same_shape(pred, &call->in[first + 1]))
        return ckpt_call_fail(call,
                              "prediction and target must have the same shape [B, C, T, ...]");
    if (mask->ndim < 0)
        return CKPT_OK;
    if (pred->ndim < 3 || mask->dtype != CKPT_I32 || mask->ndim != 2 ||
        mask->shape[0] != pred->shape[0] || mask->shape[1] != pred->shape[2])
        return ckpt_call_fail(call, "the mask must be i32 [B, T] of a prediction [B, C, T, ...]");
    return CKPT_OK;
}

static int mse_shape(struct ckpt_call *call)
{
    if (check_mse(call, 0))
        return CKPT_ESHAPE;
    scalar(call, 0);
    return CKPT_OK;
}

static void mse_grad(struct ckpt_grad *g)
{
    ckpt_tensor pred = g->in[0], target = g->in[1], mask = g->in[2];
    if (g->need[0])
        g->din[0] =
            OPS_RECORD(g->tape, &op_mse_dx, (const char *)NULL, g->dout[0], pred, target, mask);
    if (g->need[1])
        g->din[1] =
            OPS_RECORD(g->tape, &op_mse_dx, (const char *)NULL, g->dout[0], target, pred, mask);
}

static void mse_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){.flops = 3.0 * (double)desc_numel(&call->in[1])};
}

const struct ckpt_op_def op_mse = {
    .size = sizeof(struct ckpt_op_def),
    .name = "mse",
    .shape = mse_shape,
    .grad = mse_grad,
    .cost = mse_cost,
};

static int mse_dx_shape(struct ckpt_call *call)
{
    if (check_mse(call, 1))
        return CKPT_ESHAPE;
    call_like(call, 0, 1);
    return CKPT_OK;
}

/* d loss / d pred over pred - target: 2 / (B times the unmasked elements of a sample), 0 for a
 * sample without any.  [B, 1, T, 1, ...], or a scalar without a mask. */
static ckpt_tensor mse_slope(ckpt_tape *t, const struct ckpt_desc *pred, ckpt_tensor mask)
{
    int64_t shape[CKPT_MAX_DIMS] = {pred->shape[0], 1, pred->shape[2], 1, 1, 1, 1, 1};
    const float n = (float)desc_numel(pred);
    if (!mask.id)
        return ops_scalar(t, 2.f / n);
    mask = ckpt_cast(t, ckpt_ne(t, mask, ops_scalar(t, 0.f)), CKPT_F32);
    ckpt_tensor shown = ckpt_maximum(t, ckpt_sum(t, mask, 1u << 1), ops_scalar(t, 1.f));
    mask = ckpt_affine(t, ckpt_div(t, mask, shown), 2.f * (float)pred->shape[2] / n, 0.f);
    return ckpt_reshape(t, mask, pred->ndim, shape);
}

static void decompose_mse_dx(const struct ckpt_grad *g, const ckpt_tensor *in, ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const struct ckpt_desc pred = ckpt_desc_of(t, in[1]);
    ckpt_tensor slope = ckpt_mul(t, in[0], mse_slope(t, &pred, in[3]));
    out[0] = ckpt_mul(t, slope, ckpt_sub(t, in[1], in[2]));
}

static void mse_dx_grad(struct ckpt_grad *g)
{
    ops_grad_decomposed(g, decompose_mse_dx);
}

const struct ckpt_op_def op_mse_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "mse_dx",
    .shape = mse_dx_shape,
    .grad = mse_dx_grad,
    .cost = mse_cost,
};

ckpt_tensor ckpt_mse(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target, ckpt_tensor mask)
{
    return OPS_RECORD(t, &op_mse, (const char *)NULL, pred, target, mask);
}

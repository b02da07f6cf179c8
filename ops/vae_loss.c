/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses of variational autoencoders: the L1 distance to a target; the KL divergence of the latent
 * normal distribution from N(0, 1); and a sample of that distribution, mean + exp(logvar / 2)
 * noise.
 *
 * - Losses are fp32 scalars.  They are sums of chunks in double, added in order, so the bits do not
 *   depend on the number of threads.
 * - logvar is clamped to [LOGVAR_LOW, LOGVAR_HIGH] in all ops; outside, its gradient is 0.
 * - The noise is an operand and not drawn here, so a recomputed sample is the same one.  It has no
 *   gradient.
 */
#include "decompose.h"
#include "ops.h"
#include "vae_loss.h"

static void scalar(struct ckpt_call *call)
{
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
}

/* Operands first and first + 1 must be floating and have the same shape. */
static int check_pair(struct ckpt_call *call, int first)
{
    if (call_float(call, first) || call_float(call, first + 1))
        return CKPT_ESHAPE;
    if (!desc_same_shape(&call->in[first], &call->in[first + 1]))
        return ckpt_call_fail(call, "operands %d and %d must have the same shape", first,
                              first + 1);
    return CKPT_OK;
}

/* ---- L1 ------------------------------------------------------------------------------------- */

static int l1_rule(struct ckpt_call *call)
{
    if (check_pair(call, 0))
        return CKPT_ESHAPE;
    scalar(call);
    return CKPT_OK;
}

static void l1_grad(struct ckpt_grad *g)
{
    for (int i = 0; i < 2; i++)
        if (g->need[i])
            g->din[i] = OPS_RECORD(g->tape, &op_l1_dx, (const char *)NULL, g->dout[0], g->in[i],
                                   g->in[1 - i]);
}

static void cost_few(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){.flops = 3. * (double)desc_numel(&call->in[1])};
}

const struct ckpt_op_def op_l1 = {
    .size = sizeof(struct ckpt_op_def),
    .name = "l1",
    .shape = l1_rule,
    .grad = l1_grad,
    .cost = cost_few,
};

/* {dloss, pred, target} -> dpred */
static int l1_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return CKPT_OK;
}

/* Linear in dloss; the sign has no gradient. */
static void decompose_l1_dx(const struct ckpt_grad *g, const ckpt_tensor *in, ckpt_tensor *out)
{
    const struct ckpt_desc d = ckpt_desc_of(g->tape, in[1]);
    ckpt_tensor sign = ckpt_sign(g->tape, ckpt_sub(g->tape, in[1], in[2]));
    out[0] = ckpt_mul(g->tape, in[0], ckpt_affine(g->tape, sign, 1.f / (float)desc_numel(&d), 0.f));
}

static void l1_dx_grad(struct ckpt_grad *g)
{
    ops_grad_decomposed(g, decompose_l1_dx);
}

const struct ckpt_op_def op_l1_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "l1_dx",
    .shape = l1_dx_rule,
    .grad = l1_dx_grad,
    .cost = cost_few,
};

ckpt_tensor ckpt_l1(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target)
{
    return OPS_RECORD(t, &op_l1, (const char *)NULL, pred, target);
}

/* ---- latent normal distribution -------------------------------------------------------------- */

static int check_normal(struct ckpt_call *call, int first)
{
    if (check_pair(call, first))
        return CKPT_ESHAPE;
    if (call->in[first].dtype != call->in[first + 1].dtype)
        return ckpt_call_fail(call, "mean and logvar must have the same dtype");
    return CKPT_OK;
}

static int kl_normal_rule(struct ckpt_call *call)
{
    if (check_normal(call, 0))
        return CKPT_ESHAPE;
    if (call->in[0].ndim < 1)
        return ckpt_call_fail(call, "mean must be [B, ...]");
    scalar(call);
    return CKPT_OK;
}

static void kl_normal_grad(struct ckpt_grad *g)
{
    ckpt_tensor in[] = {g->dout[0], g->in[0], g->in[1]};
    ckpt_record(g->tape, &op_kl_normal_dx, 3, in, 2, g->din, NULL, 0);
}

/* An exponential, counted as the operations of its polynomial. */
static void cost_exp(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){.flops = 20. * (double)desc_numel(&call->in[1])};
}

const struct ckpt_op_def op_kl_normal = {
    .size = sizeof(struct ckpt_op_def),
    .name = "kl_normal",
    .shape = kl_normal_rule,
    .grad = kl_normal_grad,
    .cost = cost_exp,
};

/* {dloss, mean, logvar} -> {dmean, dlogvar} */
static int kl_normal_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    call_like(call, 1, 2);
    return CKPT_OK;
}

static ckpt_tensor clamped(ckpt_tape *t, ckpt_tensor logvar)
{
    return ckpt_clamp(t, logvar, LOGVAR_LOW, LOGVAR_HIGH);
}

static void decompose_kl_normal_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                   ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const struct ckpt_desc d = ckpt_desc_of(t, in[1]);
    const int first = ops_count(t);
    ckpt_tensor v = clamped(t, in[2]);
    ckpt_tensor sum = ckpt_add(t, ckpt_mul(t, in[1], in[1]), ckpt_sub(t, ckpt_exp(t, v), v));
    sum = ckpt_reshape(t, ckpt_sum(t, sum, ~(~0u << d.ndim)), 0, NULL);
    sum = ckpt_affine(t, sum, 0.5f / (float)d.shape[0], 0.f); /* up to a constant */
    ops_pull(t, first, sum, in[0], 2, in + 1, out);
}

static void kl_normal_dx_grad(struct ckpt_grad *g)
{
    ops_grad_decomposed(g, decompose_kl_normal_dx);
}

const struct ckpt_op_def op_kl_normal_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "kl_normal_dx",
    .shape = kl_normal_dx_rule,
    .grad = kl_normal_dx_grad,
    .cost = cost_exp,
};

ckpt_tensor ckpt_kl_normal(ckpt_tape *t, ckpt_tensor mean, ckpt_tensor logvar)
{
    return OPS_RECORD(t, &op_kl_normal, (const char *)NULL, mean, logvar);
}

static int sample_normal_rule(struct ckpt_call *call)
{
    if (check_normal(call, 0) || check_normal(call, 1))
        return CKPT_ESHAPE;
    call_like(call, 0, 0);
    return CKPT_OK;
}

static void sample_normal_grad(struct ckpt_grad *g)
{
    if (g->need[0])
        g->din[0] = g->dout[0];
    if (g->need[1])
        g->din[1] = OPS_RECORD(g->tape, &op_sample_normal_dx, (const char *)NULL, g->dout[0],
                               g->in[1], g->in[2]);
}

const struct ckpt_op_def op_sample_normal = {
    .size = sizeof(struct ckpt_op_def),
    .name = "sample_normal",
    .shape = sample_normal_rule,
    .grad = sample_normal_grad,
    .cost = cost_exp,
};

/* {dz, logvar, noise} -> dlogvar */
static int sample_normal_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return CKPT_OK;
}

static void decompose_sample_normal_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                       ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const int first = ops_count(t);
    ckpt_tensor deviation = ckpt_exp(t, ckpt_affine(t, clamped(t, in[1]), 0.5f, 0.f));
    ckpt_tensor y = ckpt_mul(t, deviation, ckpt_stop_gradient(t, in[2]));
    ops_pull(t, first, y, in[0], 1, &in[1], out);
}

static void sample_normal_dx_grad(struct ckpt_grad *g)
{
    ops_grad_decomposed(g, decompose_sample_normal_dx);
}

const struct ckpt_op_def op_sample_normal_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "sample_normal_dx",
    .shape = sample_normal_dx_rule,
    .grad = sample_normal_dx_grad,
    .cost = cost_exp,
};

ckpt_tensor ckpt_sample_normal(ckpt_tape *t, ckpt_tensor mean, ckpt_tensor logvar,
                               ckpt_tensor noise)
{
    return OPS_RECORD(t, &op_sample_normal, (const char *)NULL, mean, logvar, noise);
}

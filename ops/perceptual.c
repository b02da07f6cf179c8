/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of perceptual losses: ReLU, and distances between features. */
#include "ckpt.h"
#include "decompose.h"
#include "ops.h"
#include "perceptual.h"

/* One comparison per element. */
OPS_COST(cost_compare, 1., in[0])

/* ---- ReLU ----------------------------------------------------------------------------------- */

static int relu_rule(struct ckpt_call *call)
{
    call_like(call, 0, 0);
    return call_float(call, 0);
}

/* The gradient reads the result, which later layers keep anyway, and not x. */
static void relu_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_relu_dx, (const char *)NULL, g->dout[0], g->out[0]);
}

OPS_DEF(relu, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = relu_rule, .grad = relu_grad,
        .cost = cost_compare);

/* {dy, y} -> dx */
static int relu_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return CKPT_OK;
}

/* Linear in dy; the mask y > 0 has no gradient. */
static void relu_dx_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_relu_dx, (const char *)NULL, g->dout[0], g->in[1]);
}

OPS_DEF(relu_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = relu_dx_rule,
        .grad = relu_dx_grad, .cost = cost_compare);

ckpt_tensor ckpt_relu(ckpt_tape *t, ckpt_tensor x)
{
    return OPS_RECORD(t, &op_relu, (const char *)NULL, x);
}

/* ---- distance of features ------------------------------------------------------------------- */

static int feature_distance_rule(struct ckpt_call *call)
{
    const struct ckpt_desc *a = &call->in[0], *w = &call->in[2];
    if (call_float(call, 0) || call_float(call, 1) || call_float(call, 2))
        return CKPT_ESHAPE;
    if (a->ndim < 1 || !desc_same_shape(a, &call->in[1]))
        return ckpt_call_fail(call, "a and b must have one shape, [..., C]");
    int64_t c = a->shape[a->ndim - 1];
    if (w->ndim != 1 || w->shape[0] != c)
        return ckpt_call_fail(call, "the weight must have one axis of size %lld", (long long)c);
    if (call->in[1].dtype != a->dtype || w->dtype != a->dtype)
        return ckpt_call_fail(call, "a, b and the weight must have the same dtype");
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
    return CKPT_OK;
}

/* Symmetric: the gradient of b is the gradient of a with a and b exchanged. */
static void feature_distance_grad(struct ckpt_grad *g)
{
    for (int i = 0; i < 2; i++)
        if (g->need[i])
            g->din[i] = OPS_RECORD(g->tape, &op_feature_distance_dx, (const char *)NULL, g->dout[0],
                                   g->in[i], g->in[1 - i], g->in[2]);
}

OPS_COST(cost_distance, 9., in[1])

OPS_DEF(feature_distance, .shape = feature_distance_rule, .grad = feature_distance_grad,
        .cost = cost_distance);

/* {dloss, a, b, w} -> da */
static int feature_distance_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return CKPT_OK;
}

/* The rows of x divided by their length; rows of zeros stay 0. */
static ckpt_tensor unit_rows(ckpt_tape *t, ckpt_tensor x)
{
    const unsigned last = 1u << (ckpt_desc_of(t, x).ndim - 1);
    ckpt_tensor square = ckpt_sum(t, ckpt_mul(t, x, x), last);
    ckpt_tensor none = ckpt_eq(t, square, ops_scalar(t, 0.f));
    square = ckpt_where(t, none, ops_scalar(t, 1.f), square);
    return ckpt_mul(t, x, ckpt_where(t, none, ops_scalar(t, 0.f), ckpt_rsqrt(t, square)));
}

static void decompose_feature_distance_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                          ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const int first = ops_count(t);
    const struct ckpt_desc d = ckpt_desc_of(t, in[1]);
    ckpt_tensor w = ckpt_stop_gradient(t, in[3]);
    ckpt_tensor diff = ckpt_sub(t, unit_rows(t, in[1]), unit_rows(t, in[2]));
    ckpt_tensor sum = ckpt_sum(t, ckpt_mul(t, ckpt_mul(t, diff, diff), w), ~(~0u << d.ndim));
    const float rows = d.ndim > 0 ? (float)(desc_numel(&d) / d.shape[d.ndim - 1]) : 1.f;
    ckpt_tensor y = ckpt_affine(t, ckpt_reshape(t, sum, 0, NULL), 1.f / rows, 0.f);
    ops_pull(t, first, y, in[0], 1, &in[1], out);
}

OPS_DECOMPOSED(feature_distance_dx_grad, decompose_feature_distance_dx)

OPS_DEF(feature_distance_dx, .shape = feature_distance_dx_rule, .grad = feature_distance_dx_grad,
        .cost = cost_distance);

ckpt_tensor ckpt_feature_distance(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b, ckpt_tensor w)
{
    return OPS_RECORD(t, &op_feature_distance, (const char *)NULL, a, b, w);
}

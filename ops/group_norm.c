/* SPDX-License-Identifier: Apache-2.0 */
/* Group norm (Wu & He 2018) with its affine map, optionally followed by SiLU. */
#include "call.h"
#include "decompose.h"
#include "shapes/group_norm.h"
#include "ops.h"

static int check_group_norm(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0], *w = &call->in[1], *b = &call->in[2];
    const struct group_norm_attr *attr = call->attr;
    if (call_float(call, 0) || call_float(call, 1) || call_float(call, 2))
        return CKPT_ESHAPE;
    if (x->ndim < 2)
        return ckpt_call_fail(call, "x must be [N, ..., C]");
    int64_t c = x->shape[x->ndim - 1];
    if (attr->groups < 1 || c % attr->groups)
        return ckpt_call_fail(call, "%lld channels do not divide into %d groups", (long long)c,
                              (int)attr->groups);
    if (w->ndim != 1 || w->shape[0] != c || b->ndim != 1 || b->shape[0] != c)
        return ckpt_call_fail(call, "weight and bias must have one axis of size %lld",
                              (long long)c);
    if (w->dtype != x->dtype || b->dtype != x->dtype)
        return ckpt_call_fail(call, "x, the weight and the bias must have the same dtype");
    return call_eps(call, attr->eps);
}

static int group_norm_rule(struct ckpt_call *call)
{
    if (check_group_norm(call))
        return CKPT_ESHAPE;
    struct group_norm_shape s = group_norm_shape(&call->in[0], call->attr);
    call_like(call, 0, 0);
    call->out[1] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 3, .shape = {s.n, s.groups, 2}};
    desc_dense(&call->out[1]);
    return CKPT_OK;
}

static void group_norm_grad(struct ckpt_grad *g)
{
    ckpt_tensor in[] = {g->dout[0], g->in[0], g->in[1], g->in[2], g->out[1]};
    ckpt_record(g->tape, &op_group_norm_dx, 5, in, 3, g->din, g->attr,
                sizeof(struct group_norm_attr));
}

/* Statistics, affine map and the exponential of SiLU. */
static void group_norm_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    const struct group_norm_attr *attr = call->attr;
    *cost =
        (struct ckpt_cost){.flops = (attr->silu ? 32. : 8.) * (double)desc_numel(&call->out[0])};
}

OPS_DEF(group_norm, .shape = group_norm_rule, .grad = group_norm_grad, .cost = group_norm_cost);

/* {dy, x, w, b, stats} -> {dx, dw, db} */
static int group_norm_dx_rule(struct ckpt_call *call)
{
    for (int i = 0; i < 3; i++)
        call_like(call, i, i + 1);
    call->out[1].dtype = CKPT_F32;
    call->out[2].dtype = CKPT_F32;
    return CKPT_OK;
}

static void decompose_group_norm_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                    ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const struct group_norm_attr *attr = g->attr;
    const struct ckpt_desc d = ckpt_desc_of(t, in[1]);
    const struct group_norm_shape s = group_norm_shape(&d, attr);
    const int64_t shape[] = {s.n, s.rows, s.groups, s.width};
    const int first = ops_count(t);
    ckpt_tensor y = ckpt_reshape(t, in[1], 4, shape);
    y = ops_normalised(t, y, 1u << 1 | 1u << 3, attr->eps, true);
    y = ckpt_mul(t, ckpt_reshape(t, y, d.ndim, d.shape), in[2]);
    y = ckpt_add(t, y, in[3]);
    if (attr->silu)
        y = ckpt_mul(t, y, ckpt_sigmoid(t, y));
    ops_pull(t, first, y, in[0], 3, in + 1, out);
}

OPS_DECOMPOSED(group_norm_dx_grad, decompose_group_norm_dx)

OPS_DEF(group_norm_dx, .shape = group_norm_dx_rule, .grad = group_norm_dx_grad,
        .cost = group_norm_cost);

ckpt_tensor ckpt_group_norm_silu(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                 int groups, float eps, bool silu)
{
    OPS_CALL(t);
    struct group_norm_attr attr = {.groups = groups, .eps = eps, .silu = silu};
    ckpt_tensor in[] = {x, w, b}, out[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_record(t, &op_group_norm, 3, in, 2, out, &attr, sizeof attr);
    return out[0];
}

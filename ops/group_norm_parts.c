/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group norm of a tensor that exists in parts: moments of each part, merge, affine map.  Moments
 * are per row, and rows are merged in a fixed order, so the statistics have the same bits for any
 * division into parts.
 */
#include "ckpt.h"
#include "shapes/group_norm.h"
#include "ops.h"

/* A part does not see the contributions of the other parts, so there is no gradient. */
static void no_gradient(struct ckpt_grad *g)
{
    ckpt_tape_fail(g->tape, CKPT_EINVAL,
                   "group norm in parts has no gradient: train with ckpt_group_norm_silu");
}

static void cost_norm(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    const struct group_norm_attr *attr = call->attr;
    cost->flops = (attr->silu ? 28. : 4.) * (double)desc_numel(&call->in[0]);
}

/* ---- moments: x -> [N, H, groups, MOMENTS] --------------------------------------------------- */

static int moments_rule(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0];
    const struct group_norm_attr *attr = call->attr;
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    if (x->ndim < 3)
        return ckpt_call_fail(call, "x must be [N, H, ..., C]");
    if (attr->groups < 1 || x->shape[x->ndim - 1] % attr->groups)
        return ckpt_call_fail(call, "%lld channels do not divide into %d groups",
                              (long long)x->shape[x->ndim - 1], (int)attr->groups);
    call->out[0] = (struct ckpt_desc){
        .dtype = CKPT_F32, .ndim = 4, .shape = {x->shape[0], x->shape[1], attr->groups, MOMENTS}};
    return CKPT_OK;
}

OPS_DEF(group_norm_moments, .shape = moments_rule, .grad = no_gradient, .cost = cost_norm);

ckpt_tensor ckpt_group_norm_moments(ckpt_tape *t, ckpt_tensor x, int groups)
{
    struct group_norm_attr attr = {.groups = groups};
    return OPS_RECORD(t, &op_group_norm_moments, &attr, x);
}

/* ---- join: moments of every part -> [N, groups, 2] ------------------------------------------- */

/* Whether part has the samples and groups of m, with any number of rows. */
static bool are_moments(const struct ckpt_desc *m, const struct ckpt_desc *part)
{
    return part->dtype == CKPT_F32 && part->ndim == 4 && m->ndim == 4 &&
           part->shape[0] == m->shape[0] && part->shape[2] == m->shape[2] &&
           part->shape[3] == MOMENTS;
}

static int join_rule(struct ckpt_call *call)
{
    const struct ckpt_desc *m = &call->in[0];
    const struct group_norm_attr *attr = call->attr;
    for (int i = 0; i < call->n_in; i++)
        if (!are_moments(m, &call->in[i]))
            return ckpt_call_fail(call, "operand %d must be the moments of a part of x", i);
    if (call_eps(call, attr->eps))
        return CKPT_ESHAPE;
    call->out[0] =
        (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 3, .shape = {m->shape[0], m->shape[2], 2}};
    return CKPT_OK;
}

OPS_DEF(group_norm_join, .shape = join_rule, .grad = no_gradient);

ckpt_tensor ckpt_group_norm_join(ckpt_tape *t, int n, const ckpt_tensor *moments, float eps)
{
    struct group_norm_attr attr = {.eps = eps};
    if (n < 1 || n > CKPT_MAX_PARTS) {
        ckpt_tape_fail(t, CKPT_EINVAL, "group_norm_join: %d parts; there can be 1 to %d", n,
                       CKPT_MAX_PARTS);
        return CKPT_NONE;
    }
    return ops_record1(t, &op_group_norm_join, n, moments, &attr, sizeof attr);
}

/* ---- apply: {x, stats, w, b} -> y ------------------------------------------------------------ */

static int apply_rule(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0], *stats = &call->in[1];
    const struct group_norm_attr *attr = call->attr;
    if (call_float(call, 0) || call_float(call, 2) || call_float(call, 3))
        return CKPT_ESHAPE;
    if (x->ndim < 2)
        return ckpt_call_fail(call, "x must be [N, ..., C]");
    int64_t c = x->shape[x->ndim - 1];
    if (stats->dtype != CKPT_F32 || stats->ndim != 3 || stats->shape[0] != x->shape[0] ||
        stats->shape[2] != 2 || c % attr->groups)
        return ckpt_call_fail(call, "the statistics must be fp32 [N, groups, 2], with groups that "
                                    "divide the channels");
    for (int i = 2; i < 4; i++)
        if (call->in[i].ndim != 1 || call->in[i].shape[0] != c || call->in[i].dtype != x->dtype)
            return ckpt_call_fail(call,
                                  "weight and bias must have one axis of size %lld and "
                                  "the dtype of x",
                                  (long long)c);
    call_like(call, 0, 0);
    return CKPT_OK;
}

OPS_DEF(group_norm_apply, .shape = apply_rule, .grad = no_gradient, .cost = cost_norm);

ckpt_tensor ckpt_group_norm_apply(ckpt_tape *t, ckpt_tensor x, ckpt_tensor stats, ckpt_tensor w,
                                  ckpt_tensor b, bool silu)
{
    struct ckpt_desc d = ckpt_desc_of(t, stats);
    struct group_norm_attr attr = {.groups = d.ndim == 3 ? (int32_t)d.shape[1] : 1, .silu = silu};
    return OPS_RECORD(t, &op_group_norm_apply, &attr, x, stats, w, b);
}

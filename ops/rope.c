/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary embedding of pairs (Su et al. 2021) from a table of cosines and sines.  Pairs are adjacent
 * elements, or those at one place of the two halves of a row.  A rotation is orthogonal, so the
 * gradient is the inverse rotation.
 */
#include "ops.h"
#include "rope.h"

int rope_check(struct ckpt_call *call, int table, int axis)
{
    const struct ckpt_desc *x = &call->in[0], *angles = &call->in[table];
    if (axis < 0 || axis >= x->ndim - 1)
        return ckpt_call_fail(call, "axis %d must be one of x before its last", axis);
    int64_t n = x->shape[axis], d = x->shape[x->ndim - 1];
    if (d % 2)
        return ckpt_call_fail(call, "the last axis holds pairs: its size %lld must be even",
                              (long long)d);
    if (angles->dtype != CKPT_F32 || angles->ndim != 3 || angles->shape[0] != n ||
        angles->shape[1] != d / 2 || angles->shape[2] != 2 || !desc_is_dense(angles))
        return ckpt_call_fail(call, "the table must be dense fp32 [%lld, %lld, 2]", (long long)n,
                              (long long)(d / 2));
    return CKPT_OK;
}

struct ckpt_view rope_table_rows(const struct ckpt_view *table, const struct ckpt_desc *x, int axis)
{
    struct ckpt_view v = *table;
    int64_t d = v.desc.shape[1] * v.desc.shape[2];
    v.desc.ndim = x->ndim;
    for (int i = 0; i < v.desc.ndim; i++) {
        v.desc.shape[i] = i == axis ? x->shape[i] : 1;
        v.desc.stride[i] = d;
    }
    return v;
}

static int rope_shape(struct ckpt_call *call)
{
    const struct rope_attr *attr = call->attr;
    if (call_float(call, 0) || call_dense_rows(call, 0) || rope_check(call, 1, attr->axis))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 0);
    return CKPT_OK;
}

static void rope_grad(struct ckpt_grad *g)
{
    struct rope_attr attr = *(const struct rope_attr *)g->attr;
    attr.inverse = !attr.inverse;
    if (g->need[1])
        ckpt_tape_fail(g->tape, CKPT_EINVAL, "rope: the table of angles cannot be trained");
    g->din[0] = OPS_RECORD(g->tape, &op_rope, &attr, ops_dense_rows(g->tape, g->dout[0]), g->in[1]);
}

OPS_COST(rope_cost, 3.0, in[0])

OPS_DEF(rope, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS, .shape = rope_shape,
        .grad = rope_grad, .cost = rope_cost);

static ckpt_tensor record_rope(ckpt_tape *t, ckpt_tensor x, ckpt_tensor table, int axis,
                               bool halves)
{
    struct rope_attr attr = {.axis = axis, .halves = halves};
    return OPS_RECORD(t, &op_rope, &attr, ops_dense_rows(t, x), ckpt_contiguous(t, table));
}

ckpt_tensor ckpt_rope(ckpt_tape *t, ckpt_tensor x, ckpt_tensor table, int axis)
{
    return record_rope(t, x, table, axis, false);
}

ckpt_tensor ckpt_rope_halves(ckpt_tape *t, ckpt_tensor x, ckpt_tensor table, int axis)
{
    return record_rope(t, x, table, axis, true);
}

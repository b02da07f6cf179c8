/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of row groups, the layers of experts: rows are sorted by group, and a tensor of offsets
 * says where each group ends.  Sizes of groups are data, so one plan serves every routing: shapes,
 * scratch and costs are those of all rows together.
 *
 * The two ops are each other's gradients: y_g = x_g w_g is linear in x and w, dx_g = dy_g w_g^T is
 * the same op with the other transposition, and dw_g = x_g^T dy_g is the second op.
 */
#include "attr.h"
#include "grouped_matmul.h"
#include "ops.h"

static int check_rows(struct ckpt_call *call, int k)
{
    if (call_float(call, k))
        return CKPT_ESHAPE;
    if (call->in[k].ndim != 2)
        return ckpt_call_fail(call, "operand %d must have two axes, rows and columns", k);
    if (call->in[k].shape[0] >= INT32_MAX)
        return ckpt_call_fail(call, "there are too many rows for i32 offsets");
    return CKPT_OK;
}

static int check_offsets(struct ckpt_call *call)
{
    const struct ckpt_desc *offsets = &call->in[2];
    if (offsets->ndim != 1 || offsets->dtype != CKPT_I32)
        return ckpt_call_fail(call, "offsets must be i32 with one axis, the groups");
    return CKPT_OK;
}

static int grouped_matmul_shape(struct ckpt_call *call)
{
    const struct grouped_attr *attr = call->attr;
    const struct ckpt_desc *x = &call->in[0], *w = &call->in[1];
    if (check_rows(call, 0) || call_float(call, 1) || check_offsets(call))
        return CKPT_ESHAPE;
    if (w->ndim != 3 || w->shape[0] != call->in[2].shape[0])
        return ckpt_call_fail(call, "w must have three axes, and offsets one number for each group "
                                    "of w");
    if (x->dtype != w->dtype)
        return ckpt_call_fail(call, "x and w must have the same dtype; use ckpt_cast");
    const int64_t inner = w->shape[attr->transpose_w ? 2 : 1];
    if (x->shape[1] != inner)
        return ckpt_call_fail(call, "the summed axis has size %lld in x and %lld in w",
                              (long long)x->shape[1], (long long)inner);
    call->out[0] = (struct ckpt_desc){
        .dtype = x->dtype, .ndim = 2, .shape = {x->shape[0], w->shape[attr->transpose_w ? 1 : 2]}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

/* {a [rows, M], b [rows, N], offsets [groups]} -> [groups, M, N] */
static int grouped_matmul_dw_shape(struct ckpt_call *call)
{
    const struct linear_dw_attr *attr = call->attr;
    call->out[0] = (struct ckpt_desc){
        .dtype = (enum ckpt_dtype)attr->dtype,
        .ndim = 3,
        .shape = {call->in[2].shape[0], call->in[0].shape[1], call->in[1].shape[1]}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

static ckpt_tensor product(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor offsets,
                           bool transpose_w)
{
    const struct grouped_attr attr = {transpose_w};
    return OPS_RECORD(t, &op_grouped_matmul, &attr, x, w, offsets);
}

static void grouped_matmul_grad(struct ckpt_grad *g)
{
    const struct grouped_attr *attr = g->attr;
    const struct linear_dw_attr dw = {.dtype = g->want_bf16[1] ? CKPT_BF16 : CKPT_F32};
    ckpt_tensor x = g->in[0], w = g->in[1], offsets = g->in[2];
    /* A gradient that was summed is fp32 and wider than the operands. */
    ckpt_tensor dy = ckpt_cast(g->tape, g->dout[0], ckpt_desc_of(g->tape, x).dtype);
    if (g->need[0])
        g->din[0] = product(g->tape, dy, w, offsets, !attr->transpose_w);
    if (g->need[1])
        g->din[1] = attr->transpose_w
                        ? OPS_RECORD(g->tape, &op_grouped_matmul_dw, &dw, dy, x, offsets)
                        : OPS_RECORD(g->tape, &op_grouped_matmul_dw, &dw, x, dy, offsets);
}

/* dw_g = a_g^T b_g */
static void grouped_matmul_dw_grad(struct ckpt_grad *g)
{
    ckpt_tensor a = g->in[0], b = g->in[1], offsets = g->in[2];
    ckpt_tensor ddw = ckpt_cast(g->tape, g->dout[0], ckpt_desc_of(g->tape, a).dtype);
    if (g->need[0])
        g->din[0] = product(g->tape, b, ddw, offsets, true);
    if (g->need[1])
        g->din[1] = product(g->tape, a, ddw, offsets, false);
}

static void grouped_matmul_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2. * (double)desc_numel(&call->in[0]) * (double)call->out[0].shape[1];
}

static void grouped_matmul_dw_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2. * (double)desc_numel(&call->in[0]) * (double)call->in[1].shape[1];
}

OPS_DEF(grouped_matmul, .shape = grouped_matmul_shape, .grad = grouped_matmul_grad,
        .cost = grouped_matmul_cost);

OPS_DEF(grouped_matmul_dw, .flags = CKPT_OP_ACCUMULATE, .shape = grouped_matmul_dw_shape,
        .grad = grouped_matmul_dw_grad, .cost = grouped_matmul_dw_cost);

ckpt_tensor ckpt_grouped_matmul(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor offsets,
                                bool transpose_w)
{
    return product(t, x, w, offsets, transpose_w);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers, y = x w^T + b, optionally plus an addend: shapes, gradients and costs.
 *
 * - The gradient is three ops, bias, dx, dw, so a plan can recompute one of them or free its
 *   operands separately.  dw accumulates over micro-steps in fp32 unless the optimizer takes bf16.
 * - The bias gradient is the column sums of dy, an extra output of the op that produced dy if its
 *   kernel can write them, which saves a pass over dy.
 * - An addend replaces a separate add after the product, in forward and in dx.
 */
#include "attr.h"
#include "extra.h"
#include "fp8.h"
#include "ops.h"
#include "tape/tape.h"

static int64_t last_size(const struct ckpt_desc *d)
{
    return d->shape[d->ndim - 1];
}

/* Sets d to the shape of `in` with another last axis and dtype, dense. */
static void like_but_last(struct ckpt_desc *d, const struct ckpt_desc *in, int64_t last,
                          enum ckpt_dtype dtype)
{
    *d = *in;
    d->dtype = dtype;
    d->offset = 0;
    d->shape[d->ndim - 1] = last;
    desc_dense(d);
}

static int check_bias(struct ckpt_call *call)
{
    const struct ckpt_desc *w = &call->in[1], *b = &call->in[2];
    if (b->ndim < 0)
        return CKPT_OK;
    if (b->ndim != 1 || b->shape[0] != w->shape[0])
        return ckpt_call_fail(call, "the bias must have one axis of size %lld, the rows of w",
                              (long long)w->shape[0]);
    if (b->dtype != w->dtype)
        return ckpt_call_fail(call, "bias and w must have the same dtype");
    return CKPT_OK;
}

static int check_addend(struct ckpt_call *call)
{
    const struct ckpt_desc *y = &call->out[0], *a = &call->in[3];
    if (call->n_in < 4 || a->ndim < 0)
        return CKPT_OK;
    if (a->dtype != y->dtype)
        return ckpt_call_fail(call, "a and x must have the same dtype; use ckpt_cast");
    if (!desc_same_shape(a, y))
        return ckpt_call_fail(call,
                              "a must have the shape of the result, with a last axis of "
                              "size %lld",
                              (long long)last_size(y));
    return CKPT_OK;
}

static int linear_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0], *w = &call->in[1];
    if (call_float(call, 0) || call_float(call, 1))
        return CKPT_ESHAPE;
    if (x->dtype != w->dtype)
        return ckpt_call_fail(call, "x and w must have the same dtype; use ckpt_cast");
    if (x->ndim < 1 || w->ndim != 2)
        return ckpt_call_fail(call, "x must be [..., K] and w [N, K]");
    if (last_size(x) != w->shape[1])
        return ckpt_call_fail(call, "the last axis has size %lld in x and %lld in w",
                              (long long)last_size(x), (long long)w->shape[1]);
    if (check_bias(call))
        return CKPT_ESHAPE;
    like_but_last(&call->out[0], x, w->shape[0], x->dtype);
    return check_addend(call);
}

static int linear_dx_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *dy = &call->in[0], *w = &call->in[1];
    like_but_last(&call->out[0], dy, w->shape[1], w->dtype);
    return CKPT_OK;
}

static int linear_dw_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *dy = &call->in[0], *x = &call->in[1];
    const struct linear_dw_attr *attr = call->attr;
    const enum ckpt_dtype dtype = (enum ckpt_dtype)attr->dtype;
    call->out[0] =
        (struct ckpt_desc){.dtype = dtype, .ndim = 2, .shape = {last_size(dy), last_size(x)}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

struct ckpt_desc column_sum_desc(const struct ckpt_desc *x)
{
    struct ckpt_desc d = {.dtype = CKPT_F32, .ndim = 1, .shape = {last_size(x)}};
    desc_dense(&d);
    return d;
}

static int column_sum_shape(struct ckpt_call *call)
{
    call->out[0] = column_sum_desc(&call->in[0]);
    return CKPT_OK;
}

ckpt_tensor linear_column_sums_of(const ckpt_tape *t, ckpt_tensor dy)
{
    const struct tensor *v = &t->tensors.data[max_i64(0, dy.id)];
    const struct op *o = dy.id > 0 && v->op >= 0 && !v->index ? &t->ops.data[v->op] : NULL;
    const int sums = o ? extra_index(o->extra, o->n_out, EXTRA_SUMS) : -1;
    return sums < 0 ? CKPT_NONE : tape_handle(t, op_out(t, o, sums));
}

/* The column sums that were written with dy, or a pass over dy. */
ckpt_tensor linear_bias_gradient(ckpt_tape *t, ckpt_tensor dy)
{
    const ckpt_tensor left = linear_column_sums_of(t, dy);
    return left.id ? left : ops_record1(t, &op_column_sum, 1, &dy, NULL, 0);
}

/* The bias comes first: it is bound by memory, and dy is still in the cache. */
void linear_grad(struct ckpt_grad *grad)
{
    ckpt_tensor x = grad->in[0], w = grad->in[1], dy = grad->dout[0];
    struct linear_dw_attr dw = {.dtype = grad->want_bf16[1] ? CKPT_BF16 : CKPT_F32};
    if (grad->need[2])
        grad->din[2] = linear_bias_gradient(grad->tape, dy);
    if (grad->need[0])
        grad->din[0] = OPS_RECORD(grad->tape, &op_linear_dx, (const char *)NULL, dy, w, CKPT_NONE);
    if (grad->need[1])
        grad->din[1] =
            ops_record1(grad->tape, &op_linear_dw, 2, (ckpt_tensor[]){dy, x}, &dw, sizeof dw);
    if (grad->n_in > 3 && grad->need[3])
        grad->din[3] = dy;
}

/* dx = dy w + addend */
static void linear_dx_grad(struct ckpt_grad *g)
{
    ckpt_tensor dy = g->in[0], w = g->in[1], ddx = g->dout[0];
    struct linear_dw_attr dw = {.dtype = CKPT_F32};
    if (g->need[0])
        g->din[0] =
            ops_record1(g->tape, &op_linear, 3, (ckpt_tensor[]){ddx, w, CKPT_NONE}, NULL, 0);
    if (g->need[1])
        g->din[1] =
            ops_record1(g->tape, &op_linear_dw, 2, (ckpt_tensor[]){dy, ddx}, &dw, sizeof dw);
    if (g->need[2])
        g->din[2] = ddx;
}

/* dw = dy^T x */
static void linear_dw_grad(struct ckpt_grad *g)
{
    ckpt_tensor dy = g->in[0], x = g->in[1];
    ckpt_tensor ddw = ckpt_cast(g->tape, g->dout[0], ckpt_desc_of(g->tape, x).dtype);
    if (g->need[0])
        g->din[0] =
            ops_record1(g->tape, &op_linear, 3, (ckpt_tensor[]){x, ddw, CKPT_NONE}, NULL, 0);
    if (g->need[1])
        g->din[1] =
            ops_record1(g->tape, &op_linear_dx, 3, (ckpt_tensor[]){dy, ddw, CKPT_NONE}, NULL, 0);
}

static void column_sum_grad(struct ckpt_grad *g)
{
    struct ckpt_desc x = ckpt_desc_of(g->tape, g->in[0]);
    ckpt_tensor row = ckpt_cast(g->tape, g->dout[0], x.dtype);
    g->din[0] = ckpt_contiguous(g->tape, ckpt_expand(g->tape, row, x.ndim, x.shape));
}

/* Two flops per multiply-add: elements of the first operand times columns of the result. */
void linear_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2. * (double)desc_numel(&call->in[0]) * (double)last_size(&call->out[0]);
}

static void linear_dw_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2. * (double)desc_numel(&call->in[0]) * (double)last_size(&call->in[1]);
}

OPS_COST(column_sum_cost, 1., in[0])

OPS_DEF(linear, .shape = linear_shape, .grad = linear_grad, .cost = linear_cost);

OPS_DEF(linear_dx, .flags = CKPT_OP_ADDEND, .shape = linear_dx_shape, .grad = linear_dx_grad,
        .cost = linear_cost);

OPS_DEF(linear_dw, .flags = CKPT_OP_ACCUMULATE, .shape = linear_dw_shape, .grad = linear_dw_grad,
        .cost = linear_dw_cost);

OPS_DEF(column_sum, .flags = CKPT_OP_ACCUMULATE, .shape = column_sum_shape, .grad = column_sum_grad,
        .cost = column_sum_cost);

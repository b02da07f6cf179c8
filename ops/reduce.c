/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions and their adjoints: sum, mean, sum_to (the adjoint of broadcasting), broadcast.  Sums
 * are fp32, whatever the operand; axes that are summed keep size 1.  A mean is a sum with a factor.
 */
#include "call.h"
#include "ops.h"
#include "attr.h"
#include "sequence.h"

unsigned ops_axes(ckpt_tape *t, ckpt_tensor x, unsigned mask)
{
    const int ndim = ckpt_desc_of(t, x).ndim;
    return mask != CKPT_ALL_AXES ? mask : ndim > 0 ? (1u << ndim) - 1 : 0;
}

static ckpt_tensor record_sum(ckpt_tape *t, ckpt_tensor x, unsigned mask, float scale)
{
    struct sum_attr attr = {ops_axes(t, x, mask), scale};
    return ops_record1(t, &op_sum, 1, &x, &attr, sizeof attr);
}

ckpt_tensor ckpt_sum(ckpt_tape *t, ckpt_tensor x, unsigned mask)
{
    return record_sum(t, x, mask, 1.f);
}

ckpt_tensor ckpt_mean(ckpt_tape *t, ckpt_tensor x, unsigned mask)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    double n = 1;
    for (int i = 0; i < d.ndim; i++)
        n *= mask >> i & 1 ? (double)d.shape[i] : 1;
    return record_sum(t, x, mask, (float)(1 / n));
}

/* Rows that fusion takes whole: they end where another axis would make them longer than this. */
enum { TOTAL_ROW = 8192 };

/* The last axes that make a row; the first axis, the batch, has no part in the choice. */
static unsigned row_axes(const struct ckpt_desc *d)
{
    unsigned mask = 0;
    int64_t length = 1;
    for (int i = d->ndim - 1; i > 0 && (!mask || length * d->shape[i] <= TOTAL_ROW); i--) {
        mask |= 1u << i;
        length *= d->shape[i];
    }
    return mask;
}

ckpt_tensor ops_total(ckpt_tape *t, ckpt_tensor x, double scale)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const unsigned rows = row_axes(&d);
    if (rows)
        x = ckpt_sum(t, x, rows);
    x = record_sum(t, x, CKPT_ALL_AXES, (float)scale);
    sequence_total(t, x, scale * (double)desc_numel(&d));
    return ckpt_reshape(t, x, 0, NULL);
}

static int shape_sum(struct ckpt_call *call)
{
    const struct sum_attr *attr = call->attr;
    const struct ckpt_desc *x = &call->in[0];
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    if (attr->mask >> x->ndim)
        return ckpt_call_fail(call, "the mask 0x%x names axes that are not there", attr->mask);
    call_like(call, 0, 0);
    call->out[0].dtype = CKPT_F32;
    for (int i = 0; i < x->ndim; i++)
        if (attr->mask >> i & 1)
            call->out[0].shape[i] = 1;
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

static ckpt_tensor record_broadcast(ckpt_tape *t, ckpt_tensor x, const struct ckpt_desc *to,
                                    float scale)
{
    struct broadcast_attr attr = {.dtype = to->dtype, .scale = scale, .ndim = to->ndim};
    for (int i = 0; i < to->ndim; i++)
        attr.shape[i] = to->shape[i];
    return ops_record1(t, &op_broadcast, 1, &x, &attr, sizeof attr);
}

static void grad_sum(struct ckpt_grad *g)
{
    struct ckpt_desc x = ckpt_desc_of(g->tape, g->in[0]);
    g->din[0] =
        record_broadcast(g->tape, g->dout[0], &x, ((const struct sum_attr *)g->attr)->scale);
}

OPS_DEF(sum, .flags = CKPT_OP_STRIDED, .shape = shape_sum, .grad = grad_sum);

ckpt_tensor ops_sum_to(ckpt_tape *t, ckpt_tensor x, const struct ckpt_desc *like)
{
    struct sum_to_attr attr = {.ndim = like->ndim};
    for (int i = 0; i < like->ndim; i++)
        attr.shape[i] = like->shape[i];
    return ops_record1(t, &op_sum_to, 1, &x, &attr, sizeof attr);
}

static int shape_sum_to(struct ckpt_call *call)
{
    const struct sum_to_attr *attr = call->attr;
    const struct ckpt_desc *x = &call->in[0];
    struct ckpt_desc d = {.dtype = CKPT_F32, .ndim = (int)attr->ndim};
    if (d.ndim > x->ndim)
        return ckpt_call_fail(call, "the result cannot have more axes than the operand");
    for (int i = 0; i < d.ndim; i++) {
        d.shape[i] = attr->shape[i];
        if (d.shape[i] != 1 && d.shape[i] != x->shape[x->ndim - d.ndim + i])
            return ckpt_call_fail(call, "axis %d of the result must have size 1 or %lld", i,
                                  (long long)x->shape[x->ndim - d.ndim + i]);
    }
    desc_dense(&d);
    call->out[0] = d;
    return call_float(call, 0);
}

static void grad_sum_to(struct ckpt_grad *g)
{
    struct ckpt_desc x = ckpt_desc_of(g->tape, g->in[0]);
    g->din[0] = record_broadcast(g->tape, g->dout[0], &x, 1.f);
}

OPS_DEF(sum_to, .flags = CKPT_OP_STRIDED | CKPT_OP_ACCUMULATE, .shape = shape_sum_to,
        .grad = grad_sum_to);

static int shape_broadcast(struct ckpt_call *call)
{
    const struct broadcast_attr *attr = call->attr;
    const struct ckpt_desc *x = &call->in[0];
    struct ckpt_desc d = {.dtype = (enum ckpt_dtype)attr->dtype, .ndim = (int)attr->ndim};
    for (int i = 0; i < d.ndim; i++) {
        int axis = i - (d.ndim - x->ndim);
        d.shape[i] = attr->shape[i];
        if (axis >= 0 && x->shape[axis] != 1 && x->shape[axis] != d.shape[i])
            return ckpt_call_fail(call, "axis %d does not broadcast to size %lld", axis,
                                  (long long)d.shape[i]);
    }
    if (x->ndim > d.ndim)
        return ckpt_call_fail(call, "the operand has more axes than the result");
    desc_dense(&d);
    call->out[0] = d;
    return call_float(call, 0);
}

static void grad_broadcast(struct ckpt_grad *g)
{
    struct ckpt_desc x = ckpt_desc_of(g->tape, g->in[0]);
    ckpt_tensor sum = ops_sum_to(g->tape, g->dout[0], &x);
    float scale = ((const struct broadcast_attr *)g->attr)->scale;
    g->din[0] = scale == 1.f ? sum : ckpt_affine(g->tape, sum, scale, 0.f);
}

OPS_DEF(broadcast, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_broadcast,
        .grad = grad_broadcast);

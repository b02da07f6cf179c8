/* SPDX-License-Identifier: Apache-2.0 */
/* Copy (dense from any strides), cast and pad. */
#include "ops.h"
#include "attr.h"
#include "expr/expr.h"

ckpt_tensor ckpt_contiguous(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (d.ndim >= 0 && desc_is_dense(&d))
        return x;
    return ops_record1(t, &op_copy, 1, &x, NULL, 0);
}

static int shape_copy(struct ckpt_call *call)
{
    call_like(call, 0, 0);
    return CKPT_OK;
}

static void grad_same(struct ckpt_grad *g)
{
    g->din[0] = g->dout[0];
}

OPS_DEF(copy, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_copy,
        .grad = grad_same);

ckpt_tensor ckpt_cast(ckpt_tape *t, ckpt_tensor x, enum ckpt_dtype dtype)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    struct cast_attr attr = {(int32_t)dtype};
    if (d.ndim >= 0 && d.dtype == dtype)
        return x;
    if (d.dtype == CKPT_I32 || dtype == CKPT_I32)
        return expr_cast(t, x, dtype);
    return ops_record1(t, &op_cast, 1, &x, &attr, sizeof attr);
}

static int shape_cast(struct ckpt_call *call)
{
    int32_t dtype = ((const struct cast_attr *)call->attr)->dtype;
    if (dtype != CKPT_F32 && dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the new dtype must be fp32 or bf16");
    call_like(call, 0, 0);
    call->out[0].dtype = (enum ckpt_dtype)dtype;
    return call_float(call, 0);
}

/* The gradient of a bf16 input may stay fp32; the gradient of an fp32 input is cast to fp32. */
static void grad_cast(struct ckpt_grad *g)
{
    bool wide = ckpt_desc_of(g->tape, g->in[0]).dtype == CKPT_F32;
    g->din[0] = wide ? ckpt_cast(g->tape, g->dout[0], CKPT_F32) : g->dout[0];
}

OPS_DEF(cast, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_cast,
        .grad = grad_cast);

static int shape_pad(struct ckpt_call *call)
{
    const struct pad_attr *attr = call->attr;
    const struct ckpt_desc *x = &call->in[0];
    if (attr->axis < 0 || attr->axis >= x->ndim)
        return ckpt_call_fail(call, "there is no axis %d", attr->axis);
    if (attr->begin < 0 || attr->size - attr->begin < x->shape[attr->axis])
        return ckpt_call_fail(call, "the operand does not fit at %lld in an axis of size %lld",
                              (long long)attr->begin, (long long)attr->size);
    call_like(call, 0, 0);
    call->out[0].shape[attr->axis] = attr->size;
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

static void grad_pad(struct ckpt_grad *g)
{
    const struct pad_attr *attr = g->attr;
    struct ckpt_desc d = ckpt_desc_of(g->tape, g->in[0]);
    g->din[0] =
        ckpt_slice(g->tape, g->dout[0], attr->axis, attr->begin, attr->begin + d.shape[attr->axis]);
}

OPS_DEF(pad, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_pad, .grad = grad_pad);

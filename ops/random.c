/* SPDX-License-Identifier: Apache-2.0 */
/* Ops without operands: fill and randn. */
#include "ops.h"
#include "attr.h"

static ckpt_tensor record_make(ckpt_tape *t, const struct ckpt_op_def *def, float value,
                               enum ckpt_dtype dtype, int ndim, const int64_t *shape)
{
    struct make_attr attr = {.dtype = (int32_t)dtype, .value = value, .ndim = ndim};
    for (int i = 0; i < ndim && i < CKPT_MAX_DIMS; i++)
        attr.shape[i] = shape[i];
    return ops_record1(t, def, 0, NULL, &attr, sizeof attr);
}

static int shape_make(struct ckpt_call *call)
{
    const struct make_attr *attr = call->attr;
    struct ckpt_desc d = {.dtype = (enum ckpt_dtype)attr->dtype, .ndim = (int)attr->ndim};
    if (attr->ndim < 0 || attr->ndim > CKPT_MAX_DIMS)
        return ckpt_call_fail(call, "a tensor has 0 to %d axes, not %lld", CKPT_MAX_DIMS,
                              (long long)attr->ndim);
    for (int i = 0; i < d.ndim; i++)
        d.shape[i] = attr->shape[i];
    desc_dense(&d);
    call->out[0] = d;
    return CKPT_OK;
}

ckpt_tensor ops_fill(ckpt_tape *t, float value, enum ckpt_dtype dtype, int ndim,
                     const int64_t *shape)
{
    return record_make(t, &op_fill, value, dtype, ndim, shape);
}

OPS_DEF(fill, .flags = CKPT_OP_STRIDED_OUT, .shape = shape_make);

ckpt_tensor ckpt_randn(ckpt_tape *t, enum ckpt_dtype dtype, int ndim, const int64_t *shape)
{
    if (ndim > 0 && !shape) {
        ckpt_tape_fail(t, CKPT_EINVAL, "randn: no shape");
        return CKPT_NONE;
    }
    return record_make(t, &op_randn, 0.f, dtype, ndim, shape);
}

static int shape_randn(struct ckpt_call *call)
{
    int32_t dtype = ((const struct make_attr *)call->attr)->dtype;
    if (dtype != CKPT_F32 && dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the dtype must be fp32 or bf16");
    return shape_make(call);
}

/* Ten rounds of Philox, a logarithm, a square root and a sine or cosine per value. */
OPS_COST(cost_randn, 60.0, out[0])

OPS_DEF(randn, .shape = shape_randn, .cost = cost_randn);

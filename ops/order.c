/* SPDX-License-Identifier: Apache-2.0 */
/* Row-wise ops: results keep the memory order of the axes of their input, so no later op has to
 * transpose. */
#include "ops.h"

void call_like_memory(struct ckpt_call *call, int out, int in)
{
    call->out[out] = call->in[in];
    call->out[out].offset = 0;
    desc_dense_as(&call->out[out], &call->in[in]);
}

int call_dense_rows(struct ckpt_call *call, int in)
{
    const struct ckpt_desc *d = &call->in[in];
    if (d->ndim < 1)
        return ckpt_call_fail(call, "operand %d needs at least one axis", in);
    if (d->shape[d->ndim - 1] != 1 && d->stride[d->ndim - 1] != 1)
        return ckpt_call_fail(call, "the last axis of operand %d must be dense", in);
    return CKPT_OK;
}

ckpt_tensor ops_dense_rows(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (d.ndim < 1 || d.shape[d.ndim - 1] == 1 || d.stride[d.ndim - 1] == 1)
        return x;
    return ckpt_contiguous(t, x);
}

int call_row_vector(struct ckpt_call *call, int v, int x)
{
    const struct ckpt_desc *u = &call->in[v], *d = &call->in[x];
    if (call_dense_rows(call, v))
        return CKPT_ESHAPE;
    if (u->ndim != d->ndim || u->dtype != d->dtype)
        return ckpt_call_fail(call, "operand %d must have the rank and the dtype of operand %d", v,
                              x);
    for (int k = 0; k < d->ndim; k++) {
        bool last = k == d->ndim - 1;
        if (u->shape[k] == d->shape[k] || (u->shape[k] == 1 && !last))
            continue;
        return ckpt_call_fail(call, "axis %d of operand %d is %lld and must be %lld%s", k, v,
                              (long long)u->shape[k], (long long)d->shape[k], last ? "" : " or 1");
    }
    return CKPT_OK;
}

void call_sum_like(struct ckpt_call *call, int out, int v)
{
    call_like(call, out, v);
    call->out[out].dtype = CKPT_F32;
}

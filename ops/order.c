/* Memory order: results that keep the order of their input's axes, so that no bytes move later. */
#include "ops.h"

void call_like_memory(struct ckpt_call *call, int out, int in)
{
    const struct ckpt_desc *x = &call->in[in];
    struct ckpt_desc *y = &call->out[out];
    int axis[CKPT_MAX_DIMS];
    *y = *x;
    y->offset = 0;
    for (int i = 0; i < x->ndim; i++) {
        int j = i; /* insertion sort by stride; axes of equal stride keep their order */
        for (; j > 0 && x->stride[axis[j - 1]] < x->stride[i]; j--)
            axis[j] = axis[j - 1];
        axis[j] = i;
    }
    int64_t stride = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        y->stride[axis[i]] = stride;
        stride *= x->shape[axis[i]];
    }
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

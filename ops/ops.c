/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the shape and gradient rules of all families. */
#include <math.h>
#include "ops.h"

ckpt_tensor ops_record1(ckpt_tape *t, const struct ckpt_op_def *def, int n_in,
                        const ckpt_tensor *in, const void *attr, size_t attr_size)
{
    ckpt_tensor out = CKPT_NONE;
    if (ckpt_record(t, def, n_in, in, 1, &out, attr, attr_size))
        return CKPT_NONE;
    return out;
}

void call_like(struct ckpt_call *call, int out, int in)
{
    call->out[out] = call->in[in];
    call->out[out].offset = 0;
    desc_dense(&call->out[out]);
}

int call_float(struct ckpt_call *call, int in)
{
    enum ckpt_dtype dtype = call->in[in].dtype;
    if (call->in[in].ndim < 0)
        return ckpt_call_fail(call, "operand %d is missing", in);
    if (dtype == CKPT_F32 || dtype == CKPT_BF16)
        return CKPT_OK;
    return ckpt_call_fail(call, "operand %d is %s and must be fp32 or bf16", in, dtype_name(dtype));
}

int call_eps(struct ckpt_call *call, float eps)
{
    if (eps >= 0.f && isfinite(eps))
        return CKPT_OK;
    return ckpt_call_fail(call, "eps is %g and must be a finite number, 0 or more", (double)eps);
}

/* Size of d on the axis `axis` axes before the last, 1 if d has no such axis. */
static int64_t size_from_end(const struct ckpt_desc *d, int axis)
{
    return axis < d->ndim ? d->shape[d->ndim - 1 - axis] : 1;
}

int call_spread(struct ckpt_call *call, struct ckpt_desc *d, int in)
{
    const struct ckpt_desc *x = &call->in[in];
    struct ckpt_desc wide = {.dtype = d->dtype, .ndim = x->ndim > d->ndim ? x->ndim : d->ndim};
    for (int i = 0; i < wide.ndim; i++) {
        int64_t m = size_from_end(d, i), n = size_from_end(x, i);
        if (m != n && m != 1 && n != 1)
            return ckpt_call_fail(call,
                                  "operand %d does not broadcast with those before it: axis %d has "
                                  "sizes %lld and %lld; they must be equal or one of them 1",
                                  in, wide.ndim - 1 - i, (long long)m, (long long)n);
        wide.shape[wide.ndim - 1 - i] = m == 1 ? n : m;
    }
    *d = wide;
    return CKPT_OK;
}

int call_broadcast(struct ckpt_call *call, int out, int a, int b)
{
    struct ckpt_desc d = {.ndim = 0};
    if (call_float(call, a) || call_float(call, b) || call_spread(call, &d, a) ||
        call_spread(call, &d, b))
        return CKPT_ESHAPE;
    d.dtype = call->in[a].dtype == call->in[b].dtype ? call->in[a].dtype : CKPT_F32;
    desc_dense(&d);
    call->out[out] = d;
    return CKPT_OK;
}

void desc_dense_as(struct ckpt_desc *d, const struct ckpt_desc *order)
{
    int axes[CKPT_MAX_DIMS];
    /* Insertion sort: outermost first, ties keep their order.  A broadcast axis, of stride 0, has
     * no place in memory: it stays outside the axes behind it. */
    for (int i = 0; i < d->ndim; i++) {
        int j = i;
        for (; j > 0; j--) {
            const int64_t outer = order->stride[axes[j - 1]];
            if (!outer || outer >= order->stride[i])
                break;
            axes[j] = axes[j - 1];
        }
        axes[j] = i;
    }
    int64_t stride = 1;
    for (int i = d->ndim - 1; i >= 0; i--) {
        d->stride[axes[i]] = stride;
        stride *= d->shape[axes[i]];
    }
}

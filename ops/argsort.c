/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting along the last axis.  The kernel computes only the sorted indices (argsort).  sort and
 * topk gather the elements by these indices, so the gradient is the adjoint of the gather. */
#include "call.h"
#include "ops.h"
#include "argsort.h"

static int argsort_rule(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0];
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    if (x->ndim < 1 || x->shape[x->ndim - 1] > INT32_MAX)
        return ckpt_call_fail(call, "x must have a last axis of 1 to %d elements", INT32_MAX);
    call_like(call, 0, 0);
    call->out[0].dtype = CKPT_I32;
    return 0;
}

OPS_COST(argsort_cost, 64., in[0])

OPS_DEF(argsort, .shape = argsort_rule, .cost = argsort_cost);

ckpt_tensor ckpt_argsort(ckpt_tape *t, ckpt_tensor x, bool descending)
{
    struct sort_attr attr = {descending};
    return OPS_RECORD(t, &op_argsort, &attr, x);
}

/* The first k elements in sorted order. */
static ckpt_tensor sorted(ckpt_tape *t, ckpt_tensor x, int64_t k, bool descending,
                          ckpt_tensor *index)
{
    ckpt_tensor at = ckpt_argsort(t, x, descending);
    struct ckpt_desc d = ckpt_desc_of(t, at);
    int last = d.ndim - 1;
    if (at.id && k != d.shape[last])
        at = ckpt_contiguous(t, ckpt_slice(t, at, last, 0, k));
    if (index)
        *index = at;
    return at.id ? ckpt_gather(t, x, last, at) : CKPT_NONE;
}

ckpt_tensor ckpt_sort(ckpt_tape *t, ckpt_tensor x, bool descending, ckpt_tensor *index)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    return sorted(t, x, d.ndim > 0 ? d.shape[d.ndim - 1] : 1, descending, index);
}

ckpt_tensor ckpt_topk(ckpt_tape *t, ckpt_tensor x, int64_t k, ckpt_tensor *index)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (d.ndim > 0 && (k < 1 || k > d.shape[d.ndim - 1]))
        ckpt_tape_fail(t, CKPT_ESHAPE, "topk: k is %lld; the last axis has %lld elements",
                       (long long)k, (long long)d.shape[d.ndim - 1]);
    return sorted(t, x, k, true, index);
}

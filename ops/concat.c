/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Concatenation.  If every producer can write its part directly into the result (join), no bytes
 * are copied.  Otherwise a kernel copies them.
 */
#include <string.h>
#include "ops.h"
#include "tape/tape.h"

static int concat_shape(struct ckpt_call *call)
{
    int axis = *(const int *)call->attr;
    struct ckpt_desc *out = &call->out[0];
    *out = call->in[0];
    out->offset = 0;
    if (axis < 0 || axis >= out->ndim)
        return ckpt_call_fail(call, "there is no axis %d", axis);
    for (int i = 1; i < call->n_in; i++) {
        struct ckpt_desc d = call->in[i];
        int64_t size = d.ndim == out->ndim ? d.shape[axis] : 0;
        if (d.ndim >= 0 && d.dtype != out->dtype)
            return ckpt_call_fail(call,
                                  "operand %d has another dtype than operand 0; use ckpt_cast", i);
        d.shape[axis] = out->shape[axis];
        if (!desc_same_shape(&d, out))
            return ckpt_call_fail(call, "operand %d differs in more than axis %d", i, axis);
        out->shape[axis] += size;
    }
    desc_dense(out);
    return 0;
}

static void concat_grad(struct ckpt_grad *g)
{
    int axis = *(const int *)g->attr;
    int64_t at = 0;
    for (int i = 0; i < g->n_in; i++) {
        int64_t size = ckpt_desc_of(g->tape, g->in[i]).shape[axis];
        if (g->need[i])
            g->din[i] = ckpt_slice(g->tape, g->dout[0], axis, at, at + size);
        at += size;
    }
}

OPS_DEF(concat, .shape = concat_shape, .grad = concat_grad);

/* The parts already are in place in one storage, so the result has the strides of each part. */
static int join_shape(struct ckpt_call *call)
{
    if (concat_shape(call))
        return CKPT_ESHAPE;
    memcpy(call->out[0].stride, call->in[0].stride, sizeof call->out[0].stride);
    call->out[0].offset = call->in[0].offset;
    return CKPT_OK;
}

const struct ckpt_op_def op_join = {.size = sizeof(struct ckpt_op_def),
                                    .name = "concat",
                                    .flags = CKPT_OP_VIEW,
                                    .shape = join_shape,
                                    .grad = concat_grad};

/* The view of part i inside the whole. */
static struct ckpt_desc part_of(const struct ckpt_desc *whole, const struct ckpt_desc *part,
                                int axis, int64_t at)
{
    struct ckpt_desc d = *part;
    memcpy(d.stride, whole->stride, sizeof d.stride);
    d.offset = at * whole->stride[axis];
    return d;
}

/* Computes the shape of the result if every part can be written in place.  The axes of the result
 * have the memory order of the first part: a permuted part means that the reader wants this order.
 */
static bool can_join(ckpt_tape *t, int axis, int n, const ckpt_tensor *x, struct ckpt_desc *whole)
{
    struct ckpt_desc in[CKPT_MAX_PARTS];
    char reason[64];
    for (int i = 0; i < n; i++) {
        in[i] = ckpt_desc_of(t, x[i]);
        if (x[i].id <= 0 || in[i].ndim < 0)
            return false;
        for (int k = 0; k < i; k++)
            if (x[k].id == x[i].id)
                return false;
    }
    struct ckpt_call call = {.n_in = n,
                             .n_out = 1,
                             .in = in,
                             .out = whole,
                             .attr = &axis,
                             .message = reason,
                             .message_size = sizeof reason};
    if (concat_shape(&call))
        return false;
    if (!desc_is_dense(&in[0]))
        desc_dense_as(whole, &in[0]);
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        struct ckpt_desc as = part_of(whole, &in[i], axis, at);
        if (!tape_can_rehome(t, x[i], &as))
            return false;
        at += in[i].shape[axis];
    }
    return true;
}

static ckpt_tensor join(ckpt_tape *t, int axis, int n, const ckpt_tensor *x,
                        const struct ckpt_desc *whole)
{
    bool forward = t->phase == PHASE_FORWARD;
    ckpt_tensor onto = tape_new_tensor(t, whole, forward ? STORAGE_ACTIVATION : STORAGE_TEMPORARY);
    int64_t at = 0;
    for (int i = 0; i < n && onto.id; i++) {
        struct ckpt_desc d = ckpt_desc_of(t, x[i]), as = part_of(whole, &d, axis, at);
        tape_rehome(t, x[i], onto, &as);
        at += d.shape[axis];
    }
    return ops_record1(t, &op_join, n, x, &axis, sizeof axis);
}

ckpt_tensor ckpt_concat(ckpt_tape *t, int axis, int n, const ckpt_tensor *x)
{
    if (!t->error.code && (n < 1 || n > CKPT_MAX_PARTS))
        tape_fail(t, CKPT_ESHAPE, "concat: %d parts; 1 to %d are possible", n, CKPT_MAX_PARTS);
    if (!t->error.code && !x)
        tape_fail(t, CKPT_EINVAL, "concat: no tensors");
    if (t->error.code)
        return CKPT_NONE;
    struct ckpt_desc whole;
    if (tape_rewrites(t, REWRITE_PARTS) && can_join(t, axis, n, x, &whole))
        return join(t, axis, n, x, &whole);
    return ops_record1(t, &op_concat, n, x, &axis, sizeof axis);
}

ckpt_tensor ops_concat(ckpt_tape *t, int axis, int64_t n, ckpt_tensor *x)
{
    while (n > 1) {
        int64_t joined = 0;
        for (int64_t i = 0; i < n; i += CKPT_MAX_PARTS) {
            int64_t some = min_i64(n - i, CKPT_MAX_PARTS);
            x[joined++] = some > 1 ? ckpt_concat(t, axis, (int)some, x + i) : x[i];
        }
        n = joined;
    }
    return x[0];
}

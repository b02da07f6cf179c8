/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shape ops: expand, which is a view, and ops recorded as views, concat and lookups: repeat,
 * transpose, squeeze, stack, flip, roll, pad, one_hot, masked_fill.
 */
#include <stdlib.h>
#include <string.h>
#include "call.h"
#include "attr.h"
#include "ops.h"
#include "tape/tape.h"

/* ---- expand
 * ------------------------------------------------------------------------------------*/

static int expand_shape(struct ckpt_call *call)
{
    const struct sum_to_attr *attr = call->attr;
    const struct ckpt_desc *x = &call->in[0];
    struct ckpt_desc d = *x;
    d.ndim = (int)attr->ndim;
    if (x->ndim > d.ndim)
        return ckpt_call_fail(call, "the operand has more axes than the result");
    for (int i = 0; i < d.ndim; i++) {
        int axis = i - (d.ndim - x->ndim);
        int64_t own = axis < 0 ? 1 : x->shape[axis];
        d.shape[i] = attr->shape[i];
        d.stride[i] = axis < 0 || own != d.shape[i] ? 0 : x->stride[axis];
        if (own != 1 && own != d.shape[i])
            return ckpt_call_fail(call, "axis %d does not broadcast to size %lld", axis,
                                  (long long)d.shape[i]);
    }
    call->out[0] = d;
    return 0;
}

static void expand_grad(struct ckpt_grad *g)
{
    struct ckpt_desc x = ckpt_desc_of(g->tape, g->in[0]);
    g->din[0] = ops_sum_to(g->tape, g->dout[0], &x);
}

OPS_DEF(expand, .flags = CKPT_OP_VIEW | TAPE_OP_BROADCASTS, .shape = expand_shape,
        .grad = expand_grad);

static ckpt_tensor fail(ckpt_tape *t, const char *why)
{
    ckpt_tape_fail(t, CKPT_ESHAPE, "%s", why);
    return CKPT_NONE;
}

static bool has_axis(const struct ckpt_desc *d, int axis)
{
    return axis >= 0 && axis < d->ndim;
}

ckpt_tensor ckpt_expand(ckpt_tape *t, ckpt_tensor x, int ndim, const int64_t *shape)
{
    OPS_CALL(t);
    struct sum_to_attr attr = {.ndim = ndim};
    if (ndim < 0 || ndim > CKPT_MAX_DIMS)
        return fail(t, "the result has too many axes");
    if (ndim > 0 && !shape) {
        ckpt_tape_fail(t, CKPT_EINVAL, "no shape");
        return CKPT_NONE;
    }
    for (int i = 0; i < ndim; i++)
        attr.shape[i] = shape[i];
    return OPS_RECORD(t, &op_expand, &attr, x);
}

/* ---- axes
 * --------------------------------------------------------------------------------------*/

ckpt_tensor ckpt_unsqueeze(ckpt_tape *t, ckpt_tensor x, int axis)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (d.ndim < 0 || axis < 0 || axis > d.ndim || d.ndim == CKPT_MAX_DIMS)
        return fail(t, "an axis cannot be inserted there");
    for (int i = d.ndim++; i > axis; i--)
        d.shape[i] = d.shape[i - 1];
    d.shape[axis] = 1;
    return ckpt_reshape(t, x, d.ndim, d.shape);
}

ckpt_tensor ckpt_squeeze(ckpt_tape *t, ckpt_tensor x, int axis)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (!has_axis(&d, axis) || d.shape[axis] != 1)
        return fail(t, "there is no such axis, or its size is not 1");
    for (int i = axis; i < d.ndim - 1; i++)
        d.shape[i] = d.shape[i + 1];
    return ckpt_reshape(t, x, d.ndim - 1, d.shape);
}

ckpt_tensor ckpt_transpose(ckpt_tape *t, ckpt_tensor x, int axis, int other)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int axes[CKPT_MAX_DIMS];
    if (!has_axis(&d, axis) || !has_axis(&d, other))
        return fail(t, "there is no such axis");
    for (int i = 0; i < CKPT_MAX_DIMS; i++)
        axes[i] = i == axis ? other : i == other ? axis : i;
    return ckpt_permute(t, x, axes);
}

ckpt_tensor ckpt_stack(ckpt_tape *t, int axis, int n, const ckpt_tensor *x)
{
    OPS_CALL(t);
    ckpt_tensor part[CKPT_MAX_PARTS];
    if (n < 1 || n > CKPT_MAX_PARTS || !x) {
        ckpt_tape_fail(t, CKPT_EINVAL, "%d tensors; 1 to %d are possible", n, CKPT_MAX_PARTS);
        return CKPT_NONE;
    }
    for (int i = 0; i < n; i++)
        part[i] = ckpt_unsqueeze(t, x[i], axis);
    return ckpt_concat(t, axis, n, part);
}

ckpt_tensor ckpt_repeat(ckpt_tape *t, ckpt_tensor x, const int64_t *times)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (!times) {
        ckpt_tape_fail(t, CKPT_EINVAL, "times is NULL");
        return CKPT_NONE;
    }
    if (d.ndim < 0)
        return fail(t, "the operand is missing");
    for (int i = 0; i < d.ndim; i++) {
        struct ckpt_desc wide = ckpt_desc_of(t, x);
        if (times[i] == 1)
            continue;
        if (wide.ndim == CKPT_MAX_DIMS)
            return fail(t, "the operand has too many axes");
        x = ckpt_unsqueeze(t, x, i);
        wide = ckpt_desc_of(t, x);
        wide.shape[i] = times[i];
        x = ckpt_expand(t, x, wide.ndim, wide.shape);
        for (int k = i; k < wide.ndim - 1; k++)
            wide.shape[k] = wide.shape[k + 1];
        if (__builtin_mul_overflow(wide.shape[i], times[i], &wide.shape[i]))
            return fail(t, "the result would be too large");
        x = ckpt_reshape(t, x, wide.ndim - 1, wide.shape);
    }
    return x;
}

/* ---- order along an axis
 * -----------------------------------------------------------------------*/

ckpt_tensor ckpt_flip(ckpt_tape *t, ckpt_tensor x, int axis)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (!has_axis(&d, axis))
        return fail(t, "there is no such axis");
    int64_t n = d.shape[axis];
    ckpt_tensor back = ckpt_affine(t, ckpt_iota(t, CKPT_F32, 1, &n, 0), -1.f, (float)(n - 1));
    return ckpt_index_select(t, x, axis, ckpt_cast(t, back, CKPT_I32));
}

ckpt_tensor ckpt_roll(ckpt_tape *t, ckpt_tensor x, int axis, int64_t shift)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (!has_axis(&d, axis))
        return fail(t, "there is no such axis");
    int64_t n = d.shape[axis], up = (shift % n + n) % n;
    if (up == 0)
        return x;
    ckpt_tensor part[] = {ckpt_slice(t, x, axis, n - up, n), ckpt_slice(t, x, axis, 0, n - up)};
    return ckpt_concat(t, axis, 2, part);
}

/* The padding at one end: n elements. */
static ckpt_tensor padding_of(ckpt_tape *t, ckpt_tensor x, int axis, int64_t n, bool front,
                              enum ckpt_padding mode, float value)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t size = d.shape[axis];
    if (mode == CKPT_PAD_REFLECT)
        return ckpt_flip(t,
                         front ? ckpt_slice(t, x, axis, 1, n + 1)
                               : ckpt_slice(t, x, axis, size - 1 - n, size - 1),
                         axis);
    d.shape[axis] = n;
    if (mode == CKPT_PAD_CONSTANT)
        return ops_fill(t, value, d.dtype, d.ndim, d.shape);
    return ckpt_expand(t, ckpt_slice(t, x, axis, front ? 0 : size - 1, front ? 1 : size), d.ndim,
                       d.shape);
}

ckpt_tensor ckpt_pad(ckpt_tape *t, ckpt_tensor x, int axis, int64_t before, int64_t after,
                     enum ckpt_padding mode, float value)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor part[3];
    int n = 0;
    if (!has_axis(&d, axis))
        return fail(t, "there is no such axis");
    if (before < 0 || after < 0 || mode < CKPT_PAD_CONSTANT || mode > CKPT_PAD_REPLICATE)
        return fail(t, "the mode is unknown, or a number of elements negative");
    if (mode == CKPT_PAD_REFLECT && (before >= d.shape[axis] || after >= d.shape[axis]))
        return fail(t, "reflection takes fewer elements than the axis has");
    if (before)
        part[n++] = padding_of(t, x, axis, before, true, mode, value);
    part[n++] = x;
    if (after)
        part[n++] = padding_of(t, x, axis, after, false, mode, value);
    return n == 1 ? x : ckpt_concat(t, axis, n, part);
}

/* ---- masks
 * -------------------------------------------------------------------------------------*/

ckpt_tensor ckpt_one_hot(ckpt_tape *t, ckpt_tensor index, int64_t classes, enum ckpt_dtype dtype)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, index);
    if (d.ndim >= 0 && d.dtype != CKPT_I32)
        return fail(t, "the index must be i32");
    if (classes < 1)
        return fail(t, "there must be at least one class");
    ckpt_tensor at = ckpt_unsqueeze(t, index, d.ndim);
    ckpt_tensor equal = ckpt_eq(t, at, ckpt_iota(t, CKPT_I32, 1, &classes, 0));
    return ckpt_cast(t, equal, dtype);
}

ckpt_tensor ckpt_masked_fill(ckpt_tape *t, ckpt_tensor x, ckpt_tensor mask, float value)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    return ckpt_where(t, mask, ops_fill(t, value, d.dtype, 0, NULL), x);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Views: reshape, permute, slice, split.  No kernels; only shapes, strides and offsets change. */
#include <stdlib.h>
#include <string.h>
#include "ops.h"
#include "tape/tape.h"

struct reshape_attr {
    int ndim;
    int64_t shape[CKPT_MAX_DIMS];
};

struct permute_attr {
    int axes[CKPT_MAX_DIMS];
};

/* ---- reshape ---- */

/*
 * Computes the strides of d viewed with another shape.  Contiguous old axes are merged first.
 * Returns false if a new axis would span axes that cannot be merged.
 */
static bool reshape_strides(const struct ckpt_desc *d, struct ckpt_desc *to)
{
    int64_t shape[CKPT_MAX_DIMS], stride[CKPT_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < d->ndim; i++) {
        if (d->shape[i] == 1)
            continue;
        if (n && stride[n - 1] == d->stride[i] * d->shape[i]) {
            shape[n - 1] *= d->shape[i];
            stride[n - 1] = d->stride[i];
        } else {
            shape[n] = d->shape[i];
            stride[n++] = d->stride[i];
        }
    }
    /* Every new axis must fit into one merged old axis, from the right. */
    int64_t left = n ? shape[n - 1] : 1, step = n ? stride[n - 1] : 1;
    for (int i = to->ndim - 1; i >= 0; i--) {
        if (to->shape[i] == 1) {
            to->stride[i] = step;
            continue;
        }
        if (left == 1 && --n > 0) {
            left = shape[n - 1];
            step = stride[n - 1];
        }
        if (left % to->shape[i])
            return false;
        to->stride[i] = step;
        step *= to->shape[i];
        left /= to->shape[i];
    }
    return true;
}

static int reshape_shape(struct ckpt_call *call)
{
    const struct reshape_attr *a = call->attr;
    struct ckpt_desc *out = &call->out[0];
    *out = (struct ckpt_desc){
        .dtype = call->in[0].dtype, .ndim = a->ndim, .offset = call->in[0].offset};
    memcpy(out->shape, a->shape, sizeof out->shape);
    if (!desc_is_sane(out))
        return ckpt_call_fail(call,
                              "sizes must be positive, except for one -1, and their product must "
                              "divide %lld elements",
                              (long long)desc_numel(&call->in[0]));
    if (desc_numel(out) != desc_numel(&call->in[0]))
        return ckpt_call_fail(call, "%lld elements cannot become %lld",
                              (long long)desc_numel(&call->in[0]), (long long)desc_numel(out));
    if (!reshape_strides(&call->in[0], out))
        return ckpt_call_fail(call, "these strides cannot be merged");
    return 0;
}

static void reshape_grad(struct ckpt_grad *g)
{
    struct ckpt_desc d = ckpt_desc_of(g->tape, g->in[0]);
    g->din[0] = ckpt_reshape(g->tape, g->dout[0], d.ndim, d.shape);
}

OPS_DEF(reshape, .flags = CKPT_OP_VIEW, .shape = reshape_shape, .grad = reshape_grad);

/* Replaces a -1 by the remaining size. */
static void infer_axis(struct reshape_attr *a, int64_t numel)
{
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] == -1 && open < 0)
            open = i;
        else if (__builtin_mul_overflow(known, a->shape[i], &known))
            return; /* the shape rule fails */
    }
    if (open >= 0 && known > 0 && numel % known == 0)
        a->shape[open] = numel / known;
}

ckpt_tensor ckpt_reshape(ckpt_tape *t, ckpt_tensor x, int ndim, const int64_t *shape)
{
    struct reshape_attr a = {.ndim = ndim};
    if (!t->error.code && (ndim < 0 || ndim > CKPT_MAX_DIMS))
        tape_fail(t, CKPT_ESHAPE, "reshape: %d axes; at most %d are possible", ndim, CKPT_MAX_DIMS);
    if (!t->error.code && ndim > 0 && !shape)
        tape_fail(t, CKPT_EINVAL, "reshape: no shape");
    const struct tensor *v = tape_tensor(t, x);
    if (!v)
        return CKPT_NONE;
    if (ndim > 0)
        memcpy(a.shape, shape, sizeof *shape * (size_t)ndim);
    infer_axis(&a, desc_numel(&v->desc));
    struct ckpt_desc as = {.ndim = ndim};
    memcpy(as.shape, a.shape, sizeof as.shape);
    if (desc_is_sane(&as) && desc_numel(&as) == desc_numel(&v->desc) &&
        !reshape_strides(&v->desc, &as))
        x = ckpt_contiguous(t, x);
    return OPS_RECORD(t, &op_reshape, &a, x);
}

/* ---- permute ---- */

static int permute_shape(struct ckpt_call *call)
{
    const struct permute_attr *a = call->attr;
    const struct ckpt_desc *in = &call->in[0];
    struct ckpt_desc *out = &call->out[0];
    unsigned seen = 0;
    *out = *in;
    for (int i = 0; i < in->ndim; i++) {
        if (a->axes[i] < 0 || a->axes[i] >= in->ndim || (seen & 1u << a->axes[i]))
            return ckpt_call_fail(call, "axis list is not a permutation of 0..%d", in->ndim - 1);
        seen |= 1u << a->axes[i];
        out->shape[i] = in->shape[a->axes[i]];
        out->stride[i] = in->stride[a->axes[i]];
    }
    return 0;
}

static void permute_grad(struct ckpt_grad *g)
{
    const struct permute_attr *a = g->attr;
    int back[CKPT_MAX_DIMS] = {0};
    int n = ckpt_desc_of(g->tape, g->in[0]).ndim;
    for (int i = 0; i < n; i++)
        back[a->axes[i]] = i;
    g->din[0] = ckpt_permute(g->tape, g->dout[0], back);
}

OPS_DEF(permute, .flags = CKPT_OP_VIEW, .shape = permute_shape, .grad = permute_grad);

ckpt_tensor ckpt_permute(ckpt_tape *t, ckpt_tensor x, const int *axes)
{
    struct permute_attr a = {{0}};
    const struct tensor *v = tape_tensor(t, x);
    if (!v)
        return CKPT_NONE;
    if (!axes) {
        tape_fail(t, CKPT_EINVAL, "permute: no axes");
        return CKPT_NONE;
    }
    memcpy(a.axes, axes, sizeof *axes * (size_t)v->desc.ndim);
    return OPS_RECORD(t, &op_permute, &a, x);
}

/* ---- slice ---- */

static int slice_shape(struct ckpt_call *call)
{
    const struct slice_attr *a = call->attr;
    const struct ckpt_desc *in = &call->in[0];
    if (a->axis < 0 || a->axis >= in->ndim)
        return ckpt_call_fail(call, "there is no axis %d", a->axis);
    if (a->begin < 0 || a->end <= a->begin || a->end > in->shape[a->axis])
        return ckpt_call_fail(call, "[%lld, %lld) is not inside axis %d", (long long)a->begin,
                              (long long)a->end, a->axis);
    call->out[0] = *in;
    call->out[0].shape[a->axis] = a->end - a->begin;
    call->out[0].offset += a->begin * in->stride[a->axis];
    return 0;
}

/* Zeros for the elements [begin, end) of the axis. */
static ckpt_tensor gap(ckpt_tape *t, const struct ckpt_desc *x, enum ckpt_dtype dtype, int axis,
                       int64_t begin, int64_t end)
{
    struct ckpt_desc d = *x;
    d.shape[axis] = end - begin;
    return ops_fill(t, 0.f, dtype, d.ndim, d.shape);
}

ckpt_tensor ops_unslice(ckpt_tape *t, const struct ckpt_desc *x, int64_t n,
                        const struct ops_part *parts)
{
    const int axis = parts[0].of.axis;
    struct pad_attr pad = {axis, parts[0].of.begin, x->shape[axis]};
    if (n == 1)
        return OPS_RECORD(t, &op_pad, &pad, parts[0].g);
    const enum ckpt_dtype dtype = ckpt_desc_of(t, parts[0].g).dtype;
    ckpt_tensor *all = calloc((size_t)(2 * n + 1), sizeof *all), whole = CKPT_NONE;
    int64_t count = 0, at = 0;
    for (int64_t i = 0; i < n && all; i++) {
        if (parts[i].of.begin > at)
            all[count++] = gap(t, x, dtype, axis, at, parts[i].of.begin);
        all[count++] = parts[i].g;
        at = parts[i].of.end;
    }
    if (all && at < x->shape[axis])
        all[count++] = gap(t, x, dtype, axis, at, x->shape[axis]);
    if (all)
        whole = ops_concat(t, axis, count, all);
    else
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for %lld slices", (long long)n);
    free(all);
    return whole;
}

static void slice_grad(struct ckpt_grad *g)
{
    const struct ops_part part = {*(const struct slice_attr *)g->attr, g->dout[0]};
    struct ckpt_desc x = ckpt_desc_of(g->tape, g->in[0]);
    g->din[0] = ops_unslice(g->tape, &x, 1, &part);
}

OPS_DEF(slice, .flags = CKPT_OP_VIEW, .shape = slice_shape, .grad = slice_grad);

ckpt_tensor ckpt_slice(ckpt_tape *t, ckpt_tensor x, int axis, int64_t begin, int64_t end)
{
    struct slice_attr a = {axis, begin, end};
    return OPS_RECORD(t, &op_slice, &a, x);
}

/* ---- split ---- */

static int split_shape(struct ckpt_call *call)
{
    int axis = *(const int *)call->attr;
    const struct ckpt_desc *in = &call->in[0];
    if (axis < 0 || axis >= in->ndim)
        return ckpt_call_fail(call, "there is no axis %d", axis);
    if (in->shape[axis] % call->n_out)
        return ckpt_call_fail(call, "axis %d does not divide into %d equal parts", axis,
                              call->n_out);
    int64_t part = in->shape[axis] / call->n_out;
    for (int i = 0; i < call->n_out; i++) {
        call->out[i] = *in;
        call->out[i].shape[axis] = part;
        call->out[i].offset += i * part * in->stride[axis];
    }
    return 0;
}

static void split_grad(struct ckpt_grad *g)
{
    ckpt_tensor part[CKPT_MAX_PARTS];
    for (int i = 0; i < g->n_out; i++) {
        struct ckpt_desc d = ckpt_desc_of(g->tape, g->out[i]);
        part[i] = g->dout[i].id ? g->dout[i] : ops_fill(g->tape, 0.f, d.dtype, d.ndim, d.shape);
    }
    g->din[0] = ckpt_concat(g->tape, *(const int *)g->attr, g->n_out, part);
}

OPS_DEF(split, .flags = CKPT_OP_VIEW, .shape = split_shape, .grad = split_grad);

void ckpt_split(ckpt_tape *t, ckpt_tensor x, int axis, int n, ckpt_tensor *out)
{
    if (!t->error.code && (n < 1 || n > CKPT_MAX_PARTS))
        tape_fail(t, CKPT_ESHAPE, "split: %d parts; 1 to %d are possible", n, CKPT_MAX_PARTS);
    if (!t->error.code && !out)
        tape_fail(t, CKPT_EINVAL, "split: out is NULL");
    if (!t->error.code)
        ckpt_record(t, &op_split, 1, &x, n, out, &axis, sizeof axis);
    else if (out && n > 0 && n <= CKPT_MAX_PARTS)
        memset(out, 0, sizeof *out * (size_t)n);
}

/* ---- stop_gradient ---- */

static int stop_gradient_shape(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return CKPT_OK;
}

OPS_DEF(stop_gradient, .flags = CKPT_OP_VIEW, .shape = stop_gradient_shape);

ckpt_tensor ckpt_stop_gradient(ckpt_tape *t, ckpt_tensor x)
{
    return ops_record1(t, &op_stop_gradient, 1, &x, NULL, 0);
}

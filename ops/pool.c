/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling over one to three axes, channels last.  The gradient of max pooling finds the maximum
 * again in x, so no indices are kept.  A position of x in several windows sums their gradients in
 * window order, so there are no atomics.
 */
#include <math.h>
#include <string.h>
#include "ops.h"
#include "shapes/pool.h"
#include "core/sized.h"
#include "tape/tape.h"

/* One comparison or addition per window position. */
static void cost_of(const struct ckpt_call *call, const struct ckpt_desc *result,
                    struct ckpt_cost *cost)
{
    const struct pool_attr *a = call->attr;
    const int64_t *w = a->window;
    cost->flops = (double)desc_numel(result) * (double)(w[0] * w[1] * w[2]);
}

static void pool_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost_of(call, &call->out[0], cost);
}

static void pool_dx_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost_of(call, &call->in[0], cost);
}

static int check_axis(struct ckpt_call *call, int axis, int64_t size, int i)
{
    const struct pool_attr *a = call->attr;
    const int64_t max = INT32_MAX;
    if (a->window[i] < 1 || a->stride[i] < 1 || a->stride[i] > max)
        return ckpt_call_fail(call, "a window of %lld with a stride of %lld; they must be above 0",
                              (long long)a->window[i], (long long)a->stride[i]);
    if (a->before[i] < 0 || a->after[i] < 0 || a->before[i] >= a->window[i] ||
        a->after[i] >= a->window[i] || a->before[i] > max || a->after[i] > max)
        return ckpt_call_fail(call,
                              "padding of %lld and %lld; it must be 0 to less than the window "
                              "of %lld",
                              (long long)a->before[i], (long long)a->after[i],
                              (long long)a->window[i]);
    if (a->window[i] > size + a->before[i] + a->after[i])
        return ckpt_call_fail(call,
                              "a window of %lld does not fit axis %d of size %lld with its padding",
                              (long long)a->window[i], axis, (long long)size);
    return CKPT_OK;
}

static int pool_rule(struct ckpt_call *call)
{
    struct ckpt_desc *d = &call->out[0];
    const struct ckpt_desc *x = &call->in[0];
    double places = 1, results = 1, taps = 1;
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    if (x->ndim < 3 || x->ndim > 5)
        return ckpt_call_fail(call, "x must be [N, ..., C] with one to three axes between");
    const struct pool_attr *a = call->attr;
    for (int i = 1; i < x->ndim - 1; i++) {
        int k = i - 1 + 5 - x->ndim;
        if (check_axis(call, i, x->shape[i], k))
            return CKPT_ESHAPE;
        places *= (double)x->shape[i];
        results *=
            (double)((x->shape[i] + a->before[k] + a->after[k] - a->window[k]) / a->stride[k] + 1);
    }
    for (int i = 0; i < 3; i++)
        taps *= (double)a->window[i];
    if (places > INT32_MAX || results > INT32_MAX || taps > INT32_MAX)
        return ckpt_call_fail(call, "a sample, its result, or a window has more than %d positions",
                              INT32_MAX);
    struct pool_shape s = pool_shape(x, a);
    call_like(call, 0, 0);
    for (int i = 1; i < d->ndim - 1; i++)
        d->shape[i] = s.size[i - 1 + 5 - d->ndim];
    desc_dense(d);
    return CKPT_OK;
}

/* {dy, x} -> dx */
static int max_pool_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return CKPT_OK;
}

static void max_pool_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_max_pool_dx, (const struct pool_attr *)g->attr, g->dout[0],
                           g->in[0]);
}

OPS_DEF(max_pool, .shape = pool_rule, .grad = max_pool_grad, .cost = pool_cost);

/* Pads x with `value` where windows reach beyond its ends, and so far that each tap can be sliced
 * with the stride. */
static ckpt_tensor pad_windows(ckpt_tape *t, ckpt_tensor x, const struct pool_attr *a,
                               const struct pool_shape *s, float value)
{
    const int ndim = ckpt_desc_of(t, x).ndim;
    for (int i = 1; i < ndim - 1; i++) {
        const int k = i - 1 + 5 - ndim;
        int64_t after = a->window[k] - 1 + s->size[k] * a->stride[k] - a->before[k] - s->from[k];
        if (a->before[k] || after)
            x = ckpt_pad(t, x, i, a->before[k], after, CKPT_PAD_CONSTANT, value);
    }
    return x;
}

/* The element at position `at` of each window, from the result of pad_windows. */
static ckpt_tensor tap_of(ckpt_tape *t, ckpt_tensor x, const struct pool_attr *a,
                          const struct pool_shape *s, const int64_t at[3])
{
    const int ndim = ckpt_desc_of(t, x).ndim;
    for (int i = 1; i < ndim - 1; i++) {
        const int k = i - 1 + 5 - ndim;
        x = ckpt_slice(t, x, i, at[k], at[k] + s->size[k] * a->stride[k]);
        struct ckpt_desc d = ckpt_desc_of(t, x), split = d;
        split.ndim++;
        memmove(split.shape + i + 1, d.shape + i, sizeof *d.shape * (size_t)(ndim - i));
        split.shape[i] = s->size[k];
        split.shape[i + 1] = a->stride[k];
        d.shape[i] = s->size[k];
        x = ckpt_slice(t, ckpt_reshape(t, x, split.ndim, split.shape), i + 1, 0, 1);
        x = ckpt_reshape(t, x, ndim, d.shape);
    }
    return x;
}

/* Linear in dy: the element of the gradient at the first maximum of each window.  Visits the
 * positions of the windows in order. */
static void max_pool_dx_grad(struct ckpt_grad *g)
{
    ckpt_tape *t = g->tape;
    const struct pool_attr *a = g->attr;
    const struct ckpt_desc d = ckpt_desc_of(t, g->in[1]);
    const struct pool_shape s = pool_shape(&d, a);
    ckpt_tensor y = OPS_RECORD(t, &op_max_pool, a, g->in[1]), found = CKPT_NONE;
    ckpt_tensor x = pad_windows(t, g->in[1], a, &s, -INFINITY);
    ckpt_tensor from = pad_windows(t, g->dout[0], a, &s, 0.f);
    ckpt_tensor sum = ckpt_full(t, 0.f, ckpt_desc_of(t, from).dtype, 0, NULL);
    for (int64_t i = 0; i < a->window[0] * a->window[1] * a->window[2] && !t->error.code; i++) {
        const int64_t at[] = {i / a->window[2] / a->window[1], i / a->window[2] % a->window[1],
                              i % a->window[2]};
        ckpt_tensor hit = ckpt_eq(t, tap_of(t, x, a, &s, at), y);
        if (found.id)
            hit = ckpt_and(t, hit, ckpt_not(t, found));
        found = found.id ? ckpt_or(t, found, hit) : hit;
        sum = ckpt_where(t, hit, tap_of(t, from, a, &s, at), sum);
    }
    g->din[0] = sum;
}

OPS_DEF(max_pool_dx, .shape = max_pool_dx_rule, .grad = max_pool_dx_grad, .cost = pool_dx_cost);

/* {dy} -> dx of the sizes in the attribute. */
struct avg_dx_attr {
    struct pool_attr pool; /* must be first: kernels and avg_pool read it as their attribute */
    int64_t from[3];
};

static int avg_pool_dx_rule(struct ckpt_call *call)
{
    const struct avg_dx_attr *a = call->attr;
    struct ckpt_desc *d = &call->out[0];
    call_like(call, 0, 0);
    memcpy(d->shape + 1, a->from + 5 - d->ndim, sizeof *d->shape * (size_t)(d->ndim - 2));
    desc_dense(d);
    return CKPT_OK;
}

static void avg_pool_grad(struct ckpt_grad *g)
{
    struct ckpt_desc x = ckpt_desc_of(g->tape, g->in[0]);
    struct avg_dx_attr attr = {.pool = *(const struct pool_attr *)g->attr, .from = {1, 1, 1}};
    memcpy(attr.from + 5 - x.ndim, x.shape + 1, sizeof *x.shape * (size_t)(x.ndim - 2));
    g->din[0] = OPS_RECORD(g->tape, &op_avg_pool_dx, &attr, g->dout[0]);
}

/* Linear: the average of the gradients. */
static void avg_pool_dx_grad(struct ckpt_grad *g)
{
    const struct avg_dx_attr *a = g->attr;
    g->din[0] = OPS_RECORD(g->tape, &op_avg_pool, &a->pool, g->dout[0]);
}

OPS_DEF(avg_pool, .shape = pool_rule, .grad = avg_pool_grad, .cost = pool_cost);

OPS_DEF(avg_pool_dx, .shape = avg_pool_dx_rule, .grad = avg_pool_dx_grad, .cost = pool_dx_cost);

static ckpt_tensor record(ckpt_tape *t, const struct ckpt_op_def *def, ckpt_tensor x,
                          const int64_t *window, const struct ckpt_pool_spec *spec)
{
    struct ckpt_pool_spec whole = CKPT_POOL_INIT;
    struct pool_attr attr = {.window = {1, 1, 1}, .stride = {1, 1, 1}};
    int spatial = ckpt_desc_of(t, x).ndim - 2, absent = 3 - spatial;
    int rc = spec ? sized_read("struct ckpt_pool_spec", &whole, sizeof whole, spec) : 0;
    if (rc || !window) {
        ckpt_tape_fail(t, rc ? rc : CKPT_EINVAL, "%s: %s", def->name,
                       rc ? error_get() : "no window");
        return CKPT_NONE;
    }
    attr.count_include_pad = whole.count_include_pad;
    for (int i = 0; i < spatial && absent >= 0; i++) { /* else the shape rule fails */
        attr.window[absent + i] = window[i];
        attr.stride[absent + i] = whole.stride[i] ? whole.stride[i] : window[i];
        attr.before[absent + i] = whole.before[i];
        attr.after[absent + i] = whole.after[i];
    }
    return OPS_RECORD(t, def, &attr, x);
}

ckpt_tensor ckpt_max_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *window,
                          const struct ckpt_pool_spec *spec)
{
    return record(t, &op_max_pool, x, window, spec);
}

ckpt_tensor ckpt_avg_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *window,
                          const struct ckpt_pool_spec *spec)
{
    return record(t, &op_avg_pool, x, window, spec);
}

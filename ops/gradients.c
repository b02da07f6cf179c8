/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients requested while a model is recorded, for example for a penalty on them, and those that
 * a rule requests (tape_pull).  The rules of the ops between x and y are called as in
 * differentiate.c, but in the current pass: ops that they record in the forward pass are later
 * differentiated like any other.  So nothing is added in place here, and an op without a rule is
 * only an error if the loss turns out to depend on it.
 */
#include <stdlib.h>
#include <string.h>
#include "ops.h"
#include "recorders.h"
#include "tape/rule.h"

struct partial {
    ckpt_tape *t;
    int32_t n, n_ops;  /* tensors and ops when it was opened */
    int32_t first;     /* the first op between x and y */
    bool *on;          /* per tensor: it depends on one of x */
    int32_t *gradient; /* per tensor: the sum so far, or 0 */
};

/* Marks the tensors that depend on x; integers have no gradient. */
static void mark(struct partial *p)
{
    const ckpt_tape *t = p->t;
    for (int32_t i = p->first; i < p->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        bool any = false;
        for (int k = 0; k < o->n_in && o->def->grad; k++)
            any |= op_in(t, o, k) > 0 && p->on[op_in(t, o, k)];
        for (int k = 0; k < o->n_out && any; k++) {
            int32_t y = op_out(t, o, k);
            if (y > 0)
                p->on[y] = t->tensors.data[y].desc.dtype != CKPT_I32;
        }
    }
}

static void add(struct partial *p, int32_t x, ckpt_tensor g)
{
    ckpt_tape *t = p->t;
    ckpt_tensor sum = tape_handle(t, p->gradient[x]);
    if (tape_check_gradient(t, x, g))
        return;
    if (sum.id)
        g = ckpt_add(t, ckpt_cast(t, sum, CKPT_F32), ckpt_cast(t, g, CKPT_F32));
    p->gradient[x] = g.id;
}

/* The gradient of x, cast to its dtype; CKPT_NONE if it has none. */
static ckpt_tensor gradient_of(const struct partial *p, int32_t x)
{
    if (x <= 0 || x >= p->n || !p->gradient[x])
        return CKPT_NONE;
    return ckpt_cast(p->t, tape_handle(p->t, p->gradient[x]), p->t->tensors.data[x].desc.dtype);
}

static void call_rule(struct partial *p, struct rule *r)
{
    ckpt_tape *t = p->t;
    bool any_needed = false;
    for (int k = 0; k < r->op->n_in; k++) {
        r->need[k] = p->on[r->in[k].id];
        any_needed |= r->need[k];
    }
    for (int k = 0; k < r->op->n_out && any_needed; k++)
        r->dout[k] = gradient_of(p, r->out[k].id);
    if (rule_call(r, t))
        return;
    for (int k = 0; k < r->op->n_in && !t->error.code; k++)
        if (r->need[k] && r->din[k].id)
            add(p, r->in[k].id, r->din[k]);
}

static void reverse_op(struct partial *p, int32_t i)
{
    ckpt_tape *t = p->t;
    const struct op o = t->ops.data[i];
    struct rule r;
    bool live = false;
    for (int k = 0; k < o.n_out; k++)
        live |= op_out(t, &o, k) > 0 && p->gradient[op_out(t, &o, k)];
    if (!live || !o.def->grad)
        return;
    t->label = o.label;
    if (!rule_open(&r, t, &o, "for gradients"))
        call_rule(p, &r);
    rule_close(&r);
}

/* Marks x and the tensors that depend on it. */
static int partial_open(struct partial *p, ckpt_tape *t, int32_t first, int n, const ckpt_tensor *x)
{
    *p = (struct partial){.t = t, .n = t->n_tensors, .n_ops = t->n_ops, .first = first};
    p->on = calloc((size_t)p->n, sizeof *p->on);
    p->gradient = calloc((size_t)p->n, sizeof *p->gradient);
    if (!p->on || !p->gradient)
        return tape_fail(t, CKPT_ENOMEM, "no memory for gradients");
    for (int i = 0; i < n; i++)
        p->on[x[i].id] = true;
    mark(p);
    return 0;
}

static void partial_close(struct partial *p)
{
    free(p->on);
    free(p->gradient);
}

/* y: marked tensors of the tape; dy has their shapes, but may have other dtypes. */
static void reverse_all(struct partial *p, int ny, const ckpt_tensor *y, const ckpt_tensor *dy)
{
    ckpt_tape *t = p->t;
    const int32_t label = t->label;
    const bool before = t->in_gradients;
    t->in_gradients = true;
    for (int i = 0; i < ny; i++)
        if (p->on[y[i].id])
            add(p, y[i].id, dy[i]);
    for (int32_t i = p->n_ops - 1; i >= p->first && !t->error.code; i--)
        reverse_op(p, i);
    t->in_gradients = before;
    t->label = label;
}

int tape_pull(ckpt_tape *t, int32_t first_op, int ny, const ckpt_tensor *y, const ckpt_tensor *dy,
              int n, const ckpt_tensor *x, ckpt_tensor *dx)
{
    struct partial p;
    for (int i = 0; i < n; i++)
        dx[i] = CKPT_NONE;
    if (!partial_open(&p, t, first_op, n, x))
        reverse_all(&p, ny, y, dy);
    for (int i = 0; i < n && !t->error.code; i++)
        dx[i] = gradient_of(&p, x[i].id);
    partial_close(&p);
    return t->error.code;
}

static int check(ckpt_tape *t, ckpt_tensor *y, int n, ckpt_tensor *x)
{
    const struct tensor *v = tape_tensor(t, *y);
    *y = tape_resolve(t, *y);
    for (int i = 0; i < n && v && !t->error.code; i++) {
        const struct tensor *of = tape_tensor(t, x[i]);
        x[i] = tape_resolve(t, x[i]);
        if (!t->error.code && (!of || of->desc.dtype == CKPT_I32))
            tape_fail(t, CKPT_EINVAL, "gradients: x %d is %s", i, of ? "of integers" : "absent");
    }
    if (!t->error.code && (!v || v->desc.dtype == CKPT_I32))
        tape_fail(t, CKPT_EINVAL, "gradients: y is %s", v ? "of integers" : "absent");
    return t->error.code;
}

/* y and x are tensors of the tape. */
static void differentiate(ckpt_tape *t, ckpt_tensor y, int n, const ckpt_tensor *x, ckpt_tensor *dx)
{
    const struct ckpt_desc of_y = t->tensors.data[y.id].desc;
    struct partial p;
    if (!partial_open(&p, t, 0, n, x) && p.on[y.id]) {
        ckpt_tensor one = ops_fill(t, 1.f, of_y.dtype, of_y.ndim, of_y.shape);
        if (!t->error.code)
            reverse_all(&p, 1, &y, &one);
    }
    for (int i = 0; i < n && !t->error.code; i++) {
        const struct ckpt_desc d = t->tensors.data[x[i].id].desc;
        dx[i] = gradient_of(&p, x[i].id);
        if (!dx[i].id)
            dx[i] = ops_fill(t, 0.f, d.dtype, d.ndim, d.shape);
    }
    partial_close(&p);
}

void ckpt_gradients(ckpt_tape *t, ckpt_tensor y, int n, const ckpt_tensor *x, ckpt_tensor *dx)
{
    for (int i = 0; dx && i < n; i++)
        dx[i] = CKPT_NONE;
    if (t && n < 0)
        tape_fail(t, CKPT_EINVAL, "gradients: of %d tensors", n);
    if (t && n > 0 && (!x || !dx))
        tape_fail(t, CKPT_EINVAL, "gradients: x or dx is NULL");
    if (!t || n <= 0 || t->error.code)
        return;
    ckpt_tensor *of = malloc((size_t)n * sizeof *of);
    if (!of) {
        tape_fail(t, CKPT_ENOMEM, "no memory for gradients");
        return;
    }
    memcpy(of, x, (size_t)n * sizeof *of);
    if (!check(t, &y, n, of))
        differentiate(t, y, n, of, dx);
    free(of);
}

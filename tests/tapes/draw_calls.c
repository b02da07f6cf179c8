/* SPDX-License-Identifier: Apache-2.0 */
/* Appends calls to a recording that is drawn, and draws their operands. */
#include <string.h>
#include "draw.h"

uint64_t draw_next(struct draw *d)
{
    uint64_t x = d->state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

int64_t draw_below(struct draw *d, int64_t n)
{
    return (int64_t)(draw_next(d) % (uint64_t)n);
}

bool draw_chance(struct draw *d, int percent)
{
    return draw_below(d, 100) < percent;
}

const struct value *draw_value(const struct draw *d, int x)
{
    return &d->r->value[x];
}

int64_t draw_last(const struct value *v)
{
    return v->ndim ? v->shape[v->ndim - 1] : 1;
}

/* Appends a call.  Returns its first result, or -1 if it does not fit. */
int draw_call(struct draw *d, struct call c)
{
    struct recording *r = d->r;
    if (r->n_calls == MAX_CALLS || r->n_values + MAX_OUT > MAX_VALUES) {
        d->full = true;
        return -1;
    }
    for (int k = 0; k < c.n_in; k++)
        if (c.in[k] < -1 || (c.in[k] < 0 && k < 2))
            return -1;
    c.n_out = c.n_out ? c.n_out : 1;
    if (!c.a && (c.kind == CALL_PARAM || c.kind == CALL_INPUT))
        c.a = 1;
    c.seed = r->n_calls + 1;
    if (!recording_infer(r, &c) || value_numel(&r->value[c.out]) > d->most)
        return -1;
    r->call[r->n_calls++] = c;
    r->n_values += c.n_out;
    return c.out;
}

int draw_call1(struct draw *d, enum call_kind kind, int x)
{
    return draw_call(d, (struct call){.kind = kind, .n_in = 1, .in = {x}});
}

int draw_call2(struct draw *d, enum call_kind kind, int x, int y)
{
    return draw_call(d, (struct call){.kind = kind, .n_in = 2, .in = {x, y}});
}

int draw_along(struct draw *d, enum call_kind kind, int x, int axis)
{
    return draw_call(d, (struct call){.kind = kind, .n_in = 1, .in = {x}, .axis = axis});
}

int draw_reduction(struct draw *d, enum call_kind kind, int x, unsigned mask)
{
    return draw_call(d, (struct call){.kind = kind, .n_in = 1, .in = {x}, .mask = mask});
}

int draw_shaped(struct draw *d, enum call_kind kind, int x, int ndim, const int64_t *shape)
{
    struct value *v = &d->r->value[d->r->n_values];
    if (ndim > MAX_RANK)
        return -1;
    *v = (struct value){.dtype = draw_value(d, x)->dtype, .ndim = ndim};
    memcpy(v->shape, shape, (size_t)ndim * sizeof *shape);
    return draw_call1(d, kind, x);
}

int draw_affine(struct draw *d, int x, float a, float b)
{
    return draw_call(d, (struct call){.kind = CALL_AFFINE, .n_in = 1, .in = {x}, .a = a, .b = b});
}

int draw_leaf(struct draw *d, enum call_kind kind, enum ckpt_dtype dtype, int ndim,
              const int64_t *shape, float scale)
{
    struct value *v = &d->r->value[d->r->n_values];
    *v = (struct value){.dtype = dtype, .ndim = ndim};
    memcpy(v->shape, shape, (size_t)ndim * sizeof *shape);
    return draw_call(d, (struct call){.kind = kind, .a = scale});
}

/* A parameter; often one that was used before. */
int draw_param(struct draw *d, enum ckpt_dtype dtype, int ndim, const int64_t *shape, float scale)
{
    const bool shared = draw_chance(d, 40);
    for (int i = 0; i < d->r->n_calls && shared; i++) {
        const struct call *c = &d->r->call[i];
        const struct value *v = draw_value(d, c->out);
        if (c->kind == CALL_PARAM && v->dtype == dtype && v->ndim == ndim &&
            !memcmp(v->shape, shape, (size_t)ndim * sizeof *shape))
            return c->out;
    }
    return draw_leaf(d, CALL_PARAM, dtype, ndim, shape, scale);
}

/* A parameter that broadcasts with x: axes of size 1, leading ones left out. */
int draw_broadcast_param(struct draw *d, int x, bool same_dtype)
{
    const struct value v = *draw_value(d, x);
    const int skip = v.ndim ? (int)draw_below(d, v.ndim + 1) % 3 : 0;
    int64_t shape[MAX_RANK];
    int n = 0;
    for (int k = skip; k < v.ndim; k++)
        shape[n++] = draw_chance(d, 30) ? 1 : v.shape[k];
    return draw_param(d, same_dtype || draw_chance(d, 80) ? v.dtype : CKPT_F32, n, shape, 1);
}

/* A value, mostly one of the last. */
int draw_pick(struct draw *d)
{
    const int n = d->r->n_values;
    if (draw_chance(d, 60))
        return n - 1 - (int)draw_below(d, n < 4 ? n : 4);
    return (int)draw_below(d, n);
}

int draw_axis(struct draw *d, int x)
{
    return draw_value(d, x)->ndim ? (int)draw_below(d, draw_value(d, x)->ndim) : -1;
}

unsigned draw_mask(struct draw *d, int x)
{
    const int ndim = draw_value(d, x)->ndim;
    if (!ndim)
        return 0;
    if (draw_chance(d, 60)) /* the last axes */
        return ((1u << ndim) - 1) & ~((1u << draw_below(d, ndim)) - 1);
    return 1 + (unsigned)draw_below(d, (1 << ndim) - 1);
}

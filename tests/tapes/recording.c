/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: shapes of results, and the first values of leaves. */
#include <string.h>
#include "recording.h"

int64_t value_numel(const struct value *v)
{
    int64_t n = 1;
    for (int k = 0; k < v->ndim; k++)
        n *= v->shape[k];
    return n;
}

/* ---- values of leaves ------------------------------------------------------------------------*/

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Multiples of 1/64 below 2, times a power of two: bf16 holds them. */
void recording_fill(const struct recording *r, const struct call *c, float *x, int64_t n)
{
    (void)r;
    for (int64_t i = 0; i < n; i++)
        x[i] = c->a * (float)((int64_t)(mix((uint64_t)(c->seed * 1000003 + i)) % 255) - 127) / 64;
}

void recording_indices(const struct call *c, int64_t limit, int32_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (int32_t)(mix((uint64_t)(c->seed * 1000033 + i)) % (uint64_t)limit);
}

void recording_reach(const struct recording *r, bool *reaches)
{
    memset(reaches, 0, MAX_VALUES * sizeof *reaches);
    reaches[r->loss] = true;
    for (int i = r->n_calls - 1; i >= 0; i--) {
        const struct call *c = &r->call[i];
        bool live = false;
        for (int k = 0; k < c->n_out; k++)
            live |= reaches[c->out + k];
        for (int k = c->kind == CALL_WHERE ? 2 : 0; k < c->n_in && live; k++)
            if (c->in[k] >= 0)
                reaches[c->in[k]] = true;
    }
}

/* ---- shapes ----------------------------------------------------------------------------------*/

static const struct value *operand(const struct recording *r, const struct call *c, int k)
{
    return &r->value[c->in[k]];
}

static bool same_shape(const struct value *a, const struct value *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

/* Widens *v so that x broadcasts to it. */
static bool spread(struct value *v, const struct value *x)
{
    struct value wide = x->ndim > v->ndim ? *x : *v;
    for (int k = 1; k <= x->ndim && k <= v->ndim; k++) {
        const int64_t a = v->shape[v->ndim - k], b = x->shape[x->ndim - k];
        if (a != b && a != 1 && b != 1)
            return false;
        wide.shape[wide.ndim - k] = a == 1 ? b : a;
    }
    v->ndim = wide.ndim;
    memcpy(v->shape, wide.shape, sizeof v->shape);
    return true;
}

/* Whether operands from `first` on have the dtype of the first of them. */
static bool one_dtype(const struct recording *r, const struct call *c, int first)
{
    for (int k = first + 1; k < c->n_in; k++)
        if (c->in[k] >= 0 && operand(r, c, k)->dtype != operand(r, c, first)->dtype)
            return false;
    return true;
}

static bool broadcast(const struct recording *r, const struct call *c, struct value *v)
{
    const bool where = c->kind == CALL_WHERE;
    bool wide = false;
    for (int k = 0; k < c->n_in; k++) {
        if (!spread(v, operand(r, c, k)))
            return false;
        wide |= operand(r, c, k)->dtype == CKPT_F32;
    }
    v->dtype = wide ? CKPT_F32 : CKPT_BF16;
    if (where)
        v->dtype = operand(r, c, 2)->dtype;
    return !where || one_dtype(r, c, 2);
}

/* A vector of the last axis of x, or with its rank. */
static bool rows(const struct recording *r, const struct call *c, bool vectors)
{
    const struct value *x = operand(r, c, 0);
    if (!x->ndim || !one_dtype(r, c, 0))
        return false;
    for (int k = 1; k < c->n_in; k++) {
        if (c->in[k] < 0)
            continue;
        const struct value *w = operand(r, c, k);
        if (w->ndim != (vectors ? 1 : x->ndim) || w->shape[w->ndim - 1] != x->shape[x->ndim - 1])
            return false;
        for (int i = 0; i + 1 < w->ndim; i++)
            if (w->shape[i] != 1 && w->shape[i] != x->shape[i])
                return false;
    }
    return true;
}

static bool matrices(const struct recording *r, const struct call *c, struct value *v)
{
    struct value a = *operand(r, c, 0), b = *operand(r, c, 1);
    if (a.ndim < 2 || b.ndim < 2 || a.dtype != b.dtype)
        return false;
    const int64_t rows = a.shape[a.ndim - (c->flag[0] ? 1 : 2)];
    const int64_t inner = a.shape[a.ndim - (c->flag[0] ? 2 : 1)];
    const int64_t cols = b.shape[b.ndim - (c->flag[1] ? 2 : 1)];
    if (b.shape[b.ndim - (c->flag[1] ? 1 : 2)] != inner)
        return false;
    a.ndim -= 2;
    b.ndim -= 2;
    *v = a;
    if (!spread(v, &b))
        return false;
    v->shape[v->ndim] = rows;
    v->shape[v->ndim + 1] = cols;
    v->ndim += 2;
    return true;
}

static bool join(const struct recording *r, const struct call *c, struct value *v)
{
    if (c->axis < 0 || c->axis >= v->ndim || !one_dtype(r, c, 0))
        return false;
    for (int k = 1; k < c->n_in; k++) {
        struct value x = *operand(r, c, k);
        const int64_t n = x.ndim == v->ndim ? x.shape[c->axis] : 0;
        x.shape[c->axis] = v->shape[c->axis];
        if (!same_shape(&x, v))
            return false;
        v->shape[c->axis] += n;
    }
    return true;
}

/* Results that the caller has set the shape of. */
static bool given(const struct recording *r, const struct call *c, struct value *v,
                  const struct value *want)
{
    struct value x = *operand(r, c, 0), wide = *want;
    *v = *want;
    v->dtype = x.dtype;
    if (c->kind == CALL_RESHAPE)
        return value_numel(&x) == value_numel(v);
    return spread(&wide, &x) && same_shape(&wide, v);
}

/* v: a copy of the first operand, to be changed to the result. */
static bool infer(const struct recording *r, const struct call *c, struct value *v,
                  const struct value *want)
{
    const struct value *second = c->n_in > 1 && c->in[1] >= 0 ? operand(r, c, 1) : NULL;
    const bool has_axis = c->axis >= 0 && c->axis < v->ndim;
    switch (c->kind) {
    case CALL_PARAM:
    case CALL_INPUT:
        *v = *want;
        return true;
    case CALL_UNARY:
    case CALL_AFFINE:
        return true;
    case CALL_ADD:
    case CALL_SUB:
    case CALL_MUL:
    case CALL_DIV:
    case CALL_MAXIMUM:
    case CALL_WHERE:
        return broadcast(r, c, v);
    case CALL_CAST:
        v->dtype = v->dtype == CKPT_F32 ? CKPT_BF16 : CKPT_F32;
        return true;
    case CALL_SUM:
    case CALL_MEAN:
    case CALL_AMAX:
    case CALL_LOGSUMEXP:
        v->dtype = CKPT_F32;
        for (int k = 0; k < v->ndim; k++)
            v->shape[k] = c->mask >> k & 1 ? 1 : v->shape[k];
        return v->ndim > 0 && c->mask > 0 && c->mask < 1u << v->ndim;
    case CALL_SOFTMAX:
    case CALL_CUMSUM:
    case CALL_FLIP:
        return has_axis;
    case CALL_LAYER_NORM:
    case CALL_RMS_NORM:
        return rows(r, c, true);
    case CALL_GROUP_NORM:
        return v->ndim >= 2 && v->shape[v->ndim - 1] % c->begin == 0 && rows(r, c, true);
    case CALL_MODULATE:
        return rows(r, c, false);
    case CALL_GATED:
        return rows(r, c, false) && same_shape(v, operand(r, c, 2));
    case CALL_LINEAR:
        if (v->ndim < 1 || !one_dtype(r, c, 0) || second->ndim != 2 ||
            second->shape[1] != v->shape[v->ndim - 1])
            return false;
        v->shape[v->ndim - 1] = second->shape[0];
        return c->in[2] < 0 ||
               (operand(r, c, 2)->ndim == 1 && operand(r, c, 2)->shape[0] == second->shape[0]);
    case CALL_MATMUL:
        return matrices(r, c, v);
    case CALL_CONV:
        if (v->ndim != 3 || !one_dtype(r, c, 0) || second->ndim != 3 ||
            second->shape[2] != v->shape[2])
            return false;
        v->shape[1] += 2 * c->begin - second->shape[1] + 1;
        v->shape[2] = second->shape[0];
        return v->shape[1] > 0 && (c->in[2] < 0 || operand(r, c, 2)->shape[0] == v->shape[2]);
    case CALL_SPLIT:
        if (!has_axis || v->shape[c->axis] % c->n_out)
            return false;
        v->shape[c->axis] /= c->n_out;
        return true;
    case CALL_SLICE:
        if (!has_axis || c->begin < 0 || c->end <= c->begin || c->end > v->shape[c->axis])
            return false;
        v->shape[c->axis] = c->end - c->begin;
        return true;
    case CALL_CONCAT:
        return join(r, c, v);
    case CALL_RESHAPE:
    case CALL_EXPAND:
        return given(r, c, v, want);
    case CALL_PERMUTE: {
        const struct value x = *v;
        for (int k = 0; k < v->ndim; k++)
            v->shape[k] = x.shape[c->axes[k]];
        return v->ndim > 0;
    }
    case CALL_PAD:
        if (!has_axis)
            return false;
        v->shape[c->axis] += c->begin + c->end;
        return true;
    case CALL_ROWS:
        if (!has_axis)
            return false;
        v->shape[c->axis] = c->end;
        return true;
    case CALL_CROSS_ENTROPY:
    case CALL_MSE:
        if (c->kind == CALL_MSE ? !same_shape(v, second) : v->ndim < 1)
            return false;
        v->dtype = CKPT_F32;
        v->ndim = 0;
        return true;
    default:
        return false;
    }
}

bool recording_infer(struct recording *r, struct call *c)
{
    const struct value want = r->value[r->n_values];
    struct value v = c->n_in ? *operand(r, c, 0) : want;
    c->out = r->n_values;
    if (r->n_values + c->n_out > MAX_VALUES || !infer(r, c, &v, &want))
        return false;
    if (v.ndim > MAX_RANK || value_numel(&v) > MAX_NUMEL)
        return false;
    v.call = r->n_calls;
    for (int k = 0; k < c->n_out; k++) {
        v.index = k;
        r->value[c->out + k] = v;
    }
    return true;
}

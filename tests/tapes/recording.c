/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: the first values of leaves, constants of calls, and what the loss depends on. */
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

/* ---- constants -------------------------------------------------------------------------------*/

static const struct value *operand_of(const struct recording *r, const struct call *c, int k)
{
    return &r->value[c->in[k]];
}

/* The shape of constant `which` of a call; returns the number of values that an element can have.
 */
static int64_t index_shape(const struct recording *r, const struct call *c, int which,
                           struct value *s)
{
    const struct value *x = operand_of(r, c, 0), *y = &r->value[c->out];
    const struct value *second = c->n_in > 1 ? operand_of(r, c, 1) : x;
    const int64_t along = c->axis >= 0 && c->axis < x->ndim ? x->shape[c->axis] : 0;
    *s = (struct value){.ndim = 1};
    switch (c->kind) {
    case CALL_ROWS:
        s->shape[0] = y->shape[c->axis];
        return along;
    case CALL_EMBEDDING:
        *s = (struct value){.ndim = 2, .shape = {y->shape[0], y->shape[1]}};
        return x->shape[0];
    case CALL_GATHER:
        *s = *y;
        return along;
    case CALL_SCATTER_ADD:
        *s = *second;
        return along;
    case CALL_INDEX_ADD:
        s->shape[0] = second->shape[c->axis];
        return along;
    case CALL_GROUPED_MATMUL:
        s->shape[0] = second->shape[0];
        return x->shape[0] + 1;
    case CALL_ATTENTION: /* lengths; first */
        *s = *x;
        s->ndim -= which ? 2 : 3;
        return second->shape[second->ndim - 3] + 1;
    case CALL_CROSS_ATTENTION: /* no more rows than there are */
        s->shape[0] = x->shape[0];
        return second->shape[0] / x->shape[0] + 1;
    case CALL_MASKED_MEAN:
        *s = *x;
        return 2;
    default: /* labels of rows */
        *s = *x;
        s->ndim--;
        return c->kind == CALL_LINEAR_CROSS_ENTROPY ? second->shape[0] : x->shape[x->ndim - 1];
    }
}

void recording_indices(const struct recording *r, const struct call *c, int which,
                       struct value *shape, int32_t *x)
{
    const int64_t limit = index_shape(r, c, which, shape), n = value_numel(shape);
    for (int64_t i = 0; i < n; i++)
        x[i] = (int32_t)(mix((uint64_t)(c->seed * 1000033 + which * 500009 + i)) % (uint64_t)limit);
}

void recording_table(const struct recording *r, const struct call *c, struct value *shape, float *x)
{
    static const float pairs[][2] = {{0.6f, 0.8f}, {-0.8f, 0.6f}, {1.f, 0.f}, {0.28f, -0.96f}};
    const struct value *of = operand_of(r, c, 0);
    *shape =
        (struct value){.ndim = 3, .shape = {of->shape[c->axis], of->shape[of->ndim - 1] / 2, 2}};
    for (int64_t i = 0; i < value_numel(shape) / 2; i++)
        memcpy(x + 2 * i, pairs[mix((uint64_t)(c->seed * 1000037 + i)) % 4], sizeof pairs[0]);
}

/* ---- what the loss depends on
 * -------------------------------------------------------------------*/

/* Whether a gradient goes to operand k of a call. */
static bool passes(const struct call *c, int k)
{
    switch (c->kind) {
    case CALL_UNARY:
        return c->unary != UNARY_sign && c->unary != UNARY_floor && c->unary != UNARY_round;
    case CALL_WHERE:
    case CALL_MASKED_FILL:
        return k >= 2;
    case CALL_QUANTIZE:
        return k == 0;
    default:
        return c->kind != CALL_STOP_GRADIENT;
    }
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
        for (int k = 0; k < c->n_in && live; k++)
            if (c->in[k] >= 0 && passes(c, k))
                reaches[c->in[k]] = true;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A recording in fp64: its calls one after the other for each micro-step, then the pass back. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reference.h"

/* ---- operands --------------------------------------------------------------------------------*/

bool has_operand(const struct context *x, int k)
{
    return k < x->c->n_in && x->c->in[k] >= 0;
}

const struct value *operand(const struct context *x, int k)
{
    return &x->r->value[x->c->in[k]];
}

const int32_t *nodes(const struct context *x, int k)
{
    return x->at[x->c->in[k]];
}

double number(const struct context *x, int k, int64_t i)
{
    return node_at(x->g, nodes(x, k)[i]);
}

void indices_of(const struct value *v, int64_t i, int64_t *index)
{
    for (int k = v->ndim - 1; k >= 0; k--) {
        index[k] = i % v->shape[k];
        i /= v->shape[k];
    }
}

int64_t element(const struct value *x, int ndim, const int64_t *index)
{
    int64_t i = 0;
    for (int k = 0; k < x->ndim; k++)
        i = i * x->shape[k] + (x->shape[k] == 1 ? 0 : index[ndim - x->ndim + k]);
    return i;
}

int64_t last_of(const struct value *v)
{
    return v->ndim ? v->shape[v->ndim - 1] : 1;
}

struct around around(const struct value *v, int axis)
{
    struct around a = {1, v->shape[axis], 1};
    for (int k = 0; k < axis; k++)
        a.outer *= v->shape[k];
    for (int k = axis + 1; k < v->ndim; k++)
        a.inner *= v->shape[k];
    return a;
}

/* ---- calls -----------------------------------------------------------------------------------*/

void leaf(const struct context *x, int32_t *y, const struct value *v)
{
    const bool fed = x->c->kind == CALL_INPUT;
    const int64_t n = value_numel(v), all = fed ? n * x->r->n_micro : n;
    float *values = malloc((size_t)all * sizeof *values);
    if (!values)
        abort();
    recording_fill(x->r, x->c, values, all);
    for (int64_t i = 0; i < n; i++)
        y[i] = node_new(x->g, (double)values[i + (fed ? n * x->micro : 0)]);
    free(values);
}

/* Rounds results where the library stores them, with a node in between. */
static void store(struct graph *g, const struct call *c, int32_t *y, const struct value *v)
{
    for (int64_t i = 0; i < value_numel(v); i++) {
        if (!call_keeps_bits(c->kind)) {
            const double x = node_at(g, y[i]);
            y[i] = node_one(g, round_to(x, v->dtype, g->rounding), y[i], 1);
            g->node[y[i]].dtype = (uint8_t)v->dtype;
        }
        g->largest = fmax(g->largest, fabs(node_at(g, y[i])));
        if (!isfinite(node_at(g, y[i])))
            g->largest = INFINITY;
    }
}

static double margin_of(const struct recording *r, const struct call *c)
{
    bool rough = false;
    for (int k = 0; k < c->n_in; k++)
        rough |= c->in[k] >= 0 && r->value[c->in[k]].rough;
    return rough ? 0.05 : 1e-5;
}

static void run_call(const struct context *x, int32_t *y, const struct value *v)
{
    static void (*const functions[])(const struct context *x, int32_t *y, const struct value *v) = {
#define X(name, call, shape, fp64) fp64,
#include "kinds.def"
#undef X
    };
    functions[x->c->kind](x, y, v);
    store(x->g, x->c, y, v);
}

/* The same function whatever the parameters of this micro-step are: nodes begin anew. */
static void run_micro(const struct recording *r, struct graph *g, int64_t micro,
                      struct reference *f)
{
    int32_t *at[MAX_VALUES] = {NULL};
    g->n = g->n_edges = 0;
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->call[i];
        g->margin = margin_of(r, c);
        for (int k = 0; k < c->n_out; k++) {
            const struct value *v = &r->value[c->out + k];
            int32_t *y = malloc((size_t)value_numel(v) * sizeof *y);
            if (!y)
                abort();
            run_call(&(struct context){r, g, at, c, micro, k}, y, v);
            at[c->out + k] = y;
        }
    }
    const int32_t loss = at[r->loss][0];
    f->loss += node_at(g, loss) / (double)r->n_micro;
    graph_backward(g, loss, 1. / (double)r->n_micro);
    for (int k = 0; k < r->n_values; k++) {
        double scale = 0;
        for (int64_t i = 0; f->gradient[k] && i < value_numel(&r->value[k]); i++) {
            const struct node *n = &g->node[at[k][i]];
            f->gradient[k][i] += n->gradient;
            scale += n->scale * n->scale;
        }
        f->scale[k] += sqrt(scale);
        free(at[k]);
    }
}

void recording_compute(const struct recording *r, enum rounding rounding, struct reference *f)
{
    struct graph g = {.rounding = rounding};
    f->loss = f->largest = 0;
    memset(f->scale, 0, sizeof f->scale);
    for (int k = 0; k < r->n_values; k++)
        if (f->gradient[k])
            memset(f->gradient[k], 0, (size_t)value_numel(&r->value[k]) * sizeof(double));
    for (int64_t i = 0; i < r->n_micro; i++)
        run_micro(r, &g, i, f);
    f->near = g.near;
    f->largest = g.largest;
    free(g.node);
    free(g.edge);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes, their edges and the pass back: see graph.h. */
#include <math.h>
#include <stdlib.h>
#include "graph.h"

double round_to(double x, enum ckpt_dtype dtype, enum rounding rounding)
{
    union {
        float f;
        uint32_t u;
    } v = {(float)x};
    if (rounding == ROUND_NOTHING)
        return x;
    if (rounding == ROUND_DOWN && fabs((double)v.f) > fabs(x))
        v.f = nextafterf(v.f, 0.f);
    if (dtype == CKPT_BF16 && rounding == ROUND_NEAREST)
        v.u += 0x7fff + (v.u >> 16 & 1);
    if (dtype == CKPT_BF16)
        v.u &= 0xffff0000u;
    return (double)v.f;
}

int32_t node_new(struct graph *g, double x)
{
    if (g->n + 2 > g->room) {
        g->room = 2 * g->room + 4096;
        struct node *p = realloc(g->node, (size_t)g->room * sizeof *p);
        if (!p)
            abort();
        g->node = p;
    }
    g->node[g->n] = (struct node){.x = x, .first = g->n_edges, .dtype = CKPT_I32};
    g->node[g->n + 1].first = g->n_edges;
    return (int32_t)g->n++;
}

void node_edge(struct graph *g, int32_t from, double slope)
{
    if (g->n_edges == g->edge_room) {
        g->edge_room = 2 * g->edge_room + 8192;
        struct edge *p = realloc(g->edge, (size_t)g->edge_room * sizeof *p);
        if (!p)
            abort();
        g->edge = p;
    }
    g->edge[g->n_edges++] = (struct edge){from, slope};
    g->node[g->n].first = g->n_edges;
}

double node_at(const struct graph *g, int32_t i)
{
    return g->node[i].x;
}

int32_t node_one(struct graph *g, double x, int32_t a, double da)
{
    const int32_t i = node_new(g, x);
    node_edge(g, a, da);
    return i;
}

int32_t node_two(struct graph *g, double x, int32_t a, double da, int32_t b, double db)
{
    const int32_t i = node_one(g, x, a, da);
    node_edge(g, b, db);
    return i;
}

int32_t node_scaled(struct graph *g, int32_t a, double factor)
{
    return node_one(g, factor * node_at(g, a), a, factor);
}

int32_t node_mul(struct graph *g, int32_t a, int32_t b)
{
    return node_two(g, node_at(g, a) * node_at(g, b), a, node_at(g, b), b, node_at(g, a));
}

int32_t node_sum(struct graph *g, const int32_t *x, int64_t n, int64_t step, double factor)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += node_at(g, x[i * step]);
    const int32_t y = node_new(g, factor * sum);
    for (int64_t i = 0; i < n; i++)
        node_edge(g, x[i * step], factor);
    return y;
}

int32_t node_log_sum(struct graph *g, const int32_t *x, int64_t n, int64_t step)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, node_at(g, x[i * step]));
    for (int64_t i = 0; i < n; i++)
        sum += exp(node_at(g, x[i * step]) - top);
    const int32_t y = node_new(g, top + log(sum));
    for (int64_t i = 0; i < n; i++)
        node_edge(g, x[i * step], exp(node_at(g, x[i * step]) - top) / sum);
    return y;
}

int32_t node_inverse_root(struct graph *g, const int32_t *x, int64_t n, double eps)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += node_at(g, x[i]) * node_at(g, x[i]);
    const double r = 1 / sqrt(sum / (double)n + eps);
    const int32_t y = node_new(g, r);
    for (int64_t i = 0; i < n; i++)
        node_edge(g, x[i], -r * r * r * node_at(g, x[i]) / (double)n);
    return y;
}

int32_t node_product(struct graph *g, const int32_t *a, int64_t da, const int32_t *b, int64_t db,
                     int64_t n, int32_t plus)
{
    double sum = plus < 0 ? 0 : node_at(g, plus);
    for (int64_t k = 0; k < n; k++)
        sum += node_at(g, a[k * da]) * node_at(g, b[k * db]);
    const int32_t y = node_new(g, sum);
    if (plus >= 0)
        node_edge(g, plus, 1);
    for (int64_t k = 0; k < n; k++) {
        const double p = node_at(g, a[k * da]), q = node_at(g, b[k * db]);
        node_edge(g, a[k * da], q);
        node_edge(g, b[k * db], p);
    }
    return y;
}

int32_t node_largest(struct graph *g, const int32_t *x, int64_t n, double sign)
{
    int32_t best = x[0];
    for (int64_t i = 1; i < n; i++)
        best = sign * node_at(g, x[i]) > sign * node_at(g, best) ? x[i] : best;
    for (int64_t i = 0; i < n; i++)
        if (x[i] != best)
            graph_branch(g, fabs(node_at(g, best) - node_at(g, x[i])), node_at(g, best));
    return node_one(g, node_at(g, best), best, 1);
}

void graph_branch(struct graph *g, double distance, double x)
{
    g->near |= distance <= g->margin * (1 + fabs(x));
}

void graph_backward(struct graph *g, int32_t from, double gradient)
{
    for (int64_t i = 0; i < g->n; i++)
        g->node[i].gradient = g->node[i].scale = 0;
    g->node[from].gradient = g->node[from].scale = gradient;
    for (int64_t i = from; i >= 0; i--) {
        struct node *n = &g->node[i];
        if (n->dtype != CKPT_I32)
            n->gradient = round_to(n->gradient, (enum ckpt_dtype)n->dtype, g->rounding);
        for (int64_t k = n->first; k < g->node[i + 1].first && n->scale > 0; k++) {
            g->node[g->edge[k].from].gradient += n->gradient * g->edge[k].slope;
            g->node[g->edge[k].from].scale += n->scale * fabs(g->edge[k].slope);
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Losses in fp64. */
#include <math.h>
#include <stdlib.h>
#include "reference.h"

/* (1 - e) (m - x[label]) + e (m - mean x) + z m^2 of a row x, m = log sum exp(x). */
static int32_t entropy(struct graph *g, const struct call *c, const int32_t *x, int64_t n,
                       int32_t label)
{
    const double e = (double)c->a, z = (double)c->b;
    const int32_t m = node_log_sum(g, x, n, 1), mean = node_sum(g, x, n, 1, 1. / (double)n);
    const double log = node_at(g, m), right = node_at(g, x[label]);
    const int32_t y = node_two(g, log - (1 - e) * right - e * node_at(g, mean) + z * log * log, m,
                               1 + 2 * z * log, x[label], e - 1);
    node_edge(g, mean, -e);
    return y;
}

/* The logits of a layer: of its own, to be freed, or the operand. */
static const int32_t *logits_of(const struct context *x, struct value *shape, int32_t **own)
{
    *shape = *operand(x, 0);
    *own = NULL;
    if (x->c->kind != CALL_LINEAR_CROSS_ENTROPY)
        return nodes(x, 0);
    shape->shape[shape->ndim - 1] = operand(x, 1)->shape[0];
    *own = malloc((size_t)value_numel(shape) * sizeof **own);
    if (!*own)
        abort();
    linear(x, *own, shape);
    return *own;
}

/* Cross entropy of rows, or the mean over the elements whose mask is 1. */
void row_loss(const struct context *x, int32_t *y, const struct value *v)
{
    const bool masked = x->c->kind == CALL_MASKED_MEAN;
    struct value shape, of_labels;
    int32_t label[MAX_NUMEL], terms[MAX_NUMEL], *own;
    const int32_t *in = logits_of(x, &shape, &own);
    int64_t count = 0;
    (void)v;
    recording_indices(x->r, x->c, 0, &of_labels, label);
    for (int64_t i = 0; i < value_numel(&of_labels); i++)
        if (masked && label[i])
            terms[count++] = in[i];
        else if (!masked && !(x->c->flag[0] && label[i] == 0))
            terms[count++] =
                entropy(x->g, x->c, in + i * last_of(&shape), last_of(&shape), label[i]);
    y[0] = node_sum(x->g, terms, count, 1, count ? 1. / (double)count : 0);
    free(own);
}

/* The loss of elements a and b. */
static int32_t term(struct graph *g, const struct call *c, int32_t a, int32_t b)
{
    const double x = node_at(g, a), t = node_at(g, b), d = x - t, delta = (double)c->a;
    const double outer = fabs(d) <= delta ? d : copysign(delta, d),
                 factor = c->kind == CALL_SMOOTH_L1 ? 1 / delta : 1;
    switch (c->kind) {
    case CALL_MSE:
        return node_two(g, d * d, a, 2 * d, b, -2 * d);
    case CALL_L1:
        graph_branch(g, fabs(d), x);
        return node_two(g, fabs(d), a, copysign(1, d), b, -copysign(1, d));
    case CALL_HUBER:
    case CALL_SMOOTH_L1:
        return node_two(g, factor * outer * (d - outer / 2), a, factor * outer, b, -factor * outer);
    case CALL_BCE:
        return node_two(g, log1p(exp(x)) - t * x, a, 1 / (1 + exp(-x)) - t, b, -x);
    case CALL_KL_DIV:
        return node_two(g, exp(t) * (t - x), a, -exp(t), b, exp(t) * (t - x + 1));
    default: /* KL_NORMAL */
        return node_two(g, (x * x + exp(t) - 1 - t) / 2, a, x, b, (exp(t) - 1) / 2);
    }
}

/* The mean over elements, or over samples, or the sum. */
void element_loss(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *from = operand(x, 0);
    const int64_t n = value_numel(from);
    int32_t terms[MAX_NUMEL];
    (void)v;
    for (int64_t i = 0; i < n; i++)
        terms[i] = term(x->g, x->c, nodes(x, 0)[i], nodes(x, 1)[i]);
    const int64_t over = x->c->kind == CALL_SMOOTH_L1   ? 1
                         : x->c->kind == CALL_KL_NORMAL ? from->shape[0]
                                                        : n;
    y[0] = node_sum(x->g, terms, n, 1, 1. / (double)over);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Losses in fp64. */
#include <math.h>
#include <stdlib.h>
#include "reference.h"

/* Cross entropy of rows, or the mean over the elements whose mask is 1. */
void row_loss(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *from = operand(x, 0);
    const bool masked = x->c->kind == CALL_MASKED_MEAN;
    const bool layer = x->c->kind == CALL_LINEAR_CROSS_ENTROPY;
    struct value shape, logits = *from;
    int32_t label[MAX_NUMEL], terms[MAX_NUMEL], *row = NULL;
    int64_t count = 0;
    (void)v;
    recording_indices(x->r, x->c, 0, &shape, label);
    const int64_t rows = value_numel(&shape);
    if (layer) {
        logits.shape[from->ndim - 1] = operand(x, 1)->shape[0];
        row = malloc((size_t)value_numel(&logits) * sizeof *row);
        if (!row)
            abort();
        linear(x, row, &logits);
    }
    const int64_t n = last_of(&logits);
    for (int64_t i = 0; i < rows; i++) {
        const int32_t *in = (layer ? row : nodes(x, 0)) + (masked ? i : i * n);
        if (masked && label[i])
            terms[count++] = *in;
        if (masked)
            continue;
        const int32_t total = node_log_sum(x->g, in, n, 1), right = in[label[i]];
        terms[count++] =
            node_two(x->g, node_at(x->g, total) - node_at(x->g, right), total, 1, right, -1);
    }
    y[0] = node_sum(x->g, terms, count, 1, count ? 1. / (double)count : 0);
    free(row);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, norms and functions along an axis in fp64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reference.h"

static int32_t *new_nodes(int64_t n)
{
    int32_t *x = malloc((size_t)n * sizeof *x);
    if (!x)
        abort();
    return x;
}

/* ---- reductions ------------------------------------------------------------------------------*/

static int32_t product_of(struct graph *g, const int32_t *x, int64_t n)
{
    int32_t y = x[0];
    for (int64_t i = 1; i < n; i++)
        y = node_mul(g, y, x[i]);
    return node_scaled(g, y, 1);
}

static int32_t variance_of(struct graph *g, const int32_t *x, int64_t n, int64_t correction)
{
    const int32_t mean = node_sum(g, x, n, 1, 1. / (double)n);
    int32_t *square = new_nodes(n);
    for (int64_t i = 0; i < n; i++) {
        const int32_t gap = node_two(g, node_at(g, x[i]) - node_at(g, mean), x[i], 1, mean, -1);
        square[i] = node_mul(g, gap, gap);
    }
    const int32_t y = node_sum(g, square, n, 1, 1. / (double)(n - correction));
    free(square);
    return y;
}

static int32_t norm_of(struct graph *g, const int32_t *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += node_at(g, x[i]) * node_at(g, x[i]);
    graph_branch(g, sqrt(sum), 0);
    const int32_t y = node_new(g, sqrt(sum));
    for (int64_t i = 0; i < n; i++)
        node_edge(g, x[i], node_at(g, x[i]) / sqrt(sum));
    return y;
}

static int32_t reduce(struct graph *g, const struct call *c, const int32_t *x, int64_t n)
{
    switch (c->kind) {
    case CALL_AMAX:
    case CALL_AMIN:
        return node_largest(g, x, n, c->kind == CALL_AMAX ? 1 : -1);
    case CALL_LOGSUMEXP:
        return node_log_sum(g, x, n, 1);
    case CALL_PROD:
        return product_of(g, x, n);
    case CALL_VAR:
        return variance_of(g, x, n, c->begin);
    case CALL_NORM:
        return norm_of(g, x, n);
    default:
        return node_sum(g, x, n, 1, c->kind == CALL_MEAN ? 1. / (double)n : 1.);
    }
}

/* Over the axes of the mask. */
void reduced(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *from = operand(x, 0);
    const int64_t n = value_numel(from), results = value_numel(v), each = n / results;
    int64_t index[MAX_RANK] = {0}, *count = calloc((size_t)results, sizeof *count);
    int32_t *members = new_nodes(n);
    if (!count)
        abort();
    for (int64_t i = 0; i < n; i++) {
        indices_of(from, i, index);
        const int64_t to = element(v, v->ndim, index);
        members[to * each + count[to]++] = nodes(x, 0)[i];
    }
    for (int64_t i = 0; i < results; i++)
        y[i] = reduce(x->g, x->c, members + i * each, each);
    free(members);
    free(count);
}

/* ---- along an axis ---------------------------------------------------------------------------*/

void along_axis(const struct context *x, int32_t *y, const struct value *v)
{
    const struct around a = around(v, x->c->axis);
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        const int64_t first = line / a.inner * a.n * a.inner + line % a.inner;
        const int32_t *from = nodes(x, 0) + first;
        const bool sums = x->c->kind == CALL_CUMSUM;
        const int32_t total = sums ? 0 : node_log_sum(x->g, from, a.n, a.inner);
        for (int64_t k = 0; k < a.n; k++) {
            const int32_t in = from[k * a.inner];
            const double log_p = node_at(x->g, in) - node_at(x->g, total), p = exp(log_p);
            y[first + k * a.inner] = sums ? node_sum(x->g, from, k + 1, a.inner, 1)
                                     : x->c->kind == CALL_LOG_SOFTMAX
                                         ? node_two(x->g, log_p, in, 1, total, -1)
                                         : node_two(x->g, p, in, p, total, -p);
        }
    }
}

/* The nodes of a row in descending order. */
static void sort_row(struct graph *g, int32_t *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = i; k > 0 && node_at(g, x[k]) > node_at(g, x[k - 1]); k--) {
            const int32_t other = x[k];
            x[k] = x[k - 1];
            x[k - 1] = other;
        }
    for (int64_t i = 1; i < n; i++)
        graph_branch(g, node_at(g, x[i - 1]) - node_at(g, x[i]), node_at(g, x[i]));
}

void sorted(const struct context *x, int32_t *y, const struct value *v)
{
    const int64_t n = last_of(operand(x, 0)), k = last_of(v), rows = value_numel(v) / k;
    const bool ascending = x->c->kind == CALL_SORT && !x->c->flag[0];
    int32_t *row = new_nodes(n);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(row, nodes(x, 0) + r * n, (size_t)n * sizeof *row);
        sort_row(x->g, row, n);
        for (int64_t i = 0; i < k; i++)
            y[r * k + i] = node_scaled(x->g, row[ascending ? n - 1 - i : i], 1);
    }
    free(row);
}

/* ---- norms -----------------------------------------------------------------------------------*/

/* Many elements that are equal: what is left of them is the rounding of their mean, which eps makes
 * 32 times as large. */
static bool is_flat(const struct graph *g, const int32_t *from, int64_t n, double mean)
{
    int64_t i = 0;
    while (i < n && fabs(node_at(g, from[i]) - mean) <= 1e-6 * fabs(mean))
        i++;
    return n >= 64 && i == n && mean != 0;
}

/* Normalises n elements. */
static void normalise(struct graph *g, const int32_t *from, int32_t *y, int64_t n, bool centred)
{
    const int32_t mean = centred ? node_sum(g, from, n, 1, 1. / (double)n) : -1;
    g->near |= centred && is_flat(g, from, n, node_at(g, mean));
    for (int64_t i = 0; i < n; i++)
        y[i] = centred ? node_two(g, node_at(g, from[i]) - node_at(g, mean), from[i], 1, mean, -1)
                       : from[i];
    const int32_t root = node_inverse_root(g, y, n, 1e-3);
    for (int64_t i = 0; i < n; i++)
        y[i] = node_mul(g, y[i], root);
}

/* y w + b */
static int32_t scaled(struct graph *g, int32_t y, int32_t w, int32_t b)
{
    y = node_mul(g, y, w);
    return b < 0 ? y : node_two(g, node_at(g, y) + node_at(g, b), y, 1, b, 1);
}

void row_norm(const struct context *x, int32_t *y, const struct value *v)
{
    const int64_t n = last_of(v), rows = value_numel(v) / n;
    const bool modulates = x->c->kind == CALL_LAYER_NORM_MODULATE;
    int64_t index[MAX_RANK] = {0};
    for (int64_t r = 0; r < rows; r++)
        normalise(x->g, nodes(x, 0) + r * n, y + r * n, n, x->c->kind != CALL_RMS_NORM);
    for (int64_t i = 0; i < rows * n; i++) {
        indices_of(v, i, index);
        const int32_t first = nodes(x, 1)[element(operand(x, 1), v->ndim, index)];
        const int32_t second =
            has_operand(x, 2) ? nodes(x, 2)[element(operand(x, 2), v->ndim, index)] : -1;
        y[i] = modulates
                   ? scaled(x->g, y[i], node_one(x->g, 1 + node_at(x->g, second), second, 1), first)
                   : scaled(x->g, y[i], first, second);
    }
}

/* Per sample and group of channels; of INSTANCE_NORM a channel; of BATCH_NORM over all samples. */
void group_norm(const struct context *x, int32_t *y, const struct value *v)
{
    const bool batch = x->c->kind == CALL_BATCH_NORM;
    const bool single = batch || x->c->kind == CALL_INSTANCE_NORM;
    const int64_t n = last_of(v), groups = single ? n : x->c->begin, each = n / groups;
    const int64_t samples = batch ? 1 : v->shape[0], places = value_numel(v) / samples / n;
    int32_t *from = new_nodes(2 * places * each);
    for (int64_t s = 0; s < samples * groups; s++) {
        const int64_t first = s / groups * places * n + s % groups * each;
        const int64_t m = places * each;
        for (int64_t i = 0; i < m; i++)
            from[i] = nodes(x, 0)[first + i / each * n + i % each];
        normalise(x->g, from, from + m, m, true);
        for (int64_t i = 0; i < m; i++) {
            const int64_t channel = s % groups * each + i % each;
            const int32_t z = scaled(x->g, from[m + i], nodes(x, 1)[channel],
                                     has_operand(x, 2) ? nodes(x, 2)[channel] : -1);
            y[first + i / each * n + i % each] =
                x->c->flag[0] && !single ? node_unary(x->g, UNARY_silu, z) : z;
        }
    }
    free(from);
}

/* ---- rotations -------------------------------------------------------------------------------*/

/* Pairs of neighbours or of the two halves of the last axis. */
void rope(const struct context *x, int32_t *y, const struct value *v)
{
    const int64_t n = last_of(v), rows = value_numel(v) / n;
    const bool halves = x->c->kind == CALL_ROPE_HALVES;
    struct value shape;
    int64_t index[MAX_RANK] = {0};
    float table[MAX_NUMEL];
    int32_t *in = new_nodes(rows * n);
    recording_table(x->r, x->c, &shape, table);
    memcpy(in, nodes(x, 0), (size_t)(rows * n) * sizeof *in);
    for (int64_t r = 0; r < rows && x->c->kind == CALL_RMS_NORM_ROPE; r++) {
        normalise(x->g, nodes(x, 0) + r * n, in + r * n, n, false);
        for (int64_t i = 0; i < n; i++)
            in[r * n + i] = scaled(x->g, in[r * n + i], nodes(x, 1)[i], -1);
    }
    for (int64_t i = 0; i < rows * n / 2; i++) {
        const int64_t row = i / (n / 2) * n, k = i % (n / 2);
        const int64_t a = row + (halves ? k : 2 * k), b = row + (halves ? k + n / 2 : 2 * k + 1);
        indices_of(v, row, index);
        const float *pair = table + (index[x->c->axis] * (n / 2) + k) * 2;
        const double c = (double)pair[0], s = (double)pair[1];
        const double xa = node_at(x->g, in[a]), xb = node_at(x->g, in[b]);
        y[a] = node_two(x->g, xa * c - xb * s, in[a], c, in[b], -s);
        y[b] = node_two(x->g, xb * c + xa * s, in[b], c, in[a], s);
    }
    free(in);
}

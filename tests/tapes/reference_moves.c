/* SPDX-License-Identifier: Apache-2.0 */
/* Views, lookup and windows in fp64: elements of the result are elements of operands, or sums and
 * maxima of some. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reference.h"

/* ---- views -----------------------------------------------------------------------------------*/

/* Where padding at place i of n elements comes from; -1: it is 0. */
static int64_t padded(unsigned mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    if (mode == CKPT_PAD_CONSTANT)
        return -1;
    if (mode == CKPT_PAD_REPLICATE)
        return i < 0 ? 0 : n - 1;
    return i < 0 ? -i : 2 * n - 2 - i;
}

/* The index on the axis of the call that an index of the result comes from. */
static int64_t along(const struct context *x, const struct value *from, int64_t i, int64_t size)
{
    const int64_t n = from->shape[x->c->axis];
    switch (x->c->kind) {
    case CALL_SPLIT:
        return i + x->part * size;
    case CALL_SLICE:
        return i + x->c->begin;
    case CALL_PAD:
        return padded(x->c->mask, i - x->c->begin, n);
    case CALL_ROLL:
        return ((i - x->c->begin) % n + n) % n;
    case CALL_FLIP:
        return n - 1 - i;
    default:
        return i;
    }
}

void moved(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *from = operand(x, 0);
    const struct call *c = x->c;
    const bool in_order =
        c->kind == CALL_RESHAPE || c->kind == CALL_SQUEEZE || c->kind == CALL_UNSQUEEZE;
    const bool has_axis = !in_order && c->kind != CALL_PERMUTE && c->kind != CALL_REPEAT;
    int64_t index[MAX_RANK] = {0}, at[MAX_RANK] = {0};
    for (int64_t i = 0; i < value_numel(v); i++) {
        indices_of(v, i, index);
        for (int k = 0; k < v->ndim; k++) {
            if (c->kind == CALL_PERMUTE)
                at[c->axes[k]] = index[k];
            else
                at[k] = c->kind == CALL_REPEAT ? index[k] % from->shape[k] : index[k];
        }
        if (c->kind == CALL_TRANSPOSE) {
            at[c->axis] = index[c->begin];
            at[c->begin] = index[c->axis];
        } else if (has_axis) {
            at[c->axis] = along(x, from, index[c->axis], v->shape[c->axis]);
        }
        if (has_axis && at[c->axis] < 0)
            y[i] = node_new(x->g, 0);
        else
            y[i] = nodes(x, 0)[in_order ? i : element(from, v->ndim, at)];
    }
}

void concat(const struct context *x, int32_t *y, const struct value *v)
{
    const struct around whole = around(v, x->c->axis);
    int64_t begin = 0;
    for (int k = 0; k < x->c->n_in; k++) {
        const int64_t n = x->c->kind == CALL_STACK ? 1 : operand(x, k)->shape[x->c->axis];
        for (int64_t o = 0; o < whole.outer; o++)
            memcpy(y + (o * whole.n + begin) * whole.inner, nodes(x, k) + o * n * whole.inner,
                   (size_t)(n * whole.inner) * sizeof *y);
        begin += n;
    }
}

/* Channels [..., C f f] to [... f, ... f, C]: the places in a cell come last. */
void shuffled(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *from = operand(x, 0);
    const int64_t f = x->c->begin;
    int64_t index[MAX_RANK] = {0};
    for (int64_t i = 0; i < value_numel(v); i++) {
        indices_of(v, i, index);
        int64_t channel = index[v->ndim - 1];
        for (int k = 1; k + 1 < v->ndim; k++) {
            channel = channel * f + index[k] % f;
            index[k] /= f;
        }
        index[v->ndim - 1] = channel;
        y[i] = nodes(x, 0)[element(from, v->ndim, index)];
    }
}

/* ---- lookup ----------------------------------------------------------------------------------*/

void rows_of(const struct context *x, int32_t *y, const struct value *v)
{
    const bool table = x->c->kind == CALL_EMBEDDING;
    const struct around a = around(operand(x, 0), table ? 0 : x->c->axis);
    struct value shape;
    int32_t index[MAX_NUMEL];
    recording_indices(x->r, x->c, 0, &shape, index);
    const int64_t n = value_numel(&shape);
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t k = 0; k < n; k++)
            memcpy(y + (o * n + k) * a.inner, nodes(x, 0) + (o * a.n + index[k]) * a.inner,
                   (size_t)a.inner * sizeof *y);
    for (int64_t i = 0; i < value_numel(v) && table; i++)
        if (index[i / a.inner] == x->c->begin) /* no gradient */
            y[i] = node_new(x->g, node_at(x->g, y[i]));
}

void gathered(const struct context *x, int32_t *y, const struct value *v)
{
    struct value shape;
    int32_t index[MAX_NUMEL];
    int64_t at[MAX_RANK] = {0};
    recording_indices(x->r, x->c, 0, &shape, index);
    for (int64_t i = 0; i < value_numel(v); i++) {
        indices_of(v, i, at);
        at[x->c->axis] = index[i];
        y[i] = nodes(x, 0)[element(operand(x, 0), v->ndim, at)];
    }
}

/* SCATTER_ADD has an index for each element of the source, INDEX_ADD one for each of its rows. */
void scattered(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *source = operand(x, 1);
    const bool rows = x->c->kind == CALL_INDEX_ADD;
    struct value shape;
    int32_t index[MAX_NUMEL];
    int64_t at[MAX_RANK] = {0};
    recording_indices(x->r, x->c, 0, &shape, index);
    for (int64_t i = 0; i < value_numel(v); i++)
        y[i] = nodes(x, 0)[i];
    for (int64_t i = 0; i < value_numel(source); i++) {
        indices_of(source, i, at);
        at[x->c->axis] = index[rows ? at[x->c->axis] : i];
        const int64_t to = element(v, v->ndim, at);
        const double sum = node_at(x->g, y[to]) + number(x, 1, i);
        y[to] = node_two(x->g, sum, y[to], 1, nodes(x, 1)[i], 1);
    }
}

static double distance(const struct context *x, int64_t row, int64_t entry, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += pow(number(x, 0, row * n + i) - number(x, 1, entry * n + i), 2);
    return sum;
}

/* Entries of a codebook in the place of rows, whose gradient passes as if they were the rows. */
void nearest(const struct context *x, int32_t *y, const struct value *v)
{
    const int64_t n = last_of(v), entries = operand(x, 1)->shape[0];
    for (int64_t r = 0; r < value_numel(v) / n; r++) {
        int64_t best = 0;
        for (int64_t k = 1; k < entries; k++)
            best = distance(x, r, k, n) < distance(x, r, best, n) ? k : best;
        for (int64_t k = 0; k < entries; k++)
            if (k != best)
                graph_branch(x->g, distance(x, r, k, n) - distance(x, r, best, n),
                             distance(x, r, k, n));
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = node_one(x->g, number(x, 1, best * n + i), nodes(x, 0)[r * n + i], 1);
    }
}

/* ---- windows ---------------------------------------------------------------------------------*/

/* What one axis of an element of the result reads: elements begin .. begin + n - 1 of the operand,
 * the first two with weights if it is linear. */
struct window {
    int64_t begin, n, counted; /* counted: with padding */
    double weight[2];
};

static struct window linear_window(int64_t o, int64_t in, int64_t out)
{
    const double at = fmax(((double)o + 0.5) * (double)in / (double)out - 0.5, 0);
    const int64_t low = (int64_t)at;
    const double high = at - (double)low;
    if (low + 1 >= in)
        return (struct window){in - 1, 1, 1, {1, 0}};
    return (struct window){low, 2, 1, {1 - high, high}};
}

static struct window window_of(const struct call *c, int64_t o, int64_t in, int64_t out)
{
    const int64_t stride = c->end ? c->end : c->begin, begin = o * stride - c->axes[0];
    switch (c->kind) {
    case CALL_MAX_POOL:
    case CALL_AVG_POOL: {
        const int64_t low = begin < 0 ? 0 : begin;
        const int64_t high = begin + c->begin < in ? begin + c->begin : in;
        return (struct window){low, high - low, c->flag[0] ? c->begin : high - low, {0}};
    }
    case CALL_ADAPTIVE_AVG_POOL:
    case CALL_ADAPTIVE_MAX_POOL: {
        const int64_t low = o * in / out, n = ((o + 1) * in + out - 1) / out - low;
        return (struct window){low, n, n, {0}};
    }
    case CALL_RESIZE_LINEAR:
        return linear_window(o, in, out);
    case CALL_UPSAMPLE_NEAREST:
        return (struct window){o / c->begin, 1, 1, {0}};
    default:
        return (struct window){o * in / out, 1, 1, {0}};
    }
}

/* The windows of the spatial axes, one after the other: a list of nodes with weights. */
static int64_t collect(const struct context *x, const struct value *v, const int64_t *index,
                       int32_t *in, double *weight)
{
    const struct value *from = operand(x, 0);
    struct value shape = {.ndim = v->ndim, .shape = {1, 1, 1, 1}};
    struct window w[MAX_RANK];
    for (int k = 1; k + 1 < v->ndim; k++) {
        w[k] = window_of(x->c, index[k], from->shape[k], v->shape[k]);
        shape.shape[k] = w[k].n;
    }
    for (int64_t i = 0; i < value_numel(&shape); i++) {
        int64_t at[MAX_RANK] = {0};
        indices_of(&shape, i, at);
        weight[i] = 1;
        for (int k = 1; k + 1 < v->ndim; k++) {
            weight[i] *=
                x->c->kind == CALL_RESIZE_LINEAR ? w[k].weight[at[k]] : 1. / (double)w[k].counted;
            at[k] += w[k].begin;
        }
        at[0] = index[0];
        at[v->ndim - 1] = index[v->ndim - 1];
        in[i] = nodes(x, 0)[element(from, v->ndim, at)];
    }
    return value_numel(&shape);
}

void pooled(const struct context *x, int32_t *y, const struct value *v)
{
    const bool largest = x->c->kind == CALL_MAX_POOL || x->c->kind == CALL_ADAPTIVE_MAX_POOL;
    int32_t in[MAX_NUMEL];
    double weight[MAX_NUMEL];
    int64_t index[MAX_RANK] = {0};
    for (int64_t i = 0; i < value_numel(v); i++) {
        indices_of(v, i, index);
        const int64_t n = collect(x, v, index, in, weight);
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += weight[k] * node_at(x->g, in[k]);
        y[i] = largest ? node_largest(x->g, in, n, 1) : node_new(x->g, sum);
        for (int64_t k = 0; k < n && !largest; k++)
            node_edge(x->g, in[k], weight[k]);
    }
}

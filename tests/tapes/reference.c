/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording in fp64.  Every element is a node: a value and its derivatives by earlier nodes.  A
 * pass over the nodes from the last to the first gives all gradients, so that no call has a
 * gradient rule here, and nothing is shared with the library.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "recording.h"

struct edge {
    int32_t from;
    double slope;
};

struct node {
    double x, gradient, scale; /* scale: the gradient, of magnitudes */
    int64_t first;             /* edges [first, first of the next node) */
    uint8_t dtype;             /* the gradient is rounded to it */
};

struct graph {
    struct node *node;
    struct edge *edge;
    int64_t n, room, n_edges, edge_room;
    bool near;
    enum rounding rounding;
    double largest, margin; /* margin: of `near`, relative */
};

/* Nodes of the elements of each value. */
struct elements {
    int32_t *at[MAX_VALUES];
};

static double gelu(double x)
{
    return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x), t = tanh(u);
    return (1 + t) / 2 + x / 2 * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

/* A function of one value, or its derivative. */
static double apply(enum unary f, double x, bool slope)
{
#define X(name, f, d)                                                                              \
    case UNARY_##name:                                                                             \
        return slope ? d : f;
    switch (f) {
        UNARY(X)
    default:
        return slope ? 1 : x;
    }
#undef X
}

/* ---- nodes -----------------------------------------------------------------------------------*/

static double round_to(double x, enum ckpt_dtype dtype, enum rounding rounding)
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

static int32_t add_node(struct graph *g, double x)
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

/* Adds an edge to the last node. */
static void add_edge(struct graph *g, int32_t from, double slope)
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

static double at(const struct graph *g, int32_t i)
{
    return g->node[i].x;
}

static int32_t one(struct graph *g, double x, int32_t a, double da)
{
    const int32_t i = add_node(g, x);
    add_edge(g, a, da);
    return i;
}

static int32_t two(struct graph *g, double x, int32_t a, double da, int32_t b, double db)
{
    const int32_t i = one(g, x, a, da);
    add_edge(g, b, db);
    return i;
}

static int32_t mul(struct graph *g, int32_t a, int32_t b)
{
    return two(g, at(g, a) * at(g, b), a, at(g, b), b, at(g, a));
}

/* The sum of n nodes, `step` apart, times a factor. */
static int32_t sum_of(struct graph *g, const int32_t *x, int64_t n, int64_t step, double factor)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += at(g, x[i * step]);
    const int32_t y = add_node(g, factor * sum);
    for (int64_t i = 0; i < n; i++)
        add_edge(g, x[i * step], factor);
    return y;
}

static int32_t unary(struct graph *g, enum unary f, int32_t x)
{
    return one(g, apply(f, at(g, x), false), x, apply(f, at(g, x), true));
}

/* log of the sum of exponentials. */
static int32_t log_sum(struct graph *g, const int32_t *x, int64_t n, int64_t step)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, at(g, x[i * step]));
    for (int64_t i = 0; i < n; i++)
        sum += exp(at(g, x[i * step]) - top);
    const int32_t y = add_node(g, top + log(sum));
    for (int64_t i = 0; i < n; i++)
        add_edge(g, x[i * step], exp(at(g, x[i * step]) - top) / sum);
    return y;
}

/* 1 / sqrt(mean of squares + eps) */
static int32_t inverse_root(struct graph *g, const int32_t *x, int64_t n, double eps)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += at(g, x[i]) * at(g, x[i]);
    const double r = 1 / sqrt(sum / (double)n + eps);
    const int32_t y = add_node(g, r);
    for (int64_t i = 0; i < n; i++)
        add_edge(g, x[i], -r * r * r * at(g, x[i]) / (double)n);
    return y;
}

/* ---- shapes ----------------------------------------------------------------------------------*/

/* Splits element i of v into indices. */
static void indices_of(const struct value *v, int64_t i, int64_t *index)
{
    for (int k = v->ndim - 1; k >= 0; k--) {
        index[k] = i % v->shape[k];
        i /= v->shape[k];
    }
}

/* The element of x, which broadcasts to a shape of ndim axes, at these indices. */
static int64_t element(const struct value *x, int ndim, const int64_t *index)
{
    int64_t i = 0;
    for (int k = 0; k < x->ndim; k++)
        i = i * x->shape[k] + (x->shape[k] == 1 ? 0 : index[ndim - x->ndim + k]);
    return i;
}

/* Elements before, along and behind an axis. */
struct around {
    int64_t outer, n, inner;
};

static struct around around(const struct value *v, int axis)
{
    struct around a = {1, v->shape[axis], 1};
    for (int k = 0; k < axis; k++)
        a.outer *= v->shape[k];
    for (int k = axis + 1; k < v->ndim; k++)
        a.inner *= v->shape[k];
    return a;
}

/* ---- calls -----------------------------------------------------------------------------------*/

struct context {
    const struct recording *r;
    struct graph *g;
    struct elements *e;
    const struct call *c;
    int64_t micro;
};

static const struct value *in_value(const struct context *x, int k)
{
    return &x->r->value[x->c->in[k]];
}

static int32_t *in_nodes(const struct context *x, int k)
{
    return x->e->at[x->c->in[k]];
}

static void leaf(const struct context *x, int32_t *y, int64_t n)
{
    const bool fed = x->c->kind == CALL_INPUT;
    const int64_t all = fed ? n * x->r->n_micro : n;
    float *values = malloc((size_t)all * sizeof *values);
    if (!values)
        abort();
    recording_fill(x->r, x->c, values, all);
    for (int64_t i = 0; i < n; i++)
        y[i] = add_node(x->g, (double)values[i + (fed ? n * x->micro : 0)]);
    free(values);
}

static int32_t choose(struct graph *g, int32_t a, int32_t b)
{
    const double gap = at(g, a) - at(g, b);
    g->near |= fabs(gap) <= g->margin * (1 + fabs(at(g, a)));
    return one(g, fmax(at(g, a), at(g, b)), gap >= 0 ? a : b, 1);
}

static int32_t binary(struct graph *g, enum call_kind kind, int32_t a, int32_t b)
{
    const double x = at(g, a), y = at(g, b);
    switch (kind) {
    case CALL_ADD:
        return two(g, x + y, a, 1, b, 1);
    case CALL_SUB:
        return two(g, x - y, a, 1, b, -1);
    case CALL_MUL:
        return mul(g, a, b);
    case CALL_DIV:
        return two(g, x / y, a, 1 / y, b, -x / (y * y));
    default:
        return choose(g, a, b);
    }
}

static void elementwise(const struct context *x, int32_t *y, const struct value *v)
{
    int64_t index[MAX_RANK] = {0};
    for (int64_t i = 0; i < value_numel(v); i++) {
        int32_t in[4];
        indices_of(v, i, index);
        for (int k = 0; k < x->c->n_in && k < 4; k++)
            in[k] = in_nodes(x, k)[element(in_value(x, k), v->ndim, index)];
        const double first = at(x->g, in[0]);
        if (x->c->kind == CALL_UNARY) {
            y[i] = unary(x->g, x->c->unary, in[0]);
        } else if (x->c->kind == CALL_AFFINE) {
            y[i] = one(x->g, (double)x->c->a * first + (double)x->c->b, in[0], (double)x->c->a);
        } else if (x->c->kind == CALL_CAST || x->c->kind == CALL_EXPAND) {
            y[i] = one(x->g, first, in[0], 1);
        } else if (x->c->kind == CALL_WHERE) { /* in[0] < in[1] ? in[2] : in[3] */
            const double gap = at(x->g, in[1]) - first;
            x->g->near |= fabs(gap) <= x->g->margin * (1 + fabs(first));
            const int32_t from = gap > 0 ? in[2] : in[3];
            y[i] = one(x->g, at(x->g, from), from, 1);
        } else if (x->c->kind == CALL_MODULATE) { /* x, shift, scale */
            y[i] = two(x->g, first * (1 + at(x->g, in[2])) + at(x->g, in[1]), in[0],
                       1 + at(x->g, in[2]), in[2], first);
            add_edge(x->g, in[1], 1);
        } else if (x->c->kind == CALL_GATED) { /* x, gate, a */
            y[i] = two(x->g, first + at(x->g, in[1]) * at(x->g, in[2]), in[0], 1, in[1],
                       at(x->g, in[2]));
            add_edge(x->g, in[2], at(x->g, in[1]));
        } else {
            y[i] = binary(x->g, x->c->kind, in[0], in[1]);
        }
    }
}

static int32_t largest(struct graph *g, const int32_t *x, int64_t n)
{
    int32_t best = x[0];
    for (int64_t i = 1; i < n; i++)
        best = at(g, x[i]) > at(g, best) ? x[i] : best;
    for (int64_t i = 0; i < n; i++)
        g->near |= x[i] != best && at(g, best) - at(g, x[i]) <= g->margin * (1 + fabs(at(g, best)));
    return one(g, at(g, best), best, 1);
}

/* Sums, means, maxima over the axes of the mask. */
static void reduce(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *from = in_value(x, 0);
    const int64_t n = value_numel(from), results = value_numel(v), each = n / results;
    int64_t index[MAX_RANK] = {0};
    int32_t *members = malloc((size_t)n * sizeof *members);
    int64_t *count = calloc((size_t)results, sizeof *count);
    if (!members || !count)
        abort();
    for (int64_t i = 0; i < n; i++) {
        indices_of(from, i, index);
        const int64_t to = element(v, v->ndim, index);
        members[to * each + count[to]++] = in_nodes(x, 0)[i];
    }
    for (int64_t i = 0; i < results; i++) {
        const int32_t *m = members + i * each;
        if (x->c->kind == CALL_AMAX)
            y[i] = largest(x->g, m, each);
        else if (x->c->kind == CALL_LOGSUMEXP)
            y[i] = log_sum(x->g, m, each, 1);
        else
            y[i] = sum_of(x->g, m, each, 1, x->c->kind == CALL_MEAN ? 1. / (double)each : 1.);
    }
    free(members);
    free(count);
}

static void along_axis(const struct context *x, int32_t *y)
{
    const struct around a = around(in_value(x, 0), x->c->axis);
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t i = 0; i < a.inner; i++) {
            const int32_t *from = in_nodes(x, 0) + o * a.n * a.inner + i;
            int32_t *to = y + o * a.n * a.inner + i;
            if (x->c->kind == CALL_SOFTMAX) {
                const int32_t total = log_sum(x->g, from, a.n, a.inner);
                for (int64_t k = 0; k < a.n; k++) {
                    const double p = exp(at(x->g, from[k * a.inner]) - at(x->g, total));
                    to[k * a.inner] = two(x->g, p, from[k * a.inner], p, total, -p);
                }
            }
            for (int64_t k = 0; k < a.n; k++)
                if (x->c->kind == CALL_FLIP)
                    to[k * a.inner] = from[(a.n - 1 - k) * a.inner];
                else if (x->c->kind == CALL_CUMSUM)
                    to[k * a.inner] = sum_of(x->g, from, k + 1, a.inner, 1);
        }
}

/* Normalises n elements, whose channel is their place modulo `channels`, from channel `first`. */
static void normalise(const struct context *x, const int32_t *from, int32_t *y, int64_t n,
                      double eps, bool centred)
{
    struct graph *g = x->g;
    const int32_t mean = centred ? sum_of(g, from, n, 1, 1. / (double)n) : -1;
    for (int64_t i = 0; i < n; i++)
        y[i] = centred ? two(g, at(g, from[i]) - at(g, mean), from[i], 1, mean, -1) : from[i];
    const int32_t root = inverse_root(g, y, n, eps);
    for (int64_t i = 0; i < n; i++)
        y[i] = mul(g, y[i], root);
}

static int32_t scaled(const struct context *x, int32_t y, int64_t channel)
{
    y = mul(x->g, y, in_nodes(x, 1)[channel]);
    if (x->c->n_in < 3 || x->c->in[2] < 0)
        return y;
    return binary(x->g, CALL_ADD, y, in_nodes(x, 2)[channel]);
}

static void row_norm(const struct context *x, int32_t *y, const struct value *v)
{
    const int64_t n = v->shape[v->ndim - 1], rows = value_numel(v) / n;
    for (int64_t r = 0; r < rows; r++) {
        normalise(x, in_nodes(x, 0) + r * n, y + r * n, n, 1e-3, x->c->kind == CALL_LAYER_NORM);
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = scaled(x, y[r * n + i], i);
    }
}

static void group_norm(const struct context *x, int32_t *y, const struct value *v)
{
    const int64_t n = v->shape[v->ndim - 1], groups = x->c->begin, each = n / groups;
    const int64_t places = value_numel(v) / v->shape[0] / n;
    int32_t *from = malloc((size_t)(2 * places * each) * sizeof *from);
    if (!from)
        abort();
    for (int64_t s = 0; s < v->shape[0]; s++)
        for (int64_t k = 0; k < groups; k++) {
            int64_t m = 0;
            for (int64_t p = 0; p < places; p++)
                for (int64_t i = 0; i < each; i++)
                    from[m++] = in_nodes(x, 0)[(s * places + p) * n + k * each + i];
            normalise(x, from, from + m, m, 1e-3, true);
            for (int64_t i = 0; i < m; i++) {
                const int64_t channel = k * each + i % each;
                int32_t z = scaled(x, from[m + i], channel);
                if (x->c->flag[0])
                    z = unary(x->g, UNARY_silu, z);
                y[(s * places + i / each) * n + channel] = z;
            }
        }
    free(from);
}

/* A sum of n products of nodes `da` and `db` apart, plus a node unless it is -1. */
static int32_t product(struct graph *g, const int32_t *a, int64_t da, const int32_t *b, int64_t db,
                       int64_t n, int32_t plus)
{
    double sum = plus < 0 ? 0 : at(g, plus);
    for (int64_t k = 0; k < n; k++)
        sum += at(g, a[k * da]) * at(g, b[k * db]);
    const int32_t y = add_node(g, sum);
    if (plus >= 0)
        add_edge(g, plus, 1);
    for (int64_t k = 0; k < n; k++) {
        const double p = at(g, a[k * da]), q = at(g, b[k * db]);
        add_edge(g, a[k * da], q);
        add_edge(g, b[k * db], p);
    }
    return y;
}

static void linear(const struct context *x, int32_t *y, const struct value *v)
{
    const int64_t n = v->shape[v->ndim - 1];
    const int64_t inner = in_value(x, 1)->shape[1], rows = value_numel(v) / n;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const bool has_bias = x->c->in[2] >= 0;
            y[r * n + i] = product(x->g, in_nodes(x, 0) + r * inner, 1, in_nodes(x, 1) + i * inner,
                                   1, inner, has_bias ? in_nodes(x, 2)[i] : -1);
        }
}

static void matmul(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *a = in_value(x, 0), *b = in_value(x, 1);
    const int64_t rows = v->shape[v->ndim - 2], cols = v->shape[v->ndim - 1];
    const int64_t inner = a->shape[a->ndim - (x->c->flag[0] ? 2 : 1)];
    int64_t index[MAX_RANK] = {0};
    for (int64_t i = 0; i < value_numel(v); i++) {
        struct value wide_a = *a, wide_b = *b;
        indices_of(v, i, index);
        const int64_t row = index[v->ndim - 2], col = index[v->ndim - 1];
        wide_a.ndim -= 2; /* the leading axes */
        wide_b.ndim -= 2;
        const int64_t of_a = element(&wide_a, v->ndim - 2, index) * rows * inner;
        const int64_t of_b = element(&wide_b, v->ndim - 2, index) * inner * cols;
        const bool ta = x->c->flag[0], tb = x->c->flag[1];
        y[i] = product(x->g, in_nodes(x, 0) + of_a + (ta ? row : row * inner), ta ? rows : 1,
                       in_nodes(x, 1) + of_b + (tb ? col * inner : col), tb ? 1 : cols, inner, -1);
    }
}

/* One axis, channels last, `begin` zeros before and as many after; x [N, L, C], w [K, T, C]. */
static void conv(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *a = in_value(x, 0), *w = in_value(x, 1);
    const int64_t taps = w->shape[1], channels = w->shape[2];
    int64_t index[MAX_RANK] = {0};
    for (int64_t i = 0; i < value_numel(v); i++) {
        indices_of(v, i, index);
        const int64_t low = index[1] < x->c->begin ? x->c->begin - index[1] : 0;
        const int64_t room = a->shape[1] + x->c->begin - index[1];
        const int64_t high = room < taps ? room : taps; /* taps [low, high) lie in x */
        const int64_t place = index[0] * a->shape[1] + index[1] - x->c->begin + low;
        y[i] = product(x->g, in_nodes(x, 0) + place * channels, 1,
                       in_nodes(x, 1) + (index[2] * taps + low) * channels, 1,
                       high > low ? (high - low) * channels : 0,
                       x->c->in[2] >= 0 ? in_nodes(x, 2)[index[2]] : -1);
    }
}

static void views(const struct context *x, int32_t *y, const struct value *v, int part)
{
    const struct value *from = in_value(x, 0);
    int64_t index[MAX_RANK] = {0}, moved[MAX_RANK] = {0};
    for (int64_t i = 0; i < value_numel(v); i++) {
        indices_of(v, i, index);
        memcpy(moved, index, sizeof moved);
        if (x->c->kind == CALL_SPLIT)
            moved[x->c->axis] += part * v->shape[x->c->axis];
        else if (x->c->kind == CALL_SLICE)
            moved[x->c->axis] += x->c->begin;
        else if (x->c->kind == CALL_PAD)
            moved[x->c->axis] -= x->c->begin;
        for (int k = 0; k < v->ndim && x->c->kind == CALL_PERMUTE; k++)
            moved[x->c->axes[k]] = index[k];
        const int axis = x->c->axis;
        if (x->c->kind == CALL_PAD && (moved[axis] < 0 || moved[axis] >= from->shape[axis]))
            y[i] = add_node(x->g, 0);
        else
            y[i] = in_nodes(x, 0)[x->c->kind == CALL_RESHAPE ? i : element(from, v->ndim, moved)];
    }
}

static void concat(const struct context *x, int32_t *y, const struct value *v)
{
    const struct around whole = around(v, x->c->axis);
    int64_t begin = 0;
    for (int k = 0; k < x->c->n_in; k++) {
        const struct around a = around(in_value(x, k), x->c->axis);
        for (int64_t o = 0; o < a.outer; o++)
            memcpy(y + (o * whole.n + begin) * whole.inner, in_nodes(x, k) + o * a.n * a.inner,
                   (size_t)(a.n * a.inner) * sizeof *y);
        begin += a.n;
    }
}

static void rows_of(const struct context *x, int32_t *y, const struct value *v)
{
    const struct around a = around(in_value(x, 0), x->c->axis);
    const int64_t n = v->shape[x->c->axis];
    int32_t index[MAX_NUMEL];
    recording_indices(x->c, a.n, index, n);
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t k = 0; k < n; k++)
            memcpy(y + (o * n + k) * a.inner, in_nodes(x, 0) + (o * a.n + index[k]) * a.inner,
                   (size_t)a.inner * sizeof *y);
}

static void loss_of(const struct context *x, int32_t *y)
{
    const struct value *from = in_value(x, 0);
    const int64_t all = value_numel(from), n = from->shape[from->ndim - 1];
    int32_t *terms = malloc((size_t)all * sizeof *terms), label[MAX_NUMEL];
    int64_t rows = all;
    if (!terms)
        abort();
    if (x->c->kind == CALL_MSE) {
        for (int64_t i = 0; i < all; i++) {
            const int32_t a = in_nodes(x, 0)[i], b = in_nodes(x, 1)[i];
            const int32_t gap = binary(x->g, CALL_SUB, a, b);
            terms[i] = mul(x->g, gap, gap);
        }
    } else {
        rows = all / n;
        recording_indices(x->c, n, label, rows);
        for (int64_t i = 0; i < rows; i++) {
            const int32_t *row = in_nodes(x, 0) + i * n;
            terms[i] = binary(x->g, CALL_SUB, log_sum(x->g, row, n, 1), row[label[i]]);
        }
    }
    y[0] = sum_of(x->g, terms, rows, 1, 1. / (double)rows);
    free(terms);
}

static void run_call(const struct context *x, int32_t *y, const struct value *v, int part)
{
    switch (x->c->kind) {
    case CALL_PARAM:
    case CALL_INPUT:
        return leaf(x, y, value_numel(v));
    case CALL_SUM:
    case CALL_MEAN:
    case CALL_AMAX:
    case CALL_LOGSUMEXP:
        return reduce(x, y, v);
    case CALL_SOFTMAX:
    case CALL_CUMSUM:
    case CALL_FLIP:
        return along_axis(x, y);
    case CALL_LAYER_NORM:
    case CALL_RMS_NORM:
        return row_norm(x, y, v);
    case CALL_GROUP_NORM:
        return group_norm(x, y, v);
    case CALL_LINEAR:
        return linear(x, y, v);
    case CALL_MATMUL:
        return matmul(x, y, v);
    case CALL_CONV:
        return conv(x, y, v);
    case CALL_SPLIT:
    case CALL_SLICE:
    case CALL_RESHAPE:
    case CALL_PERMUTE:
    case CALL_PAD:
        return views(x, y, v, part);
    case CALL_CONCAT:
        return concat(x, y, v);
    case CALL_ROWS:
        return rows_of(x, y, v);
    case CALL_CROSS_ENTROPY:
    case CALL_MSE:
        return loss_of(x, y);
    default:
        return elementwise(x, y, v);
    }
}

static bool is_view(enum call_kind kind)
{
    return kind == CALL_SPLIT || kind == CALL_SLICE || kind == CALL_RESHAPE ||
           kind == CALL_PERMUTE || kind == CALL_CONCAT || kind == CALL_FLIP || kind == CALL_ROWS ||
           kind == CALL_PARAM || kind == CALL_INPUT;
}

/* Rounds results where the library stores them, with a node in between. */
static void store(struct graph *g, const struct call *c, int32_t *y, const struct value *v)
{
    for (int64_t i = 0; i < value_numel(v); i++) {
        if (!is_view(c->kind)) {
            const double x = at(g, y[i]);
            y[i] = one(g, round_to(x, v->dtype, g->rounding), y[i], 1);
            g->node[y[i]].dtype = (uint8_t)v->dtype;
        }
        g->largest = fmax(g->largest, fabs(at(g, y[i])));
        if (!isfinite(at(g, y[i])))
            g->largest = INFINITY;
    }
}

static void backward(struct graph *g, int32_t from, double gradient)
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

/* The same function whatever the parameters of this micro-step are: nodes begin anew. */
static void run_micro(const struct recording *r, struct graph *g, int64_t micro,
                      struct reference *f)
{
    struct elements e = {{NULL}};
    g->n = g->n_edges = 0;
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->call[i];
        const struct context x = {r, g, &e, c, micro};
        for (int k = 0; k < c->n_out; k++) {
            const struct value *v = &r->value[c->out + k];
            int32_t *y = malloc((size_t)value_numel(v) * sizeof *y);
            if (!y)
                abort();
            run_call(&x, y, v, k);
            store(g, c, y, v);
            e.at[c->out + k] = y;
        }
    }
    const int32_t loss = e.at[r->loss][0];
    f->loss += at(g, loss) / (double)r->n_micro;
    backward(g, loss, 1. / (double)r->n_micro);
    for (int k = 0; k < r->n_values; k++) {
        double scale = 0;
        for (int64_t i = 0; f->gradient[k] && i < value_numel(&r->value[k]); i++) {
            const struct node *n = &g->node[e.at[k][i]];
            f->gradient[k][i] += n->gradient;
            scale += n->scale * n->scale;
        }
        f->scale[k] += sqrt(scale);
        free(e.at[k]);
    }
}

void recording_compute(const struct recording *r, enum rounding rounding, struct reference *f)
{
    struct graph g = {.rounding = rounding, .margin = 1e-5};
    for (int k = 0; k < r->n_values; k++)
        if (r->value[k].dtype == CKPT_BF16)
            g.margin = 0.05;
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

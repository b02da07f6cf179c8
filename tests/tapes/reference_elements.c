/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of single elements in fp64, with operands that broadcast. */
#include <math.h>
#include "reference.h"

static double gelu(double x)
{
    return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x), t = tanh(u);
    return (1 + t) / 2 + x / 2 * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static double mish_slope(double x)
{
    const double t = tanh(log1p(exp(x)));
    return t + x * (1 - t * t) / (1 + exp(-x));
}

/* A function of one value, its derivative, and the distance of x from where one of them jumps. */
struct applied {
    double y, slope, distance;
};

static struct applied apply(enum unary f, double x)
{
#define X(name, f, d, distance)                                                                    \
    case UNARY_##name:                                                                             \
        return (struct applied){f, d, distance};
    switch (f) {
        UNARY(X)
    default:
        return (struct applied){x, 1, INFINITY};
    }
#undef X
}

int32_t node_unary(struct graph *g, enum unary f, int32_t x)
{
    const struct applied a = apply(f, node_at(g, x));
    graph_branch(g, a.distance, node_at(g, x));
    return node_one(g, a.y, x, a.slope);
}

/* The larger one, or with sign -1 the smaller. */
static int32_t choose(struct graph *g, int32_t a, int32_t b, double sign)
{
    return node_largest(g, (int32_t[]){a, b}, 2, sign);
}

static int32_t binary(struct graph *g, enum call_kind kind, int32_t a, int32_t b)
{
    const double x = node_at(g, a), y = node_at(g, b);
    switch (kind) {
    case CALL_ADD:
        return node_two(g, x + y, a, 1, b, 1);
    case CALL_SUB:
        return node_two(g, x - y, a, 1, b, -1);
    case CALL_MUL:
        return node_mul(g, a, b);
    case CALL_DIV:
        return node_two(g, x / y, a, 1 / y, b, -x / (y * y));
    case CALL_POW:
        return node_two(g, pow(x, y), a, y * pow(x, y - 1), b, pow(x, y) * log(x));
    default:
        return choose(g, a, b, kind == CALL_MAXIMUM ? 1 : -1);
    }
}

/* Functions of one element and the numbers of the call. */
static int32_t parametric(struct graph *g, const struct call *c, int32_t in)
{
    const double x = node_at(g, in), a = (double)c->a, b = (double)c->b;
    switch (c->kind) {
    case CALL_AFFINE:
        return node_one(g, a * x + b, in, a);
    case CALL_LEAKY_RELU:
        graph_branch(g, fabs(x), x);
        return node_scaled(g, in, x > 0 ? 1 : a);
    case CALL_ELU:
        graph_branch(g, fabs(x), x);
        return node_one(g, x > 0 ? x : a * expm1(x), in, x > 0 ? 1 : a * exp(x));
    case CALL_CLAMP:
        graph_branch(g, fmin(fabs(x - a), fabs(x - b)), x);
        return node_one(g, fmin(fmax(x, a), b), in, x > a && x < b);
    default:
        return node_one(g, pow(x, a), in, a * pow(x, a - 1));
    }
}

/* in[0] < in[1] ? yes : no, or a number for no element. */
static int32_t where(struct graph *g, const int32_t *in, int32_t yes, int32_t no, double value)
{
    const double gap = node_at(g, in[1]) - node_at(g, in[0]);
    graph_branch(g, fabs(gap), node_at(g, in[0]));
    const int32_t from = gap > 0 ? yes : no;
    return from < 0 ? node_new(g, value) : node_scaled(g, from, 1);
}

/* x (1 + scale) + shift */
static int32_t modulate(struct graph *g, const int32_t *in)
{
    const double x = node_at(g, in[0]), scale = node_at(g, in[2]);
    const int32_t y = node_two(g, x * (1 + scale) + node_at(g, in[1]), in[0], 1 + scale, in[2], x);
    node_edge(g, in[1], 1);
    return y;
}

/* x + gate a */
static int32_t gated(struct graph *g, const int32_t *in)
{
    const double gate = node_at(g, in[1]), a = node_at(g, in[2]);
    const int32_t y = node_two(g, node_at(g, in[0]) + gate * a, in[0], 1, in[1], a);
    node_edge(g, in[2], gate);
    return y;
}

/* Codes from begin to end; the gradients of the scale and of zero are of the formula with codes
 * that are not rounded. */
static int32_t fake_quantize(struct graph *g, const struct call *c, const int32_t *in)
{
    const double x = node_at(g, in[0]), scale = node_at(g, in[1]);
    const double zero = c->in[2] >= 0 ? node_at(g, in[2]) : 0, code = rint(x / scale) + zero;
    const double low = (double)c->begin, high = (double)c->end;
    const double q = fmin(fmax(code, low), high);
    graph_branch(g, 0.5 - fabs(x / scale - rint(x / scale)), 0);
    const double inside = code >= low && code <= high;
    const int32_t y =
        node_two(g, (q - zero) * scale, in[0], inside, in[1], q - zero - inside * x / scale);
    if (c->in[2] >= 0)
        node_edge(g, in[2], scale * (inside - 1));
    return y;
}

static int32_t result(struct graph *g, const struct call *c, const int32_t *in)
{
    switch (c->kind) {
    case CALL_UNARY:
        return node_unary(g, c->unary, in[0]);
    case CALL_CAST:
    case CALL_EXPAND:
        return node_scaled(g, in[0], 1);
    case CALL_CONTIGUOUS:
        return in[0];
    case CALL_STOP_GRADIENT:
        return node_new(g, node_at(g, in[0]));
    case CALL_WHERE:
        return where(g, in, in[2], in[3], 0);
    case CALL_MASKED_FILL:
        return where(g, in, -1, in[2], (double)c->a);
    case CALL_MODULATE:
        return modulate(g, in);
    case CALL_GATED:
        return gated(g, in);
    case CALL_FAKE_QUANTIZE:
        return fake_quantize(g, c, in);
    default:
        return c->n_in == 2 ? binary(g, c->kind, in[0], in[1]) : parametric(g, c, in[0]);
    }
}

void elements(const struct context *x, int32_t *y, const struct value *v)
{
    int64_t index[MAX_RANK] = {0};
    for (int64_t i = 0; i < value_numel(v); i++) {
        int32_t in[4] = {-1, -1, -1, -1};
        indices_of(v, i, index);
        for (int k = 0; k < x->c->n_in && k < 4; k++)
            if (has_operand(x, k))
                in[k] = nodes(x, k)[element(operand(x, k), v->ndim, index)];
        y[i] = result(x->g, x->c, in);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse mode over the DAG of an expression.  A node from which no requested operand is reachable
 * gets no adjoint at all, rather than a product with 0, which would turn values that a where did
 * not select into NaN.
 */
#include <string.h>
#include "expr/expr.h"

struct reverse {
    const struct expr *e;
    struct expr *d;
    int to[EXPR_NODES];       /* per node of e: the same node in d */
    int adjoint[EXPR_NODES];  /* per node of e: its adjoint in d, or -1 */
    bool depends[EXPR_NODES]; /* per node of e: whether it depends on the operand */
};

static void add_to(struct reverse *r, int node, int value)
{
    int *sum = &r->adjoint[node];
    if (r->depends[node])
        *sum = *sum < 0 ? value : expr_binary(r->d, EXPR_ADD, *sum, value);
}

static int scaled(struct expr *d, float p, int a)
{
    return expr_node(d, EXPR_SCALE, a, 0, 0, p, 0.f);
}

static int affine(struct expr *d, float p, int a, float q)
{
    return expr_node(d, EXPR_AFFINE, a, 0, 0, p, q);
}

static int times(struct expr *d, int a, int b)
{
    return expr_binary(d, EXPR_MUL, a, b);
}

/* where(condition, g, 0) */
static int masked(struct expr *d, int condition, int g)
{
    return expr_where(d, condition, g, expr_constant(d, 0.f));
}

/* The second derivative of silu: s (1 - s) (2 + x (1 - 2 s)). */
static int silu_second(struct expr *d, int x)
{
    int s = expr_unary(d, EXPR_SIGMOID, x);
    int bend = affine(d, 1.f, times(d, x, affine(d, -2.f, s, 1.f)), 2.f);
    return times(d, times(d, s, affine(d, -1.f, s, 1.f)), bend);
}

/*
 * The second derivative of x s(v), v = c1 x + c3 x^3, s the sigmoid (GELU by its tanh formula):
 * with h = s (1 - s), 2 h v' + x (h (1 - 2 s) v'^2 + h v'').
 */
static int gelu_second(struct expr *d, int x)
{
    const float c1 = 1.5957691216057308f, c3 = 0.07135481627159595f;
    int x2 = times(d, x, x), v = times(d, x, affine(d, c3, x2, c1));
    int v1 = affine(d, 3.f * c3, x2, c1), v2 = scaled(d, 6.f * c3, x);
    int s = expr_unary(d, EXPR_SIGMOID, v), h = times(d, s, affine(d, -1.f, s, 1.f));
    int bend = times(d, affine(d, -2.f, s, 1.f), times(d, v1, v1));
    int tail = times(d, x, expr_binary(d, EXPR_ADD, bend, v2));
    return times(d, h, expr_binary(d, EXPR_ADD, scaled(d, 2.f, v1), tail));
}

/* The larger (or smaller) operand gets the gradient; equal operands get half of it each. */
static void reverse_extreme(struct reverse *r, const struct expr_node *n, int a, int b, int g)
{
    struct expr *d = r->d;
    int half = scaled(d, 0.5f, g), tie = expr_binary(d, EXPR_EQ, a, b);
    int first =
        n->code == EXPR_MAXIMUM ? expr_binary(d, EXPR_LT, b, a) : expr_binary(d, EXPR_LT, a, b);
    int second =
        n->code == EXPR_MAXIMUM ? expr_binary(d, EXPR_LT, a, b) : expr_binary(d, EXPR_LT, b, a);
    add_to(r, n->arg[0], expr_where(d, tie, half, masked(d, first, g)));
    add_to(r, n->arg[1], expr_where(d, tie, half, masked(d, second, g)));
}

static void reverse_pow(struct reverse *r, const struct expr_node *n, int a, int b, int y, int g)
{
    struct expr *d = r->d;
    const struct expr_node *p = &d->node[b];
    if (r->depends[n->arg[0]] && p->code == EXPR_CONSTANT) {
        add_to(r, n->arg[0], times(d, g, scaled(d, p->p, expr_power(d, a, p->p - 1.f))));
    } else if (r->depends[n->arg[0]]) {
        int slope = times(d, b, expr_binary(d, EXPR_POW, a, affine(d, 1.f, b, -1.f)));
        int flat = expr_binary(d, EXPR_EQ, b, expr_constant(d, 0.f));
        add_to(r, n->arg[0], expr_where(d, flat, expr_constant(d, 0.f), times(d, g, slope)));
    }
    if (r->depends[n->arg[1]]) {
        int slope = times(d, g, times(d, y, expr_unary(d, EXPR_LOG, a)));
        int zero = expr_binary(d, EXPR_EQ, a, expr_constant(d, 0.f));
        add_to(r, n->arg[1], expr_where(d, zero, expr_constant(d, 0.f), slope));
    }
}

/* g times dy/da of a function of one argument; a and y are nodes of d.  -1: the gradient is 0. */
static int reverse_unary(struct expr *d, const struct expr_node *n, int a, int y, int g)
{
    const float two_over_root_pi = 1.1283791670955126f;
    int zero = expr_constant(d, 0.f);
    switch (n->code) {
    case EXPR_SCALE:
    case EXPR_AFFINE:
        return scaled(d, n->p, g);
    case EXPR_CLAMP:
        return masked(d, expr_binary(d, EXPR_EQ, a, y), g);
    case EXPR_LEAKY:
        return expr_where(d, expr_binary(d, EXPR_LT, zero, a), g, scaled(d, n->p, g));
    case EXPR_BF16:
        return g;
    case EXPR_ROUND:
        return n->p != 0.f ? g : -1;
    case EXPR_EXP:
        return times(d, g, y);
    case EXPR_EXPM1:
        return times(d, g, affine(d, 1.f, y, 1.f));
    case EXPR_LOG:
        return expr_binary(d, EXPR_DIV, g, a);
    case EXPR_LOG1P:
        return expr_binary(d, EXPR_DIV, g, affine(d, 1.f, a, 1.f));
    case EXPR_SQRT:
        return scaled(d, 0.5f, expr_binary(d, EXPR_DIV, g, y));
    case EXPR_RSQRT:
        return scaled(d, -0.5f, times(d, g, times(d, y, times(d, y, y))));
    case EXPR_ABS:
        return times(d, g, expr_unary(d, EXPR_SIGN, a));
    case EXPR_TANH:
        return times(d, g, affine(d, -1.f, times(d, y, y), 1.f));
    case EXPR_SIGMOID:
        return times(d, g, times(d, y, affine(d, -1.f, y, 1.f)));
    case EXPR_SOFTPLUS:
        return times(d, g, expr_unary(d, EXPR_SIGMOID, a));
    case EXPR_ERF:
        return times(
            d, g,
            scaled(d, two_over_root_pi, expr_unary(d, EXPR_EXP, scaled(d, -1.f, times(d, a, a)))));
    case EXPR_SIN:
        return times(d, g, expr_unary(d, EXPR_COS, a));
    case EXPR_COS:
        return scaled(d, -1.f, times(d, g, expr_unary(d, EXPR_SIN, a)));
    case EXPR_RELU:
        return expr_binary(d, EXPR_RELU_DX, g, y);
    case EXPR_GELU:
        return expr_binary(d, EXPR_GELU_DX, g, a);
    case EXPR_SILU:
        return expr_binary(d, EXPR_SILU_DX, g, a);
    default:
        return -1; /* sign, floor, integer, not */
    }
}

static void reverse_binary(struct reverse *r, const struct expr_node *n, int y, int g)
{
    struct expr *d = r->d;
    int a = r->to[n->arg[0]], b = r->to[n->arg[1]];
    switch (n->code) {
    case EXPR_ADD:
        add_to(r, n->arg[0], g);
        add_to(r, n->arg[1], g);
        break;
    case EXPR_SUB:
        add_to(r, n->arg[0], g);
        add_to(r, n->arg[1], scaled(d, -1.f, g));
        break;
    case EXPR_MUL:
        add_to(r, n->arg[0], times(d, g, b));
        add_to(r, n->arg[1], times(d, g, a));
        break;
    case EXPR_DIV:
        add_to(r, n->arg[0], expr_binary(d, EXPR_DIV, g, b));
        add_to(r, n->arg[1], scaled(d, -1.f, times(d, expr_binary(d, EXPR_DIV, g, b), y)));
        break;
    case EXPR_POW:
        reverse_pow(r, n, a, b, y, g);
        break;
    case EXPR_MINIMUM:
    case EXPR_MAXIMUM:
        reverse_extreme(r, n, a, b, g);
        break;
    case EXPR_GELU_DX:
        add_to(r, n->arg[0], expr_binary(d, EXPR_GELU_DX, g, b));
        add_to(r, n->arg[1], times(d, times(d, g, a), gelu_second(d, b)));
        break;
    case EXPR_SILU_DX:
        add_to(r, n->arg[0], expr_binary(d, EXPR_SILU_DX, g, b));
        add_to(r, n->arg[1], times(d, times(d, g, a), silu_second(d, b)));
        break;
    case EXPR_RELU_DX:
        add_to(r, n->arg[0], expr_binary(d, EXPR_RELU_DX, g, b));
        break;
    default: /* comparisons and logic */
        break;
    }
}

static void reverse_node(struct reverse *r, int i)
{
    const struct expr_node *n = &r->e->node[i];
    int g = r->adjoint[i];
    if (g < 0 || !r->depends[i])
        return;
    if (expr_arguments(n->code) == 1) {
        int value = reverse_unary(r->d, n, r->to[n->arg[0]], r->to[i], g);
        if (value >= 0)
            add_to(r, n->arg[0], value);
    } else if (expr_arguments(n->code) == 2) {
        reverse_binary(r, n, r->to[i], g);
    } else if (n->code == EXPR_WHERE) {
        int zero = expr_constant(r->d, 0.f), c = r->to[n->arg[0]];
        add_to(r, n->arg[1], expr_where(r->d, c, g, zero));
        add_to(r, n->arg[2], expr_where(r->d, c, zero, g));
    }
}

/* Copies the nodes of e to d, after its operands.  Returns the node of operand k in e, or -1. */
static int copy_nodes(struct reverse *r, int k)
{
    int wanted = -1;
    for (int i = 0; i < r->e->n_nodes; i++) {
        const struct expr_node *n = &r->e->node[i];
        int arguments = expr_arguments(n->code), leaf = n->arg[0];
        r->adjoint[i] = -1;
        r->depends[i] = n->code == EXPR_INPUT && leaf == k;
        wanted = r->depends[i] ? i : wanted;
        for (int j = 0; j < arguments; j++)
            r->depends[i] |= r->depends[n->arg[j]];
        r->to[i] = expr_node(r->d, n->code, arguments > 0 ? r->to[n->arg[0]] : leaf,
                             arguments > 1 ? r->to[n->arg[1]] : 0,
                             arguments > 2 ? r->to[n->arg[2]] : 0, n->p, n->q);
    }
    return wanted;
}

/* With a bf16 result, 1 - y would lose the digits that rounding removed from y. */
static bool result_suffices(const struct expr *e, enum ckpt_dtype dtype)
{
    uint8_t code = e->node[e->n_nodes - 1].code;
    return dtype == CKPT_F32 || (code != EXPR_TANH && code != EXPR_SIGMOID && code != EXPR_EXPM1);
}

/* Drops dead nodes.  If the gradient can read the result instead of all operands, it does, so that
 * the operands can be freed after the forward pass. */
static void finish(struct reverse *r, int adjoint, enum ckpt_dtype dtype, int *used)
{
    const struct expr *e = r->e;
    struct expr by_result = *r->d;
    int operands[EXPR_OPERANDS];
    by_result.node[r->to[e->n_nodes - 1]] = by_result.node[e->n_in + 1];
    expr_finish(&by_result, adjoint, operands);
    expr_finish(r->d, adjoint, used);
    bool better = by_result.n_in <= r->d->n_in && result_suffices(e, dtype);
    for (int k = 0; k < by_result.n_in; k++)
        better &= operands[k] >= e->n_in;
    if (!better)
        return;
    *r->d = by_result;
    memcpy(used, operands, sizeof operands);
}

bool expr_adjoint(const struct expr *e, int k, enum ckpt_dtype dtype, struct expr *d, int *used)
{
    struct reverse r = {.e = e, .d = d};
    char name[EXPR_NAME + 3];
    snprintf(name, sizeof name, "%.*s_dx", EXPR_NAME - 4, e->name);
    expr_init(d, name, e->n_in + 2);
    memcpy(d->operand, e->operand, EXPR_INPUTS);
    d->operand[e->n_in] = d->operand[e->n_in + 1] = EXPR_FLOAT;
    d->exact = e->exact;
    int wanted = copy_nodes(&r, k), last = e->n_nodes - 1;
    if (wanted < 0)
        return false;
    r.adjoint[last] = e->n_in;
    for (int i = last; i > wanted; i--)
        reverse_node(&r, i);
    for (int i = 0; i < EXPR_OPERANDS; i++)
        used[i] = i;
    /* a program that is too large fails when it is recorded */
    if (r.adjoint[wanted] >= 0 && !d->full)
        finish(&r, r.adjoint[wanted], dtype, used);
    return r.adjoint[wanted] >= 0;
}

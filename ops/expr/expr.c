/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of element-wise expressions: building, identities, dead nodes; and the op.
 *
 * - A node is appended once: an equal one is found by a scan, as programs have at most EXPR_NODES.
 *   Operands of what commutes are put in order first.
 * - identity() has those rules alone that give the same bits for every value.  x + 0 is none of
 *   them (-0), nor is x - x (NaN, infinity); x / 1 and 1 x are.
 * - What does not fit sets `full`, and all appending goes on harmlessly: the shape rule fails.
 * - The shape of the result is that of the operands, broadcast, unless the program has its own:
 *   one with leaves that depend on the place, or one that fusion made.
 */
#include "expr/expr.h"
#include <string.h>
#include "attr.h"
#include "core/bits.h"

/* ---- properties of codes --------------------------------------------------------------------- */

static const struct {
    const char *function;
    int arguments, flops;
} codes[] = {
#define X(code, function, arguments, flops) {#function, arguments, flops},
    EXPR_LEAVES(X) EXPR_REDUCTIONS(X) EXPR_FUNCTIONS(X)
#undef X
};

int expr_arguments(enum expr_code code)
{
    return codes[code].arguments;
}

const char *expr_function(enum expr_code code)
{
    return codes[code].function;
}

size_t expr_size(const struct expr *e)
{
    return offsetof(struct expr, node) + (size_t)e->n_nodes * sizeof *e->node;
}

double expr_flops(const struct expr *e)
{
    double flops = 0;
    for (int i = 0; i < e->n_nodes; i++)
        flops += codes[e->node[i].code].flops;
    return flops;
}

static bool has_code(const struct expr *e, enum expr_code code)
{
    for (int i = 0; i < e->n_nodes; i++)
        if (e->node[i].code == code)
            return true;
    return false;
}

bool expr_draws(const struct expr *e)
{
    return has_code(e, EXPR_UNIFORM);
}

bool expr_has_place(const struct expr *e)
{
    return has_code(e, EXPR_INDEX) || expr_draws(e);
}

struct ckpt_desc expr_walk(const struct expr *e, const struct ckpt_desc *out)
{
    struct ckpt_desc d = *out;
    for (int i = 0; i < e->ndim && e->per_row; i++)
        d.shape[i] = e->shape[i];
    if (e->per_row)
        desc_dense(&d);
    return d;
}

struct expr_row_nodes expr_row_nodes(const struct expr *e)
{
    struct expr_row_nodes r = {0};
    int level[EXPR_NODES];
    for (int i = 0; i < e->n_nodes; i++) {
        const struct expr_node *n = &e->node[i];
        level[i] = 0;
        for (int k = 0; k < expr_arguments(n->code); k++)
            level[i] = level[n->arg[k]] > level[i] ? level[n->arg[k]] : level[i];
        if (!expr_is_row_node(n))
            continue;
        level[i]++;
        if (r.n < EXPR_ROW_NODES) {
            r.at[r.n].node = i;
            r.at[r.n].level = level[i];
        }
        r.n++;
        r.levels = level[i] > r.levels ? level[i] : r.levels;
    }
    return r;
}

uint64_t expr_hash(const struct expr *e)
{
    uint64_t h = hash_mix(hash_text("expr"), e->n_nodes);
    if (e->reduced)
        h = hash_mix(hash_mix(h, e->reduced), e->per_row);
    if (e->largest)
        h = hash_mix(h, 'l');
    if (e->second)
        h = hash_mix(h, 256 + e->second);
    for (int i = 0; i < e->n_nodes; i++) {
        const struct expr_node *n = &e->node[i];
        h = hash_mix(h, n->code | n->arg[0] << 8 | n->arg[1] << 16 | (int64_t)n->arg[2] << 24);
        if (n->code != EXPR_UNIFORM)
            h = hash_mix(hash_mix(h, float_bits(n->p)), float_bits(n->q));
    }
    return h;
}

/* ---- building ---------------------------------------------------------------------------------*/

void expr_init(struct expr *e, const char *name, int n_in)
{
    memset(e, 0, sizeof *e);
    snprintf(e->name, sizeof e->name, "%s", name);
    e->n_in = n_in;
    e->dtype = EXPR_PROMOTE;
    e->ndim = -1;
    for (int k = 0; k < n_in; k++)
        expr_node(e, EXPR_INPUT, k, 0, 0, 0.f, 0.f);
}

static bool is_constant(const struct expr *e, int i)
{
    return e->node[i].code == EXPR_CONSTANT;
}

static bool is_zero_or_one(const struct expr *e, int i)
{
    switch (e->node[i].code) {
    case EXPR_EQ:
    case EXPR_NE:
    case EXPR_LT:
    case EXPR_LE:
    case EXPR_AND:
    case EXPR_OR:
    case EXPR_NOT:
        return true;
    default:
        return false;
    }
}

static bool is_commutative(enum expr_code code)
{
    return code == EXPR_ADD || code == EXPR_MUL || code == EXPR_EQ || code == EXPR_NE ||
           code == EXPR_AND || code == EXPR_OR;
}

/* The sum, difference, product or quotient of constants, rounded as the kernels do. */
static int fold_constants(struct expr *e, enum expr_code code, float x, float y)
{
    volatile float r = code == EXPR_ADD   ? x + y
                       : code == EXPR_SUB ? x - y
                       : code == EXPR_MUL ? x * y
                                          : x / y;
    return expr_constant(e, r);
}

/* An existing or simpler node with the same value, or -1.  A constant factor or term becomes part
 * of the node: p x, and 1 x + q, which rounds once, like x + q. */
static int identity(struct expr *e, const struct expr_node *n)
{
    int a = n->arg[0], b = n->arg[1];
    bool both = expr_arguments(n->code) == 2 && is_constant(e, a) && is_constant(e, b);
    float p = is_constant(e, a) ? e->node[a].p : 0.f, q = is_constant(e, b) ? e->node[b].p : 0.f;
    switch (n->code) {
    case EXPR_ADD:
        return both                ? fold_constants(e, EXPR_ADD, p, q)
               : is_constant(e, a) ? expr_node(e, EXPR_AFFINE, b, 0, 0, 1.f, p)
               : is_constant(e, b) ? expr_node(e, EXPR_AFFINE, a, 0, 0, 1.f, q)
                                   : -1;
    case EXPR_SUB:
        return both                ? fold_constants(e, EXPR_SUB, p, q)
               : is_constant(e, a) ? expr_node(e, EXPR_AFFINE, b, 0, 0, -1.f, p)
               : is_constant(e, b) ? expr_node(e, EXPR_AFFINE, a, 0, 0, 1.f, -q)
                                   : -1;
    case EXPR_MUL:
        return both                ? fold_constants(e, EXPR_MUL, p, q)
               : is_constant(e, a) ? expr_node(e, EXPR_SCALE, b, 0, 0, p, 0.f)
               : is_constant(e, b) ? expr_node(e, EXPR_SCALE, a, 0, 0, q, 0.f)
                                   : -1;
    case EXPR_DIV:
        return both ? fold_constants(e, EXPR_DIV, p, q) : is_constant(e, b) && q == 1.f ? a : -1;
    case EXPR_SCALE:
        if (n->p == 1.f)
            return a;
        if (is_constant(e, a))
            return fold_constants(e, EXPR_MUL, n->p, p);
        if (n->p == -1.f && e->node[a].code == EXPR_SCALE)
            return expr_node(e, EXPR_SCALE, e->node[a].arg[0], 0, 0, -e->node[a].p, 0.f);
        return -1;
    case EXPR_BF16:
    case EXPR_INTEGER:
        return e->node[a].code == n->code || is_zero_or_one(e, a) ? a : -1;
    case EXPR_WHERE:
        return b == n->arg[2] ? b : is_constant(e, a) ? (p != 0.f ? b : n->arg[2]) : -1;
    default:
        return -1;
    }
}

static bool same_node(const struct expr_node *a, const struct expr_node *b)
{
    return a->code == b->code && !memcmp(a->arg, b->arg, sizeof a->arg) && a->stream == b->stream &&
           float_bits(a->q) == float_bits(b->q);
}

/* Finds an equal node or appends this one. */
static int put_node(struct expr *e, const struct expr_node *n)
{
    for (int i = 0; i < e->n_nodes; i++)
        if (same_node(&e->node[i], n))
            return i;
    if (e->n_nodes == EXPR_NODES) {
        e->full = 1;
        return 0;
    }
    e->node[e->n_nodes] = *n;
    return e->n_nodes++;
}

int expr_node(struct expr *e, enum expr_code code, int a, int b, int c, float p, float q)
{
    struct expr_node n;
    if (is_commutative(code) && a > b)
        return expr_node(e, code, b, a, c, p, q);
    memset(&n, 0, sizeof n);
    n.code = (uint8_t)code;
    n.arg[0] = (uint8_t)a;
    n.arg[1] = (uint8_t)b;
    n.arg[2] = (uint8_t)c;
    n.p = p;
    n.q = q;
    int same = expr_arguments(code) && !e->full ? identity(e, &n) : -1;
    return same >= 0 ? same : put_node(e, &n);
}

int expr_constant(struct expr *e, float value)
{
    return expr_node(e, EXPR_CONSTANT, 0, 0, 0, value, 0.f);
}

int expr_unary(struct expr *e, enum expr_code code, int a)
{
    return expr_node(e, code, a, 0, 0, 0.f, 0.f);
}

int expr_binary(struct expr *e, enum expr_code code, int a, int b)
{
    return expr_node(e, code, a, b, 0, 0.f, 0.f);
}

int expr_where(struct expr *e, int condition, int yes, int no)
{
    return expr_node(e, EXPR_WHERE, condition, yes, no, 0.f, 0.f);
}

int expr_power(struct expr *e, int a, float p)
{
    if (p == 0.f)
        return expr_constant(e, 1.f);
    if (p == 1.f)
        return a;
    if (p == 2.f)
        return expr_binary(e, EXPR_MUL, a, a);
    if (p == 3.f)
        return expr_binary(e, EXPR_MUL, expr_binary(e, EXPR_MUL, a, a), a);
    if (p == 0.5f)
        return expr_unary(e, EXPR_SQRT, a);
    if (p == -0.5f)
        return expr_unary(e, EXPR_RSQRT, a);
    if (p == -1.f)
        return expr_binary(e, EXPR_DIV, expr_constant(e, 1.f), a);
    return expr_binary(e, EXPR_POW, a, expr_constant(e, p));
}

/* Keeps the operands that live nodes read, in order; to[k] becomes the new index of operand k. */
static void keep_operands(struct expr *e, const bool *live, int *used, int *to)
{
    int n = 0;
    for (int k = 0; k < e->n_in; k++) {
        bool read = !used;
        for (int i = 0; i < e->n_nodes; i++)
            read |= live[i] && e->node[i].code == EXPR_INPUT && e->node[i].arg[0] == k;
        to[k] = n;
        if (!read)
            continue;
        if (used)
            used[n] = k;
        e->operand[n++] = e->operand[k];
    }
    for (int k = n; k < EXPR_OPERANDS; k++)
        e->operand[k] = 0;
    e->n_in = n;
}

void expr_finish(struct expr *e, int result, int *used)
{
    bool live[EXPR_NODES] = {false};
    int to[EXPR_NODES] = {0}, operand[EXPR_OPERANDS] = {0}, n = 0;
    live[result] = true;
    if (e->second)
        live[e->second - 1] = true;
    for (int i = result; i >= 0; i--)
        for (int k = 0; live[i] && k < expr_arguments(e->node[i].code); k++)
            live[e->node[i].arg[k]] = true;
    keep_operands(e, live, used, operand);
    for (int i = 0; i <= result; i++) {
        struct expr_node node = e->node[i];
        if (!live[i])
            continue;
        for (int k = 0; k < expr_arguments(node.code); k++)
            node.arg[k] = (uint8_t)to[node.arg[k]];
        if (node.code == EXPR_INPUT)
            node.arg[0] = (uint8_t)operand[node.arg[0]];
        to[i] = n;
        e->node[n++] = node;
    }
    memset(e->node + n, 0, (size_t)(EXPR_NODES - n) * sizeof *e->node);
    e->n_nodes = n;
    if (e->second)
        e->second = (uint8_t)(1 + to[e->second - 1]);
}

/* ---- the op -----------------------------------------------------------------------------------*/

static int check_operand(struct ckpt_call *call, const struct expr *e, int k)
{
    if (call->in[k].ndim < 0)
        return ckpt_call_fail(call, "operand %d is missing", k);
    if (e->operand[k] == EXPR_FLOAT)
        return call_float(call, k);
    if (e->operand[k] == EXPR_I32 && call->in[k].dtype != CKPT_I32)
        return ckpt_call_fail(call, "operand %d must be i32", k);
    return 0;
}

/* The common dtype of the floating-point operands, or fp32. */
static enum ckpt_dtype promoted(const struct ckpt_call *call)
{
    enum ckpt_dtype dtype = CKPT_F32;
    bool any = false, wide = false;
    for (int k = 0; k < call->n_in; k++) {
        if (call->in[k].dtype == CKPT_I32)
            continue;
        any = true;
        wide |= call->in[k].dtype == CKPT_F32;
    }
    return any && !wide ? CKPT_BF16 : dtype;
}

static int shape_expr(struct ckpt_call *call)
{
    const struct expr *e = call->attr;
    struct ckpt_desc d = {.ndim = (int)max_i64(0, e->ndim)};
    if (e->full || e->n_nodes > EXPR_LIMIT || call->n_in > EXPR_INPUTS)
        return ckpt_call_fail(call,
                              "the expression is too large: it may have %d operations and %d "
                              "operands",
                              EXPR_LIMIT, EXPR_INPUTS);
    if (e->n_in != call->n_in || e->ndim > CKPT_MAX_DIMS || e->n_nodes < 1 ||
        (e->reduced && e->reduced > e->ndim))
        return ckpt_call_fail(call, "the expression is of %d operands and %d axes", e->n_in,
                              e->ndim);
    for (int i = 0; i < d.ndim; i++)
        d.shape[i] = e->shape[i];
    for (int k = 0; k < call->n_in; k++)
        if (check_operand(call, e, k) || call_spread(call, &d, k))
            return CKPT_ESHAPE;
    for (int i = 0; i < d.ndim && e->ndim >= 0; i++)
        if (d.ndim != e->ndim || d.shape[i] != e->shape[i])
            return ckpt_call_fail(call, "the operands do not broadcast to the shape of the result");
    for (int i = d.ndim - e->reduced; i < d.ndim && e->per_row; i++)
        d.shape[i] = 1;
    d.dtype = e->dtype == EXPR_PROMOTE ? promoted(call) : (enum ckpt_dtype)e->dtype;
    desc_dense(&d);
    call->out[0] = d;
    if (e->second)
        call->out[1] = d;
    return CKPT_OK;
}

static void cost_expr(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    const struct ckpt_desc walk = expr_walk(call->attr, &call->out[0]);
    cost->flops = expr_flops(call->attr) * (double)desc_numel(&walk);
}

/* Whether the program is the gradient of the result, operand k, itself. */
static bool is_gradient(const struct expr *d, const int *used, int k)
{
    return d->n_nodes == 1 && d->node[0].code == EXPR_INPUT && used[d->node[0].arg[0]] == k;
}

/* dx gets the dtype of the operand, or, if it is then summed to the operand's shape, of the
 * gradient. */
static ckpt_tensor record_adjoint(struct ckpt_grad *g, struct expr *d, int k, const int *used)
{
    const struct expr *e = g->attr;
    struct ckpt_desc x = ckpt_desc_of(g->tape, g->in[k]), y = ckpt_desc_of(g->tape, g->out[0]);
    ckpt_tensor in[EXPR_OPERANDS];
    for (int i = 0; i < d->n_in; i++)
        in[i] = used[i] < e->n_in ? g->in[used[i]] : used[i] == e->n_in ? g->dout[0] : g->out[0];
    bool same = desc_same_shape(&x, &y);
    d->dtype = (int32_t)(same ? x.dtype : ckpt_desc_of(g->tape, g->dout[0]).dtype);
    d->ndim = y.ndim;
    for (int i = 0; i < y.ndim; i++)
        d->shape[i] = y.shape[i];
    if (same && is_gradient(d, used, e->n_in) && ckpt_desc_of(g->tape, g->dout[0]).dtype == x.dtype)
        return g->dout[0];
    ckpt_tensor dx = expr_record(g->tape, d, in);
    return same ? dx : ops_sum_to(g->tape, dx, &x);
}

static void grad_expr(struct ckpt_grad *g)
{
    const struct expr *e = g->attr;
    enum ckpt_dtype dtype = ckpt_desc_of(g->tape, g->out[0]).dtype;
    for (int k = 0; k < e->n_in; k++) {
        struct expr d;
        int used[EXPR_OPERANDS];
        if (g->need[k] && expr_adjoint(e, k, dtype, &d, used))
            g->din[k] = record_adjoint(g, &d, k, used);
    }
}

ckpt_tensor expr_record(ckpt_tape *t, const struct expr *e, const ckpt_tensor *in)
{
    return ops_record1(t, &op_expr, e->n_in, in, e, expr_size(e));
}

OPS_DEF(expr, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_expr,
        .grad = grad_expr, .cost = cost_expr);

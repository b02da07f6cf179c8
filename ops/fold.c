/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions over any axes: kernels for amax, amin, prod, logsumexp and argmax; var and norm are
 * recorded as sums.  All gradients are recorded ops, so second gradients exist.
 */
#include <float.h>
#include <math.h>
#include "call.h"
#include "expr/expr.h"
#include "fold.h"

static int fold_rule(struct ckpt_call *call, enum ckpt_dtype dtype)
{
    const struct fold_attr *attr = call->attr;
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    call_like(call, 0, 0);
    call->out[0].dtype = dtype;
    for (int i = attr->first; i < attr->first + attr->count; i++)
        call->out[0].shape[i] = 1;
    desc_dense(&call->out[0]);
    struct fold_shape s = fold_shape_of(&call->in[0], attr);
    if (s.n > INT32_MAX)
        return ckpt_call_fail(call, "%lld elements are too many for one result", (long long)s.n);
    return 0;
}

static int fold_float_rule(struct ckpt_call *call)
{
    return fold_rule(call, CKPT_F32);
}

static int fold_index_rule(struct ckpt_call *call)
{
    return fold_rule(call, CKPT_I32);
}

OPS_COST(fold_cost, 4., in[0])

static unsigned fold_mask(const struct ckpt_grad *g)
{
    const struct fold_attr *a = g->attr;
    return ((1u << a->count) - 1) << a->first;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static ckpt_tensor zero_of(ckpt_tape *t)
{
    return ops_fill(t, 0.f, CKPT_F32, 0, NULL);
}

/* Divides the gradient equally among all elements that equal the result. */
static void extreme_grad(struct ckpt_grad *g)
{
    ckpt_tape *t = g->tape;
    ckpt_tensor equal = ckpt_eq(t, g->in[0], g->out[0]);
    ckpt_tensor count = ckpt_sum(t, ckpt_cast(t, equal, CKPT_F32), fold_mask(g));
    g->din[0] = ckpt_where(t, equal, ckpt_div(t, g->dout[0], count), zero_of(t));
}

/* The gradient of an element is the product of the others.  Without zeros, this is the total
 * product divided by the element.  With exactly one zero, only that element has a gradient; with
 * more, none has. */
static void prod_grad(struct ckpt_grad *g)
{
    ckpt_tape *t = g->tape;
    unsigned mask = fold_mask(g);
    ckpt_tensor x = ckpt_cast(t, g->in[0], CKPT_F32), one = ops_fill(t, 1.f, CKPT_F32, 0, NULL);
    ckpt_tensor zero = ckpt_eq(t, x, zero_of(t)), safe = ckpt_where(t, zero, one, x);
    ckpt_tensor zeros = ckpt_sum(t, ckpt_cast(t, zero, CKPT_F32), mask);
    ckpt_tensor rest = ckpt_mul(t, g->dout[0], ckpt_prod(t, safe, mask));
    ckpt_tensor lone = ckpt_and(t, zero, ckpt_eq(t, zeros, one));
    ckpt_tensor some = ckpt_gt(t, zeros, zero_of(t));
    ckpt_tensor others = ckpt_where(t, lone, rest, zero_of(t));
    g->din[0] = ckpt_where(t, some, others, ckpt_div(t, rest, safe));
}

/* dy exp(x - y), or 0 where y is -infinity.  Operands: x, y, dy. */
static void logsumexp_grad(struct ckpt_grad *g)
{
    struct expr e;
    expr_init(&e, "logsumexp_dx", 3);
    int empty = expr_binary(&e, EXPR_LT, 1, expr_constant(&e, -FLT_MAX));
    int zero = expr_constant(&e, 0.f), y = expr_where(&e, empty, zero, 1);
    int share = expr_unary(&e, EXPR_EXP, expr_binary(&e, EXPR_SUB, 0, y));
    expr_finish(&e, expr_where(&e, empty, zero, expr_binary(&e, EXPR_MUL, 2, share)), NULL);
    ckpt_tensor in[] = {g->in[0], g->out[0], g->dout[0]};
    g->din[0] = expr_record(g->tape, &e, in);
}

#define FOLD(op, rule, gradient)                                                                   \
    const struct ckpt_op_def op_##op = {                                                           \
        .size = sizeof(struct ckpt_op_def),                                                        \
        .name = #op,                                                                               \
        .shape = rule,                                                                             \
        .grad = gradient,                                                                          \
        .cost = fold_cost,                                                                         \
    };
FOLD(amax, fold_float_rule, extreme_grad)
FOLD(amin, fold_float_rule, extreme_grad)
FOLD(prod, fold_float_rule, prod_grad)
FOLD(logsumexp, fold_float_rule, logsumexp_grad)
FOLD(argmax, fold_index_rule, NULL)

/* ---- axes ------------------------------------------------------------------------------------ */

/* Lists the axes that are not in mask, then those in mask.  Returns the number of axes in mask. */
static int reduced_last(unsigned mask, int ndim, int *axes)
{
    int n = 0, count = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < ndim; i++)
            if ((int)(mask >> i & 1) == pass) {
                axes[n++] = i;
                count += pass;
            }
    return count;
}

/* Adjacent axes are reduced in place; otherwise the reduced axes are permuted to the end first. */
static ckpt_tensor fold(ckpt_tape *t, const struct ckpt_op_def *def, ckpt_tensor x, unsigned mask)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    struct fold_attr attr = {0, 0};
    int axes[CKPT_MAX_DIMS] = {0}, back[CKPT_MAX_DIMS] = {0};
    mask = ops_axes(t, x, mask);
    if (d.ndim >= 0 && mask >> d.ndim) {
        ckpt_tape_fail(t, CKPT_ESHAPE, "%s: the mask 0x%x names axes that are not there", def->name,
                       mask);
        return CKPT_NONE;
    }
    if (mask)
        attr.first = __builtin_ctz(mask);
    attr.count = __builtin_popcount(mask);
    if (d.ndim < 0 || !mask || mask == ((1u << attr.count) - 1) << attr.first)
        return OPS_RECORD(t, def, &attr, x);
    attr.count = reduced_last(mask, d.ndim, axes);
    attr.first = d.ndim - attr.count;
    for (int i = 0; i < d.ndim; i++)
        back[axes[i]] = i;
    ckpt_tensor y = OPS_RECORD(t, def, &attr, ckpt_permute(t, x, axes));
    return ckpt_permute(t, y, back);
}

ckpt_tensor ckpt_amax(ckpt_tape *t, ckpt_tensor x, unsigned mask)
{
    return fold(t, &op_amax, x, mask);
}

ckpt_tensor ckpt_amin(ckpt_tape *t, ckpt_tensor x, unsigned mask)
{
    return fold(t, &op_amin, x, mask);
}

ckpt_tensor ckpt_prod(ckpt_tape *t, ckpt_tensor x, unsigned mask)
{
    return fold(t, &op_prod, x, mask);
}

ckpt_tensor ckpt_logsumexp(ckpt_tape *t, ckpt_tensor x, unsigned mask)
{
    return fold(t, &op_logsumexp, x, mask);
}

ckpt_tensor ckpt_argmax(ckpt_tape *t, ckpt_tensor x, int axis)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (axis < 0 || (d.ndim >= 0 && axis >= d.ndim)) {
        ckpt_tape_fail(t, CKPT_ESHAPE, "argmax: there is no axis %d", axis);
        return CKPT_NONE;
    }
    return fold(t, &op_argmax, x, 1u << axis);
}

ckpt_tensor ckpt_var(ckpt_tape *t, ckpt_tensor x, unsigned mask, int64_t correction)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    double n = 1;
    for (int i = 0; i < d.ndim; i++)
        n *= mask >> i & 1 ? (double)d.shape[i] : 1;
    if (d.ndim >= 0 && (correction < 0 || (double)correction >= n))
        ckpt_tape_fail(t, CKPT_EINVAL, "var: the correction is %lld of %g elements",
                       (long long)correction, n);
    ckpt_tensor away = ckpt_sub(t, x, ckpt_mean(t, x, mask));
    ckpt_tensor mean = ckpt_mean(t, ckpt_mul(t, away, away), mask);
    if (correction == 0)
        return mean;
    return ckpt_affine(t, mean, (float)(n / (n - (double)correction)), 0.f);
}

/* The root never sees 0, where its gradient is infinite. */
ckpt_tensor ckpt_norm(ckpt_tape *t, ckpt_tensor x, unsigned mask)
{
    OPS_CALL(t);
    ckpt_tensor wide = ckpt_cast(t, x, CKPT_F32);
    ckpt_tensor sum = ckpt_sum(t, ckpt_mul(t, wide, wide), mask);
    struct expr e;
    expr_init(&e, "norm", 1);
    int zero = expr_constant(&e, 0.f), some = expr_binary(&e, EXPR_LT, zero, 0);
    int root = expr_unary(&e, EXPR_SQRT, expr_where(&e, some, 0, expr_constant(&e, 1.f)));
    /* NaN compares false, so it is returned as it is */
    expr_finish(&e, expr_where(&e, some, root, 0), NULL);
    return expr_record(t, &e, &sum);
}

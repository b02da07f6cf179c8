/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses that are sums over all elements, and a sample of a normal distribution: an expression in
 * fp32 for each element, and ops_total().  Fusion makes the expression and the sums of rows one
 * kernel, which reads the operands and writes the sums; the gradient is the expression's own, one
 * kernel for each operand.
 *
 * The log-variance is clamped; outside of the range its gradient is 0.  The noise of a sample is an
 * operand and not drawn here, so a recomputed sample is the same one.  Gradients read no 8-bit
 * codes.
 */
#include "call.h"
#include "decompose.h"
#include "expr/expr.h"
#include "ops.h"

/* Customary since Rombach et al. 2022. */
#define LOGVAR_LOW  -30.f
#define LOGVAR_HIGH 20.f

/* Whether all of x are floating, of one shape and, if `narrow`, of one dtype; else an error. */
static bool are_alike(ckpt_tape *t, int n, const ckpt_tensor *x, bool narrow)
{
    const struct ckpt_desc first = ckpt_desc_of(t, x[0]);
    bool good = true;
    for (int i = 0; i < n; i++) {
        const struct ckpt_desc d = ckpt_desc_of(t, x[i]);
        good &= d.ndim >= 0 && (d.dtype == CKPT_F32 || d.dtype == CKPT_BF16) &&
                desc_same_shape(&d, &first) && (!narrow || d.dtype == first.dtype);
    }
    if (!good)
        ops_refuse(t, n, x, "the operands must be fp32 or bf16%s and have the same shape",
                   narrow ? ", all of them," : "");
    return good;
}

/* An expression of n operands, named after the call. */
static void init_exact(struct expr *e, const char *name, int n)
{
    expr_init(e, name, n);
    e->exact = 1;
}

static void init_wide(struct expr *e, const char *name, int n)
{
    init_exact(e, name, n);
    e->dtype = CKPT_F32;
}

/* ---- mean squared error ---------------------------------------------------------------------- */

/* What an element of each frame counts, on average 1 over a sample: 0 for a masked frame, and for
 * all frames of a sample that has no other.  [B, 1, T, 1, ...] of a prediction of shape d. */
static ckpt_tensor frame_weights(ckpt_tape *t, const struct ckpt_desc *d, ckpt_tensor mask)
{
    const int64_t shape[CKPT_MAX_DIMS] = {d->shape[0], 1, d->shape[2], 1, 1, 1, 1, 1};
    mask = ckpt_cast(t, ckpt_ne(t, mask, ops_scalar(t, 0.f)), CKPT_F32);
    ckpt_tensor shown = ckpt_maximum(t, ckpt_sum(t, mask, 1u << 1), ops_scalar(t, 1.f));
    mask = ckpt_affine(t, ckpt_div(t, mask, shown), (float)d->shape[2], 0.f);
    return ckpt_reshape(t, mask, d->ndim, shape);
}

/* (pred - target)^2, times a weight or CKPT_NONE.  What a weight of 0 hides may be infinite. */
static ckpt_tensor squared_error(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target,
                                 ckpt_tensor weight)
{
    struct expr e;
    init_wide(&e, "mse", weight.id ? 3 : 2);
    int error = expr_binary(&e, EXPR_SUB, 0, 1);
    if (weight.id)
        error = expr_where(&e, 2, error, expr_constant(&e, 0.f));
    int square = expr_binary(&e, EXPR_MUL, error, error);
    expr_finish(&e, weight.id ? expr_binary(&e, EXPR_MUL, 2, square) : square, NULL);
    return expr_record(t, &e, (ckpt_tensor[]){pred, target, weight});
}

ckpt_tensor ckpt_mse(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target, ckpt_tensor mask)
{
    OPS_CALL(t);
    const ckpt_tensor in[] = {pred, target, mask};
    const struct ckpt_desc d = ckpt_desc_of(t, pred), m = ckpt_desc_of(t, mask);
    if (!are_alike(t, 2, in, false))
        return CKPT_NONE;
    if (d.ndim < 1 || (mask.id && (d.ndim < 3 || m.dtype != CKPT_I32 || m.ndim != 2 ||
                                   m.shape[0] != d.shape[0] || m.shape[1] != d.shape[2]))) {
        ops_refuse(t, 3, in, "the mask must be i32 [B, T] of a prediction [B, C, T, ...]");
        return CKPT_NONE;
    }
    ckpt_tensor weight = mask.id ? frame_weights(t, &d, mask) : CKPT_NONE;
    return ops_total(t, squared_error(t, pred, target, weight), 1 / (double)desc_numel(&d));
}

/* ---- L1 -------------------------------------------------------------------------------------- */

ckpt_tensor ckpt_l1(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target)
{
    OPS_CALL(t);
    const ckpt_tensor in[] = {pred, target};
    const struct ckpt_desc d = ckpt_desc_of(t, pred);
    struct expr e;
    if (!are_alike(t, 2, in, false))
        return CKPT_NONE;
    init_wide(&e, "l1", 2);
    expr_finish(&e, expr_unary(&e, EXPR_ABS, expr_binary(&e, EXPR_SUB, 0, 1)), NULL);
    return ops_total(t, expr_record(t, &e, in), 1 / (double)desc_numel(&d));
}

/* ---- latent normal distribution -------------------------------------------------------------- */

/* The clamped log-variance, operand k. */
static int clamped(struct expr *e, int k)
{
    return expr_node(e, EXPR_CLAMP, k, 0, 0, LOGVAR_LOW, LOGVAR_HIGH);
}

ckpt_tensor ckpt_kl_normal(ckpt_tape *t, ckpt_tensor mean, ckpt_tensor logvar)
{
    OPS_CALL(t);
    const ckpt_tensor in[] = {mean, logvar};
    const struct ckpt_desc d = ckpt_desc_of(t, mean);
    struct expr e;
    if (!are_alike(t, 2, in, true))
        return CKPT_NONE;
    if (d.ndim < 1) {
        ops_refuse(t, 2, in, "mean must be [B, ...]");
        return CKPT_NONE;
    }
    init_wide(&e, "kl_normal", 2);
    int v = clamped(&e, 1), spread = expr_binary(&e, EXPR_SUB, expr_unary(&e, EXPR_EXPM1, v), v);
    expr_finish(&e, expr_binary(&e, EXPR_ADD, expr_binary(&e, EXPR_MUL, 0, 0), spread), NULL);
    return ops_total(t, expr_record(t, &e, in), 0.5 / (double)d.shape[0]);
}

ckpt_tensor ckpt_sample_normal(ckpt_tape *t, ckpt_tensor mean, ckpt_tensor logvar,
                               ckpt_tensor noise)
{
    OPS_CALL(t);
    const ckpt_tensor in[] = {mean, logvar, ckpt_stop_gradient(t, noise)};
    struct expr e;
    if (!are_alike(t, 3, in, true))
        return CKPT_NONE;
    init_exact(&e, "sample_normal", 3);
    int half = expr_node(&e, EXPR_SCALE, clamped(&e, 1), 0, 0, 0.5f, 0.f);
    int away = expr_binary(&e, EXPR_MUL, expr_unary(&e, EXPR_EXP, half), 2);
    expr_finish(&e, expr_binary(&e, EXPR_ADD, 0, away), NULL);
    return expr_record(t, &e, in);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm (Ioffe & Szegedy 2015) and the moving averages that it keeps in buffers.
 *
 * A batch viewed as one sample with many rows is group norm with one channel per group.  The group
 * norm kernels compute the moments in one pass over x and the result in a second one; the backward
 * pass takes two passes over x and dy.  Inference with the running averages is an expression, which
 * fuses with its neighbours.
 */
#include <math.h>
#include "call.h"
#include "expr/expr.h"
#include "shapes/group_norm.h"
#include "ops.h"
#include "recorders.h"

/* w, or a vector of n times `value` if w is absent. */
static ckpt_tensor vector_or(ckpt_tape *t, ckpt_tensor w, float value, enum ckpt_dtype dtype,
                             int64_t n)
{
    return w.id ? w : ops_fill(t, value, dtype, 1, &n);
}

/* The unbiased variance of n rows, from s = 1 / sqrt(var + eps): n / (n - 1) (1 / s^2 - eps),
 * clamped to at least 0. */
static ckpt_tensor unbiased(ckpt_tape *t, ckpt_tensor rstd, double n, float eps)
{
    const double k = n / (n - 1);
    struct expr e;
    expr_init(&e, "unbiased_var", 1);
    int square = expr_binary(&e, EXPR_MUL, 0, 0);
    int var = expr_binary(&e, EXPR_DIV, expr_constant(&e, 1.f), square);
    var = expr_node(&e, EXPR_AFFINE, var, 0, 0, (float)k, (float)(-k * (double)eps));
    expr_finish(&e, expr_binary(&e, EXPR_MAXIMUM, var, expr_constant(&e, 0.f)), NULL);
    return expr_record(t, &e, &rstd);
}

/* Updates the buffers with the moments in stats [1, C, 2] of n rows. */
static void update_buffers(ckpt_tape *t, ckpt_tensor stats, const ckpt_tensor buffer[2], double n,
                           float momentum, float eps)
{
    const int64_t c = ckpt_desc_of(t, stats).shape[1];
    ckpt_tensor value[2];
    for (int i = 0; i < 2; i++)
        value[i] = ckpt_reshape(t, ckpt_slice(t, stats, 2, i, i + 1), 1, &c);
    value[1] = unbiased(t, value[1], n, eps);
    tape_update_buffers(t, 2, buffer, value, momentum);
}

/* Whether v is absent or [C] in the given dtype. */
static bool is_channels(ckpt_tape *t, ckpt_tensor v, enum ckpt_dtype dtype, int64_t c)
{
    struct ckpt_desc d = ckpt_desc_of(t, v);
    return !v.id || (d.ndim == 1 && d.shape[0] == c && d.dtype == dtype);
}

/* Checks the operands of batch norm.  Returns 0 or the error of the tape. */
static int check(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b, ckpt_tensor mean,
                 ckpt_tensor var, float eps)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    char got[128];
    if (d.ndim < 0)
        return tape_fail(t, CKPT_EINVAL, "batch_norm: x is missing");
    const int64_t c = d.ndim ? d.shape[d.ndim - 1] : 1;
    desc_format(got, sizeof got, &d);
    if (d.ndim < 2 || d.dtype == CKPT_I32)
        return tape_fail(t, CKPT_ESHAPE, "batch_norm: x must be [N, ..., C]; got %s", got);
    if (!is_channels(t, w, d.dtype, c) || !is_channels(t, b, d.dtype, c))
        return tape_fail(t, CKPT_ESHAPE,
                         "batch_norm: weight and bias must be [%lld] of the dtype of x; got %s",
                         (long long)c, got);
    if (!mean.id != !var.id)
        return tape_fail(t, CKPT_EINVAL, "batch_norm: mean and variance must be given together");
    if (!is_channels(t, mean, CKPT_F32, c) || !is_channels(t, var, CKPT_F32, c))
        return tape_fail(t, CKPT_ESHAPE,
                         "batch_norm: the running mean and variance must be fp32 [%lld]; got %s",
                         (long long)c, got);
    if (!(eps >= 0.f) || isinf(eps))
        return tape_fail(t, CKPT_EINVAL,
                         "batch_norm: eps is %g and must be a finite number, 0 or more",
                         (double)eps);
    return t->error.code;
}

ckpt_tensor ckpt_batch_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                            ckpt_tensor mean, ckpt_tensor var, float momentum, float eps)
{
    OPS_CALL(t);
    ckpt_tensor out[2] = {CKPT_NONE, CKPT_NONE};
    if (!t || check(t, x, w, b, mean, var, eps))
        return CKPT_NONE;
    struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t c = d.shape[d.ndim - 1], rows = desc_numel(&d) / c;
    struct group_norm_attr attr = {.groups = (int32_t)c, .eps = eps};
    if (rows < 2) {
        tape_fail(t, CKPT_ESHAPE, "batch_norm: one value per channel has no variance");
        return CKPT_NONE;
    }
    tape_couple(t, "batch_norm normalises with the moments of a micro-step");
    ckpt_tensor in[] = {ckpt_reshape(t, x, 3, (int64_t[]){1, rows, c}),
                        vector_or(t, w, 1.f, d.dtype, c), vector_or(t, b, 0.f, d.dtype, c)};
    ckpt_record(t, &op_group_norm, 3, in, 2, out, &attr, sizeof attr);
    if (mean.id && t->updates_buffers)
        update_buffers(t, out[1], (ckpt_tensor[]){mean, var}, (double)rows, momentum, eps);
    return ckpt_reshape(t, out[0], d.ndim, d.shape);
}

/* Operands of the expression. */
enum { X, MEAN, VAR, WEIGHT, BIAS, OPERANDS };

ckpt_tensor ckpt_batch_norm_apply(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                  ckpt_tensor mean, ckpt_tensor var, float eps)
{
    OPS_CALL(t);
    ckpt_tensor in[OPERANDS] = {x, mean, var};
    struct expr e;
    if (!t || check(t, x, w, b, mean, var, eps))
        return CKPT_NONE;
    if (!mean.id) {
        tape_fail(t, CKPT_EINVAL, "batch_norm: mean and variance are missing");
        return CKPT_NONE;
    }
    struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t c = d.shape[d.ndim - 1];
    in[WEIGHT] = vector_or(t, w, 1.f, d.dtype, c);
    in[BIAS] = vector_or(t, b, 0.f, d.dtype, c);
    expr_init(&e, "batch_norm", OPERANDS);
    e.dtype = (int32_t)d.dtype;
    int rstd = expr_unary(&e, EXPR_RSQRT, expr_node(&e, EXPR_AFFINE, VAR, 0, 0, 1.f, eps));
    int slope = expr_binary(&e, EXPR_MUL, rstd, WEIGHT);
    int y = expr_binary(&e, EXPR_MUL, expr_binary(&e, EXPR_SUB, X, MEAN), slope);
    expr_finish(&e, expr_binary(&e, EXPR_ADD, y, BIAS), NULL);
    return expr_record(t, &e, in);
}

ckpt_tensor ckpt_instance_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b, float eps)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t c = d.ndim > 0 ? d.shape[d.ndim - 1] : 1;
    return ckpt_group_norm_silu(t, x, vector_or(t, w, 1.f, d.dtype, c),
                                vector_or(t, b, 0.f, d.dtype, c), (int)c, eps, false);
}

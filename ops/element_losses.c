/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise losses, recorded as expressions in fp32.  ops/expr compiles each to one kernel and
 * differentiates it.
 */
#include <float.h>
#include <math.h>
#include "call.h"
#include "ops.h"

/* To fp32: with bf16 operands an expression would round to bf16 between its functions. */
static ckpt_tensor wide(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_cast(t, x, CKPT_F32);
}

/* The loss of every element, or its mean or sum as a scalar. */
static ckpt_tensor reduced(ckpt_tape *t, ckpt_tensor x, int reduction)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    if (reduction < CKPT_REDUCE_MEAN || reduction > CKPT_REDUCE_NONE)
        ckpt_tape_fail(t, CKPT_EINVAL, "a loss: there is no reduction %d", reduction);
    if (reduction == CKPT_REDUCE_NONE || d.ndim <= 0)
        return x;
    x = reduction == CKPT_REDUCE_MEAN ? ckpt_mean(t, x, CKPT_ALL_AXES)
                                      : ckpt_sum(t, x, CKPT_ALL_AXES);
    return ckpt_reshape(t, x, 0, NULL);
}

ckpt_tensor ckpt_bce_with_logits(ckpt_tape *t, ckpt_tensor x, ckpt_tensor target,
                                 ckpt_tensor pos_weight, int reduction)
{
    OPS_CALL(t);
    x = wide(t, x);
    target = wide(t, target);
    if (!pos_weight.id)
        return reduced(t, ckpt_sub(t, ckpt_softplus(t, x), ckpt_mul(t, target, x)), reduction);
    ckpt_tensor rest = ckpt_mul(t, ckpt_affine(t, target, -1, 1), x);
    ckpt_tensor more = ckpt_mul(t, ckpt_affine(t, wide(t, pos_weight), 1, -1), target);
    ckpt_tensor both = ckpt_mul(t, ckpt_affine(t, more, 1, 1), ckpt_softplus(t, ckpt_neg(t, x)));
    return reduced(t, ckpt_add(t, rest, both), reduction);
}

/* q (|d| - q / 2) with q = min(|d|, delta): d^2 / 2, or delta (|d| - delta / 2). */
static ckpt_tensor huber(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target, float delta)
{
    ckpt_tensor d = ckpt_abs(t, ckpt_sub(t, wide(t, pred), wide(t, target)));
    ckpt_tensor q = ckpt_clamp(t, d, 0, delta);
    return ckpt_mul(t, q, ckpt_sub(t, d, ckpt_affine(t, q, .5f, 0)));
}

ckpt_tensor ckpt_huber(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target, float delta,
                       int reduction)
{
    OPS_CALL(t);
    if (!(delta > 0 && delta <= FLT_MAX)) {
        ckpt_tape_fail(t, CKPT_EINVAL, "huber: delta is %g and must be above 0", (double)delta);
        return CKPT_NONE;
    }
    return reduced(t, huber(t, pred, target, delta), reduction);
}

ckpt_tensor ckpt_smooth_l1(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target, float beta,
                           int reduction)
{
    OPS_CALL(t);
    if (!(beta > 0 && beta <= FLT_MAX)) {
        ckpt_tape_fail(t, CKPT_EINVAL,
                       "smooth_l1: beta is %g and must be above 0; use ckpt_l1 for 0",
                       (double)beta);
        return CKPT_NONE;
    }
    return reduced(t, ckpt_affine(t, huber(t, pred, target, beta), 1 / beta, 0), reduction);
}

ckpt_tensor ckpt_kl_div(ckpt_tape *t, ckpt_tensor x, ckpt_tensor target, bool log_target,
                        int reduction)
{
    OPS_CALL(t);
    x = wide(t, x);
    target = wide(t, target);
    if (log_target)
        return reduced(t, ckpt_mul(t, ckpt_exp(t, target), ckpt_sub(t, target, x)), reduction);
    /* clamping 0 to the smallest normal number keeps the logarithm finite; target 0 then makes the
     * product 0 */
    ckpt_tensor log = ckpt_log(t, ckpt_clamp(t, target, FLT_MIN, FLT_MAX));
    return reduced(t, ckpt_mul(t, target, ckpt_sub(t, log, x)), reduction);
}

ckpt_tensor ckpt_cosine_embedding(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b, ckpt_tensor label,
                                  float margin, int reduction)
{
    OPS_CALL(t);
    const struct ckpt_desc d = ckpt_desc_of(t, a), of_label = ckpt_desc_of(t, label);
    if (d.ndim < 1 || of_label.ndim != d.ndim - 1) {
        ckpt_tape_fail(t, CKPT_ESHAPE,
                       "cosine_embedding: a and b must be [..., D] and the label i32 [...]");
        return CKPT_NONE;
    }
    const unsigned last = 1u << (d.ndim - 1);
    a = wide(t, a);
    b = wide(t, b);
    ckpt_tensor dot = ckpt_sum(t, ckpt_mul(t, a, b), last);
    ckpt_tensor aa = ckpt_affine(t, ckpt_sum(t, ckpt_mul(t, a, a), last), 1, 1e-12f);
    ckpt_tensor bb = ckpt_affine(t, ckpt_sum(t, ckpt_mul(t, b, b), last), 1, 1e-12f);
    ckpt_tensor cos =
        ckpt_reshape(t, ckpt_mul(t, dot, ckpt_rsqrt(t, ckpt_mul(t, aa, bb))), d.ndim - 1, d.shape);
    ckpt_tensor same = ckpt_affine(t, cos, -1, 1);
    ckpt_tensor apart = ckpt_relu(t, ckpt_affine(t, cos, 1, -margin));
    ckpt_tensor alike = ckpt_gt(t, label, ckpt_affine(t, wide(t, label), 0, 0));
    return reduced(t, ckpt_where(t, alike, same, apart), reduction);
}

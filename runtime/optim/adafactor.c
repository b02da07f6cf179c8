/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adafactor (Shazeer & Stern 2018) with the semantics of torch.optim.Adafactor: the second moment
 * of a matrix is the product of its row and column means, and steps are relative to the RMS of the
 * weights.
 */
#include <math.h>
#include "attr.h"
#include "ops.h"
#include "optim/optim.h"

/* The root mean square of all elements, as [1]. */
static ckpt_tensor rms(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    float share = (float)(1.0 / (double)desc_numel(&d));
    return ckpt_sqrt(t, ckpt_affine(t, optim_sum_squares(t, x), share, 0.f));
}

/* Updates a running mean by old + (x - old) * weight; returns the new mean in the shape of x. */
static ckpt_tensor update_mean(ckpt_tape *t, const struct optim_param *p, enum storage_kind kind,
                               ckpt_tensor x, ckpt_tensor weight)
{
    ckpt_tensor state = tape_slot(t, p->param, kind), old = optim_state(t, state, x);
    ckpt_tensor next = ckpt_add(t, old, ckpt_mul(t, ckpt_sub(t, x, old), weight));
    optim_assign(t, p, state, next);
    return next;
}

/* The estimate of g^2. weight: k^beta2_decay. */
static ckpt_tensor second_moment(ckpt_tape *t, const struct optim_param *p, ckpt_tensor g,
                                 ckpt_tensor weight)
{
    ckpt_tensor square = ckpt_mul(t, g, g);
    if (!p->cols)
        return update_mean(t, p, STORAGE_EXP_AVG_SQ, square, weight);
    ckpt_tensor row = update_mean(t, p, STORAGE_EXP_AVG_SQ_ROW, ckpt_mean(t, square, 2), weight);
    ckpt_tensor col = update_mean(t, p, STORAGE_EXP_AVG_SQ_COL, ckpt_mean(t, square, 1), weight);
    ckpt_tensor all = ckpt_clamp(t, ckpt_mean(t, row, 1), p->rule->update.eps, INFINITY);
    return ckpt_mul(t, ckpt_div(t, row, all), col);
}

ckpt_tensor optim_adafactor(ckpt_tape *t, const struct optim_param *p)
{
    const struct optim_rule *r = p->rule;
    const struct update_attr *a = &r->update;
    const int step = clip_step(p->clip_attr);
    ckpt_tensor k = optim_scalar(t, p, step), g = p->gradient;
    ckpt_tensor lr = ckpt_affine(t, optim_scalar(t, p, step + 1), a->lr_factor, 0.f);
    ckpt_tensor v = second_moment(t, p, g, ckpt_pow_scalar(t, k, a->beta2));
    ckpt_tensor u = ckpt_mul(t, g, ckpt_rsqrt(t, ckpt_clamp(t, v, a->eps * a->eps, INFINITY)));
    ckpt_tensor size = ckpt_clamp(t, rms(t, p->weight), r->eps2, INFINITY);
    ckpt_tensor divisor = ckpt_clamp(t, ckpt_affine(t, rms(t, u), 1.f / r->d, 0.f), 1.f, INFINITY);
    ckpt_tensor rate = ckpt_mul(t, size, ckpt_minimum(t, lr, ckpt_rsqrt(t, k)));
    return ckpt_mul(t, u, ckpt_div(t, rate, divisor));
}

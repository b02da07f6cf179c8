/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Muon (Jordan et al. 2024): orthogonalized momentum.
 *
 * The Gram matrix is formed on the shorter side, A = X X^T (or X^T X), so that it is as small as
 * possible and no matrix is transposed in memory.  Products take and return bf16 and sum in fp32;
 * the two sums of an iteration are rounded to bf16 once each.  The coefficients are the authors':
 * by design they leave singular values between about 0.7 and 1.15.
 */
#include <math.h>
#include "attr.h"
#include "ops.h"
#include "optim/optim.h"

static const float coefficient[] = {3.4445f, -4.775f, 2.0315f};

/* p x + q y computed in fp32, rounded to bf16. */
static ckpt_tensor combine(ckpt_tape *t, float p, ckpt_tensor x, float q, ckpt_tensor y)
{
    x = ckpt_affine(t, ckpt_cast(t, x, CKPT_F32), p, 0.f);
    y = ckpt_affine(t, ckpt_cast(t, y, CKPT_F32), q, 0.f);
    return ckpt_cast(t, ckpt_add(t, x, y), CKPT_BF16);
}

/* X X^T if there are no more rows than columns, else X^T X. */
static ckpt_tensor gram(ckpt_tape *t, ckpt_tensor x, bool wide)
{
    const struct linear_dw_attr dw = {.dtype = CKPT_BF16};
    return wide ? ckpt_linear(t, x, x, CKPT_NONE)
                : ops_record1(t, &op_linear_dw, 2, (ckpt_tensor[]){x, x}, &dw, sizeof dw);
}

/* B X, or X B; B is symmetric. */
static ckpt_tensor product(ckpt_tape *t, ckpt_tensor b, ckpt_tensor x, bool wide)
{
    return wide ? ops_record1(t, &op_linear_dx, 3, (ckpt_tensor[]){b, x, CKPT_NONE}, NULL, 0)
                : ckpt_linear(t, x, b, CKPT_NONE);
}

static ckpt_tensor orthogonalize(ckpt_tape *t, ckpt_tensor u, int steps, float eps, bool wide)
{
    ckpt_tensor norm = ckpt_sqrt(t, optim_sum_squares(t, u));
    ckpt_tensor x = ckpt_cast(t, ckpt_div(t, u, ckpt_clamp(t, norm, eps, INFINITY)), CKPT_BF16);
    for (int i = 0; i < steps; i++) {
        ckpt_tensor a = gram(t, x, wide);
        ckpt_tensor b =
            combine(t, coefficient[1], a, coefficient[2], ckpt_linear(t, a, a, CKPT_NONE));
        x = combine(t, coefficient[0], x, 1.f, product(t, b, x, wide));
    }
    return x;
}

ckpt_tensor optim_muon_momentum(ckpt_tape *t, const struct optim_param *p)
{
    const struct update_attr *u = &p->rule->update;
    const float rest = (float)(1.0 - (double)u->beta1);
    ckpt_tensor m = tape_slot(t, p->param, STORAGE_EXP_AVG), g = p->gradient;
    ckpt_tensor old = optim_state(t, m, g);
    ckpt_tensor mean = ckpt_add(t, old, ckpt_affine(t, ckpt_sub(t, g, old), rest, 0.f));
    optim_assign(t, p, m, mean);
    return u->nesterov ? ckpt_add(t, g, ckpt_affine(t, ckpt_sub(t, mean, g), u->beta1, 0.f)) : mean;
}

ckpt_tensor optim_muon(ckpt_tape *t, const struct optim_param *p)
{
    const struct optim_rule *r = p->rule;
    return orthogonalize(t, p->gradient, r->ns_steps, r->update.eps, p->rows <= p->cols);
}

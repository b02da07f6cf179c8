/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a linear layer records of the adapters that ckpt_lora() attached to its weight.
 *
 * An adapter adds scale B A d(x); d is dropout in a program that trains.  DoRA scales the rows of
 * the sum of weight and adapter to the lengths m, as PEFT does: with s = m / |W + scale B A|, whose
 * denominator is a constant for gradients,
 *
 *   y = s (W x + scale B A x) + b                              without dropout
 *   y = W x + b + (s - 1) W d(x) + s scale B A d(x)            with it
 */
#include "adapter.h"
#include "ops.h"

static ckpt_tensor dropped(ckpt_tape *t, const struct param *a, ckpt_tensor x)
{
    const float p = a->training.factor.dropout;

    return t->trains && p > 0.f ? ckpt_dropout(t, x, p) : x;
}

/* y + scale B A x. */
static ckpt_tensor add_product(ckpt_tape *t, int32_t i, ckpt_tensor x, ckpt_tensor y)
{
    const struct params *ps = t->env.params;
    const struct param *a = &ps->data[i];
    const ckpt_tensor b = params_handle(ps, a->training.factor.b);
    ckpt_tensor h =
        ops_record1(t, &op_linear, 3, (ckpt_tensor[]){x, params_handle(ps, i), CKPT_NONE}, NULL, 0);

    h = ckpt_affine(t, h, a->training.factor.scale, 0.f);
    return ops_record1(t, &op_linear, 4, (ckpt_tensor[]){h, b, CKPT_NONE, y}, NULL, 0);
}

/* m / |W + scale B A|, a factor of each row; the norm has W's dtype, as m. */
static ckpt_tensor row_scales(ckpt_tape *t, int32_t i, ckpt_tensor w)
{
    const struct params *ps = t->env.params;
    const struct param *a = &ps->data[i];
    const ckpt_tensor m = params_handle(ps, a->training.factor.magnitude);
    ckpt_tensor left = ckpt_stop_gradient(t, params_handle(ps, a->training.factor.b));
    ckpt_tensor right = ckpt_stop_gradient(t, params_handle(ps, i));

    left = ckpt_affine(t, left, a->training.factor.scale, 0.f);
    ckpt_tensor whole =
        ckpt_add(t, ckpt_stop_gradient(t, w), ckpt_matmul(t, left, right, false, false));
    ckpt_tensor norm = ckpt_cast(t, ckpt_squeeze(t, ckpt_norm(t, whole, 2), 1), a->desc.dtype);
    return ckpt_div(t, m, norm);
}

static ckpt_tensor add_present(ckpt_tape *t, ckpt_tensor y, ckpt_tensor b)
{
    return b.id ? ckpt_add(t, y, b) : y;
}

static ckpt_tensor dora(ckpt_tape *t, int32_t i, const struct layer_product *l,
                        ckpt_tensor (*product)(ckpt_tape *t, const struct layer_product *l))
{
    const ckpt_tensor by = row_scales(t, i, l->w), x = dropped(t, &t->env.params->data[i], l->x);
    ckpt_tensor plain = product(t, &(struct layer_product){x, l->w, CKPT_NONE, CKPT_NONE});
    ckpt_tensor y = ckpt_mul(t, add_product(t, i, x, plain), by);

    if (x.id == l->x.id)
        return add_present(t, add_present(t, y, l->b), l->addend);
    return ckpt_add(t, product(t, l), ckpt_sub(t, y, plain));
}

ckpt_tensor adapted(ckpt_tape *t, const struct param *weight, const struct layer_product *l,
                    ckpt_tensor (*product)(ckpt_tape *t, const struct layer_product *l))
{
    const struct params *ps = t->env.params;
    int32_t i = weight->training.lora;

    if (ps->data[i].training.factor.magnitude)
        return dora(t, i, l, product);
    ckpt_tensor y = product(t, l);
    for (; i; i = ps->data[i].training.factor.next)
        y = add_product(t, i, dropped(t, &ps->data[i], l->x), y);
    return y;
}

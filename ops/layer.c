/* SPDX-License-Identifier: Apache-2.0 */
/* What a linear layer records: a product (linear.c), of rounded operands (fake_quantize.c) or of
 * 8 bits (fp8.c), and the adapters that ckpt_lora() attached to w (adapter.c). */
#include "adapter.h"
#include "call.h"
#include "fake_quantize.h"
#include "fp8.h"
#include "ops.h"
#include "tape/tape.h"
#include "tensor_parts.h"

static ckpt_tensor product(ckpt_tape *t, const struct layer_product *l)
{
    if (tensor_gives_terms(t, l->w))
        return tensor_linear(t, l->x, l->w, l->b, l->addend);
    if (fp8_applies(t, l->x, l->w))
        return fp8_linear(t, l->x, l->w, l->b, l->addend);
    return ops_record1(t, &op_linear, l->addend.id ? 4 : 3,
                       (ckpt_tensor[]){l->x, l->w, l->b, l->addend}, NULL, 0);
}

void ckpt_use_adapters(ckpt_tape *t, bool on)
{
    if (t)
        t->no_adapters = !on;
}

ckpt_tensor ckpt_linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b)
{
    struct layer_product l = {x, w, b, CKPT_NONE};
    const struct param *weight = find_adapter(t, w);
    qat_round(t, QAT_LINEAR, &l.x, &l.w);
    return weight ? adapted(t, weight, &l, product) : product(t, &l);
}

ckpt_tensor ckpt_linear_add(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                            ckpt_tensor a)
{
    OPS_CALL(t);
    struct layer_product l = {x, w, b, a};
    const struct param *weight = find_adapter(t, w);
    qat_round(t, QAT_LINEAR, &l.x, &l.w);
    return weight ? adapted(t, weight, &l, product) : product(t, &l);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a linear layer records: a product (linear.c), of rounded operands (fake_quantize.c) or of
 * 8 bits (fp8.c), and the adapter that ckpt_lora() attached to w. */
#include "adapter.h"
#include "call.h"
#include "fake_quantize.h"
#include "fp8.h"
#include "ops.h"
#include "tape/tape.h"

/* Adds the adapter to y: scale (x A^T) B^T. */
static ckpt_tensor add_adapter(ckpt_tape *t, const struct param *p, ckpt_tensor x, ckpt_tensor y)
{
    ckpt_tensor a = params_handle(t->env.params, p->training.lora.a);
    ckpt_tensor b = params_handle(t->env.params, p->training.lora.b);
    ckpt_tensor h = ops_record1(t, &op_linear, 3, (ckpt_tensor[]){x, a, CKPT_NONE}, NULL, 0);
    h = ckpt_affine(t, h, p->training.lora.scale, 0.f);
    return ops_record1(t, &op_linear, 4, (ckpt_tensor[]){h, b, CKPT_NONE, y}, NULL, 0);
}

ckpt_tensor ckpt_linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b)
{
    const struct param *adapter = find_adapter(t, w);
    qat_round(t, QAT_LINEAR, &x, &w);
    ckpt_tensor y = fp8_applies(t, x, w)
                        ? fp8_linear(t, x, w, b, CKPT_NONE)
                        : ops_record1(t, &op_linear, 3, (ckpt_tensor[]){x, w, b}, NULL, 0);
    return adapter ? add_adapter(t, adapter, x, y) : y;
}

ckpt_tensor ckpt_linear_add(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                            ckpt_tensor a)
{
    OPS_CALL(t);
    const struct param *adapter = find_adapter(t, w);
    qat_round(t, QAT_LINEAR, &x, &w);
    ckpt_tensor y = fp8_applies(t, x, w)
                        ? fp8_linear(t, x, w, b, a)
                        : ops_record1(t, &op_linear, 4, (ckpt_tensor[]){x, w, b, a}, NULL, 0);
    return adapter ? add_adapter(t, adapter, x, y) : y;
}

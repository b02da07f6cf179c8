/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of GELU in the epilogue of an 8-bit product (ops/fp8_gelu.c), and which 8-bit layers
 * can output the largest magnitude of a GELU. */
#include "fp8.h"
#include "kernels/kernel.h"
#include "passes/epilogue.h"
#include "shapes/linear.h"

/* Whether we have a kernel for a product of codes q with result y, and it is fast enough. */
static bool has_kernel(const ckpt_tape *t, int32_t q, int32_t y)
{
    const struct ckpt_desc *dq = &t->tensors.data[q].desc, *dy = &t->tensors.data[y].desc;
    return epilogue_is_plain(t, y) && dq->shape[dq->ndim - 1] <= FP8_SHORT_SUMS &&
           kernel_has_epilogue(t, linear_rows(dy), dy->shape[dy->ndim - 1]);
}

bool epilogue_has_gelu_largest(const ckpt_tape *t, const struct op *o)
{
    return o->def == &op_linear_fp8 && op_in(t, o, FP8_ADDEND) <= 0 &&
           has_kernel(t, op_in(t, o, FP8_QX), op_out(t, o, 0));
}

void epilogue_gelu_fp8_dx(ckpt_tape *t, int32_t i)
{
    const struct op *o = &t->ops.data[i];
    const int32_t dy = op_in(t, o, 0), pre = op_in(t, o, 1);
    const struct op *p = epilogue_producer(t, dy, &op_linear_fp8_dx);
    if (!p || (p->n_in > FP8_DX_PRE && op_in(t, p, FP8_DX_PRE) > 0) || uses_count(t, dy) != 1 ||
        !epilogue_is_plain(t, pre) || !epilogue_is_plain(t, op_out(t, o, 0)) ||
        !has_kernel(t, op_in(t, p, 0), dy))
        return;
    const int32_t product = t->tensors.data[dy].op;
    int32_t in[FP8_DX_INPUTS], out[2];
    if (!epilogue_is_before(t, pre, product))
        return;
    for (int k = 0; k < FP8_DX_PRE; k++)
        in[k] = op_in(t, p, k);
    in[FP8_DX_PRE] = pre;
    for (int k = 0; k < o->n_out; k++)
        out[k] = op_out(t, o, k);
    if (!epilogue_replace_op(t, product, &op_linear_fp8_dx_gelu, o->extra, FP8_DX_INPUTS, in,
                             o->n_out, out))
        epilogue_remove_op(t, i, product);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU in the epilogues of 8-bit products (--matmul fp8).
 *
 *   pre, its largest    = linear_fp8(x, w1, b1)           largest of gelu(pre), for to_fp8
 *   y                   = linear_fp8(gelu(pre), w2, b2)
 *   dpre, sums, largest = linear_fp8_dx_gelu(dy, w2, pre)     dpre = gelu'(pre) (dy w2)
 *
 * GELU itself is computed while its result is rounded (fp8.c).  The forward pass saves the pass
 * that finds its largest magnitude, which is an extra output of linear_fp8 requested by
 * ops_leave_largest.  The backward pass saves writing and reading the gradient of gelu(pre).
 *
 * epilogue.c describes where this is done.  The products are our own kernels.  Up to FP8_SHORT_SUMS
 * they sum like cuBLASLt when it may use the accumulators of the tensor cores; longer sums and
 * products of blocks are left to cuBLASLt.
 */
#include "attr.h"
#include "fp8.h"
#include "kernels/kernel.h"
#include "passes/epilogue.h"
#include "shapes/linear.h"

/* {qdy, scale, transposed qw, scale, pre} -> {dpre, its column sums if requested} */
static int linear_fp8_dx_gelu_shape(struct ckpt_call *call)
{
    const struct linear_dx_gelu_attr *attr = call->attr;
    const struct ckpt_desc *pre = &call->in[FP8_DX_PRE];
    const int rc = fp8_product_shape(call, 0, CKPT_BF16);
    if (rc)
        return rc;
    if (!desc_same_shape(pre, &call->out[0]) || pre->dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operand of gelu must be bf16 and of the gradient's shape");
    if (attr->sums)
        call_column_sum(call, 1, pre);
    return CKPT_OK;
}

const struct ckpt_op_def op_linear_fp8_dx_gelu = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_fp8_dx_gelu",
    .shape = linear_fp8_dx_gelu_shape,
    .cost = fp8_gradient_cost,
};

/* ---- which products -------------------------------------------------------------------------- */

/* Whether we have a kernel for a product of codes q with result y, and it is fast enough. */
static bool has_kernel(const ckpt_tape *t, int32_t q, int32_t y)
{
    const struct ckpt_desc *dq = &t->tensors.data[q].desc, *dy = &t->tensors.data[y].desc;
    return t->env.matmul == MATMUL_FP8 && epilogue_is_plain(t, y) &&
           dq->shape[dq->ndim - 1] <= FP8_SHORT_SUMS &&
           kernel_joins(t, linear_rows(dy), dy->shape[dy->ndim - 1]);
}

bool fp8_has_gelu_largest(const ckpt_tape *t, const struct op *o)
{
    return o->def == &op_linear_fp8 && op_in(t, o, FP8_ADDEND) <= 0 &&
           has_kernel(t, op_in(t, o, FP8_QX), op_out(t, o, 0));
}

void epilogue_gelu_fp8_dx(struct epilogues *j, int32_t i)
{
    ckpt_tape *t = j->t;
    const struct op *o = &t->ops.data[i];
    const int32_t dy = op_in(t, o, 0), pre = op_in(t, o, 1);
    const struct op *p = epilogue_producer(t, dy, &op_linear_fp8_dx);
    if (!p || (p->n_in > FP8_DX_PRE && op_in(t, p, FP8_DX_PRE) > 0) || j->reads[dy].all != 1 ||
        !epilogue_is_plain(t, pre) || !epilogue_is_plain(t, op_out(t, o, 0)) ||
        !has_kernel(t, op_in(t, p, 0), dy))
        return;
    const int32_t product = t->tensors.data[dy].op;
    const struct linear_dx_gelu_attr attr = {.sums = o->def == &op_gelu_dx_sums};
    int32_t in[FP8_DX_INPUTS], out[2];
    if (!epilogue_is_before(t, pre, product))
        return;
    for (int k = 0; k < FP8_DX_PRE; k++)
        in[k] = op_in(t, p, k);
    in[FP8_DX_PRE] = pre;
    for (int k = 0; k < 1 + attr.sums; k++)
        out[k] = op_out(t, o, k);
    if (!epilogue_replace_op(j, product, &op_linear_fp8_dx_gelu, &attr, sizeof attr, FP8_DX_INPUTS,
                             in, 1 + attr.sums, out))
        epilogue_remove_op(j, i, product);
}

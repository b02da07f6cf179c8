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
 * pass_extra.  The backward pass saves writing and reading the gradient of gelu(pre).
 *
 * epilogue.c describes where this is done.  The products are our own kernels.  Up to FP8_SHORT_SUMS
 * they sum like cuBLASLt when it may use the accumulators of the tensor cores; longer sums are left
 * to cuBLASLt.
 */
#include "attr.h"
#include "fp8.h"
#include "ops.h"
#include "shapes/linear.h"

/* {qdy, scale, transposed qw, scale, pre} -> {dpre} */
static int linear_fp8_dx_gelu_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *pre = &call->in[FP8_DX_PRE];
    const int rc = fp8_product_shape(call, 0, CKPT_BF16);
    if (rc)
        return rc;
    if (!desc_same_shape(pre, &call->out[0]) || pre->dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operand of gelu must be bf16 and of the gradient's shape");
    return CKPT_OK;
}

OPS_DEF(linear_fp8_dx_gelu, .shape = linear_fp8_dx_gelu_shape, .cost = fp8_gradient_cost);

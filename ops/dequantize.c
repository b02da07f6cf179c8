/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frozen weight of codes (core/frozen.h) as the product reads it.  The op is recorded where a
 * model first uses such a parameter (tape.c).  What it writes is a tensor like any other, and cheap
 * to make again: whether it stays from the forward to the backward pass is for the plan to say.
 * Nobody asks for a gradient of codes, so there is no rule.
 */
#include "attr.h"
#include "core/frozen.h"
#include "cpu/kernels.h"
#include "cuda/kernels.h"
#include "ops.h"

/* {words} -> [rows, cols] */
static int dequantize_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0];
    const struct dequantize_attr *attr = call->attr;
    const int64_t n = attr->rows * attr->cols;
    if (!frozen_takes(n) || x->dtype != CKPT_I32 || desc_numel(x) != frozen_words(attr->format, n))
        return ckpt_call_fail(call, "its operand is not %lld values in codes", (long long)n);
    call->out[0] = (struct ckpt_desc){
        .dtype = (enum ckpt_dtype)attr->dtype, .ndim = 2, .shape = {attr->rows, attr->cols}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

/* A look-up and a product each. */
static void dequantize_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2. * (double)desc_numel(&call->out[0]);
}

const struct ckpt_op_def op_dequantize = {
    .size = sizeof(struct ckpt_op_def),
    .name = "dequantize",
    .shape = dequantize_shape,
    .cost = dequantize_cost,
    .cpu = cpu_dequantize,
    .cuda = CUDA_KERNEL(cuda_dequantize),
};

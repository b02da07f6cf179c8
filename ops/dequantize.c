/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes a frozen quantised weight (core/frozen.h) for its product.
 *
 * The op is recorded where a model first uses such a parameter (tape.c).  Its result is a tensor
 * like any other and cheap to recompute, so the plan decides whether it is kept from forward to
 * backward.  Codes never need a gradient, so the op has no gradient rule.
 */
#include "attr.h"
#include "core/frozen.h"
#include "ops.h"

/* {words} -> [rows, cols] */
static int dequantize_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0];
    const struct dequantize_attr *attr = call->attr;
    const int64_t n = attr->rows * attr->cols;
    if (!frozen_takes(n) || x->dtype != CKPT_I32 || desc_numel(x) != frozen_words(attr->format, n))
        return ckpt_call_fail(call, "the operand does not have the codes of %lld values",
                              (long long)n);
    call->out[0] = (struct ckpt_desc){
        .dtype = (enum ckpt_dtype)attr->dtype, .ndim = 2, .shape = {attr->rows, attr->cols}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

/* One lookup and one multiplication per value. */
OPS_COST(dequantize_cost, 2., out[0])

OPS_DEF(dequantize, .shape = dequantize_shape, .cost = dequantize_cost);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion of bf16 values to 8-bit codes in blocks, and back (core/int8.h).  The codes are an i32
 * tensor of packed words, which a plan keeps, recomputes or offloads like any other.  Blocks are
 * consecutive values in memory, independent of the axes, so all views of a storage share its codes.
 */
#include "int8.h"
#include "core/int8.h"
#include "ops.h"

enum { OPERATIONS = 4 }; /* flops per value: magnitude, product, rounding, conversion */

/* {x} -> codes [words] */
static int to_int8_shape(struct ckpt_call *call)
{
    if (call->in[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "x must be bf16");
    call->out[0] = (struct ckpt_desc){
        .dtype = CKPT_I32, .ndim = 1, .shape = {int8_words(desc_numel(&call->in[0]))}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

OPS_COST(to_int8_cost, OPERATIONS, in[0])

OPS_DEF(to_int8, .shape = to_int8_shape, .cost = to_int8_cost);

/* {codes} -> x [n] */
static int from_int8_shape(struct ckpt_call *call)
{
    const struct from_int8_attr *attr = call->attr;
    if (call->in[0].dtype != CKPT_I32 || desc_numel(&call->in[0]) != int8_words(attr->n))
        return ckpt_call_fail(call, "the operand does not have the codes of %lld values",
                              (long long)attr->n);
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_BF16, .ndim = 1, .shape = {attr->n}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

OPS_COST(from_int8_cost, OPERATIONS, out[0])

OPS_DEF(from_int8, .shape = from_int8_shape, .cost = from_int8_cost);

ckpt_tensor int8_encode(ckpt_tape *t, ckpt_tensor x)
{
    return ops_record1(t, &op_to_int8, 1, &x, NULL, 0);
}

ckpt_tensor int8_decode(ckpt_tape *t, ckpt_tensor codes, int64_t n)
{
    struct from_int8_attr attr = {n};
    return ops_record1(t, &op_from_int8, 1, &codes, &attr, sizeof attr);
}

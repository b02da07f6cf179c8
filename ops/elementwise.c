/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops: add, sub, mul, affine, where, and accumulation of gradients. */
#include "ops.h"
#include "attr.h"
#include "expr/expr.h"

/* The gradient of a broadcast operand: d summed to the operand's shape. */
static ckpt_tensor unbroadcast(const struct ckpt_grad *g, int operand, ckpt_tensor d)
{
    struct ckpt_desc x = ckpt_desc_of(g->tape, g->in[operand]), have = ckpt_desc_of(g->tape, d);
    return desc_same_shape(&x, &have) ? d : ops_sum_to(g->tape, d, &x);
}

static int shape_binary(struct ckpt_call *call)
{
    return call_broadcast(call, 0, 0, 1);
}

/* Records op for floating-point operands, an expression for integers. */
static ckpt_tensor record_two(ckpt_tape *t, const struct ckpt_op_def *op, enum expr_code code,
                              ckpt_tensor a, ckpt_tensor b)
{
    const ckpt_tensor in[] = {a, b};
    if (expr_are_integers(t, 2, in))
        return expr_integers(t, op->name, code, 2, in, 0.f, 0.f);
    return ops_record1(t, op, 2, in, NULL, 0);
}

ckpt_tensor ckpt_add(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return record_two(t, &op_add, EXPR_ADD, a, b);
}

static void grad_add(struct ckpt_grad *g)
{
    for (int i = 0; i < 2; i++)
        if (g->need[i])
            g->din[i] = unbroadcast(g, i, g->dout[0]);
}

OPS_DEF(add, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_binary,
        .grad = grad_add);

ckpt_tensor ckpt_sub(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return record_two(t, &op_sub, EXPR_SUB, a, b);
}

/* Reduces before the negation, so the smaller tensor is negated. */
static void grad_sub(struct ckpt_grad *g)
{
    if (g->need[0])
        g->din[0] = unbroadcast(g, 0, g->dout[0]);
    if (g->need[1])
        g->din[1] = ckpt_affine(g->tape, unbroadcast(g, 1, g->dout[0]), -1.f, 0.f);
}

OPS_DEF(sub, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_binary,
        .grad = grad_sub);

ckpt_tensor ckpt_mul(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return record_two(t, &op_mul, EXPR_MUL, a, b);
}

static void grad_mul(struct ckpt_grad *g)
{
    for (int i = 0; i < 2; i++)
        if (g->need[i])
            g->din[i] = unbroadcast(g, i, ckpt_mul(g->tape, g->dout[0], g->in[1 - i]));
}

OPS_DEF(mul, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_binary,
        .grad = grad_mul);

ckpt_tensor ckpt_affine(ckpt_tape *t, ckpt_tensor x, float a, float b)
{
    struct affine_attr attr = {a, b};
    if (expr_are_integers(t, 1, &x))
        return expr_integers(t, "affine", EXPR_AFFINE, 1, &x, a, b);
    return ops_record1(t, &op_affine, 1, &x, &attr, sizeof attr);
}

static int shape_affine(struct ckpt_call *call)
{
    call_like(call, 0, 0);
    return call_float(call, 0);
}

static void grad_affine(struct ckpt_grad *g)
{
    float a = ((const struct affine_attr *)g->attr)->a;
    g->din[0] = a == 1.f ? g->dout[0] : ckpt_affine(g->tape, g->dout[0], a, 0.f);
}

OPS_DEF(affine, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_affine,
        .grad = grad_affine);

ckpt_tensor ckpt_where(ckpt_tape *t, ckpt_tensor cond, ckpt_tensor a, ckpt_tensor b)
{
    const ckpt_tensor in[] = {cond, a, b};
    if (expr_are_integers(t, 2, in + 1))
        return expr_integers(t, "where", EXPR_WHERE, 3, in, 0.f, 0.f);
    return ops_record1(t, &op_where, 3, in, NULL, 0);
}

/* Broadcasts out[0] against the condition as well; broadcasting is associative. */
static int shape_where(struct ckpt_call *call)
{
    if (call->in[0].ndim < 0 || call->in[0].dtype != CKPT_I32)
        return ckpt_call_fail(call, "the condition must be i32");
    if (call->in[1].dtype != call->in[2].dtype)
        return ckpt_call_fail(call, "the two choices have different dtypes; use ckpt_cast");
    if (call_broadcast(call, 0, 1, 2))
        return CKPT_ESHAPE;
    struct ckpt_desc in[2] = {call->out[0], call->in[0]};
    in[1].dtype = in[0].dtype;
    struct ckpt_call both = *call;
    both.n_in = 2;
    both.in = in;
    return call_broadcast(&both, 0, 0, 1);
}

/*
 * An operand that was not selected gets gradient 0 by selection, not by multiplication: 0 times an
 * infinite gradient would be NaN.
 */
static void grad_where(struct ckpt_grad *g)
{
    if (!g->need[1] && !g->need[2])
        return;
    enum ckpt_dtype dtype = ckpt_desc_of(g->tape, g->dout[0]).dtype;
    ckpt_tensor zero = ops_fill(g->tape, 0.f, dtype, 0, NULL), d = g->dout[0];
    if (g->need[1])
        g->din[1] = unbroadcast(g, 1, ckpt_where(g->tape, g->in[0], d, zero));
    if (g->need[2])
        g->din[2] = unbroadcast(g, 2, ckpt_where(g->tape, g->in[0], zero, d));
}

OPS_DEF(where, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = shape_where,
        .grad = grad_where);

static int shape_accumulate(struct ckpt_call *call)
{
    if (call->in[0].dtype != CKPT_F32)
        return ckpt_call_fail(call, "the accumulator must be fp32");
    if (!desc_same_shape(&call->in[0], &call->in[1]))
        return ckpt_call_fail(call, "the accumulator and its addend differ in shape");
    call->out[0] = call->in[0];
    return call_float(call, 1);
}

OPS_DEF(accumulate, .flags = CKPT_OP_STRIDED | CKPT_OP_INPLACE | CKPT_OP_ACCUMULATE,
        .shape = shape_accumulate);

static int shape_accumulate_narrow(struct ckpt_call *call)
{
    if (call->in[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the accumulator must be bf16");
    if (!desc_same_shape(&call->in[0], &call->in[1]))
        return ckpt_call_fail(call, "the accumulator and its addend differ in shape");
    call->out[0] = call->in[0];
    return call_float(call, 1);
}

/* bf16 sum with stochastic rounding: its expectation is exact, so small addends are not lost.  The
 * random bits are a function of the seed, the update, the micro-step, the element, and the op's
 * number, which differentiate.c gives it. */
OPS_DEF(accumulate_narrow, .flags = CKPT_OP_INPLACE | CKPT_OP_ACCUMULATE,
        .shape = shape_accumulate_narrow);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adaptive layer norm modulation (Peebles & Xie 2023), x (1 + scale) + shift, and the gated
 * residual x + gate a.  shift, scale and gate have the last axis of x and broadcast along axes on
 * which their size is 1.  Their gradients are sums over rows, with partial sums in workspace.
 *
 * - One backward op computes all gradients of a forward op and reads dy once.  dx of the gated
 *   residual is dy itself and needs no op.
 * - If the gate is not trained, the gradient is one multiplication, and `a` need not be kept.
 */
#include "decompose.h"
#include "ops.h"

static int check_rows(struct ckpt_call *call, int i)
{
    return call_float(call, i) || call_dense_rows(call, i) ? CKPT_ESHAPE : CKPT_OK;
}

OPS_COST(pointwise_cost, 2.0, in[0])

static int modulate_shape(struct ckpt_call *call)
{
    if (check_rows(call, 0) || call_row_vector(call, 1, 0) || call_row_vector(call, 2, 0))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 0);
    return CKPT_OK;
}

static void modulate_grad(struct ckpt_grad *g)
{
    struct ckpt_desc shift = ckpt_desc_of(g->tape, g->in[1]);
    struct ckpt_desc scale = ckpt_desc_of(g->tape, g->in[2]);
    ckpt_tensor dy = ops_dense_rows(g->tape, g->dout[0]);
    ckpt_tensor in[] = {dy, g->in[0], g->in[2]};
    ckpt_record(g->tape, &op_modulate_dx, 3, in, 3, g->din, NULL, 0);
    if (!desc_same_shape(&shift, &scale) && g->need[1])
        g->din[1] = ops_sum_to(g->tape, dy, &shift);
}

OPS_DEF(modulate, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS, .shape = modulate_shape,
        .grad = modulate_grad, .cost = pointwise_cost);

static int modulate_dx_shape(struct ckpt_call *call)
{
    if (check_rows(call, 0) || check_rows(call, 1) || call_row_vector(call, 2, 1))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 1);
    call_sum_like(call, 1, 2);
    call_sum_like(call, 2, 2);
    return CKPT_OK;
}

OPS_COST(modulate_dx_cost, 5.0, in[0])

static void decompose_modulate_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                  ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    ckpt_tensor x[] = {in[1], ops_zeros_like(t, in[2]), in[2]}; /* x, shift, scale */
    const int first = ops_count(t);
    ckpt_tensor y = ckpt_mul(t, x[0], ckpt_affine(t, x[2], 1.f, 1.f));
    ops_pull(t, first, ckpt_add(t, y, x[1]), in[0], 3, x, out);
}

OPS_DECOMPOSED(modulate_dx_grad, decompose_modulate_dx)

OPS_DEF(modulate_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS, .shape = modulate_dx_shape,
        .grad = modulate_dx_grad, .cost = modulate_dx_cost);

ckpt_tensor ckpt_modulate(ckpt_tape *t, ckpt_tensor x, ckpt_tensor shift, ckpt_tensor scale)
{
    return OPS_RECORD(t, &op_modulate, (const char *)NULL, ops_dense_rows(t, x),
                      ops_dense_rows(t, shift), ops_dense_rows(t, scale));
}

static int gated_residual_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0], *a = &call->in[2];
    if (check_rows(call, 0) || call_row_vector(call, 1, 0) || check_rows(call, 2))
        return CKPT_ESHAPE;
    if (a->dtype != x->dtype || !desc_same_shape(a, x))
        return ckpt_call_fail(call, "x and a must have the same shape and dtype");
    call_like_memory(call, 0, 0);
    return CKPT_OK;
}

static void gated_residual_grad(struct ckpt_grad *g)
{
    ckpt_tensor in[] = {ops_dense_rows(g->tape, g->dout[0]), g->in[1], g->in[2]};
    ckpt_tensor out[2] = {CKPT_NONE};

    g->din[0] = g->dout[0];
    if (!g->need[1]) { /* frozen gate: no gradient reads a, so it need not be kept */
        if (g->need[2])
            g->din[2] = ckpt_mul(g->tape, in[0], in[1]);
        return;
    }
    ckpt_record(g->tape, &op_gated_residual_dx, 3, in, 2, out, NULL, 0);
    g->din[1] = out[1];
    g->din[2] = out[0];
}

OPS_DEF(gated_residual, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS,
        .shape = gated_residual_shape, .grad = gated_residual_grad, .cost = pointwise_cost);

/* {dy, gate, a} -> {da, dgate} */
static int gated_residual_dx_shape(struct ckpt_call *call)
{
    if (check_rows(call, 0) || call_row_vector(call, 1, 2) || check_rows(call, 2))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 2);
    call_sum_like(call, 1, 1);
    return CKPT_OK;
}

static void decompose_gated_residual_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                        ckpt_tensor *out)
{
    ckpt_tensor x[] = {in[2], in[1]}; /* a, gate */
    const int first = ops_count(g->tape);
    ops_pull(g->tape, first, ckpt_mul(g->tape, x[0], x[1]), in[0], 2, x, out);
}

OPS_DECOMPOSED(gated_residual_dx_grad, decompose_gated_residual_dx)

OPS_DEF(gated_residual_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS,
        .shape = gated_residual_dx_shape, .grad = gated_residual_dx_grad, .cost = modulate_dx_cost);

ckpt_tensor ckpt_gated_residual(ckpt_tape *t, ckpt_tensor x, ckpt_tensor gate, ckpt_tensor a)
{
    return OPS_RECORD(t, &op_gated_residual, (const char *)NULL, ops_dense_rows(t, x),
                      ops_dense_rows(t, gate), ops_dense_rows(t, a));
}

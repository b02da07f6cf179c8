/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adaptive layer norm in one op: (x - mean) rstd (1 + scale) + shift.  The backward pass keeps the
 * statistics only and recomputes the normalised value from them.
 */
#include "decompose.h"
#include "norm.h"
#include "ops.h"

static int norm_modulate_shape(struct ckpt_call *call)
{
    const struct norm_attr *attr = call->attr;
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_row_vector(call, 1, 0) ||
        call_row_vector(call, 2, 0) || call_eps(call, attr->eps))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 0);
    norm_stats_shape(call, 2);
    return CKPT_OK;
}

static void norm_modulate_grad(struct ckpt_grad *g)
{
    struct ckpt_desc shift = ckpt_desc_of(g->tape, g->in[1]);
    struct ckpt_desc scale = ckpt_desc_of(g->tape, g->in[2]);
    ckpt_tensor dy = ops_dense_rows(g->tape, g->dout[0]);
    ckpt_tensor in[] = {dy, g->in[0], g->in[2], g->out[1], CKPT_NONE};
    size_t size;
    const void *attr = norm_dx_attr(g, &size);
    ckpt_record(g->tape, &op_layer_norm_modulate_dx, 5, in, 3, g->din, attr, size);
    if (!desc_same_shape(&shift, &scale) && g->need[1])
        g->din[1] = ops_sum_to(g->tape, dy, &shift);
}

OPS_COST(norm_modulate_cost, 10.0, in[0])

OPS_DEF(layer_norm_modulate, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS | CKPT_OP_OPTIONAL_OUT,
        .shape = norm_modulate_shape, .grad = norm_modulate_grad, .cost = norm_modulate_cost);

/* {dy, x, scale, stats, addend} -> {dx, dshift, dscale} */
static int norm_modulate_dx_shape(struct ckpt_call *call)
{
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_dense_rows(call, 1) ||
        call_row_vector(call, 2, 1))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 1);
    call_sum_like(call, 1, 2);
    call_sum_like(call, 2, 2);
    return CKPT_OK;
}

OPS_COST(norm_modulate_dx_cost, 16.0, in[0])

static void decompose_norm_modulate_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                       ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const struct norm_attr *attr = g->attr;
    ckpt_tensor x[] = {in[1], ops_zeros_like(t, in[2]), in[2]}; /* x, shift, scale */
    const int first = ops_count(t);
    const unsigned last = 1u << (ckpt_desc_of(t, x[0]).ndim - 1);
    ckpt_tensor y = ops_normalised(t, x[0], last, attr->eps, true);
    y = ckpt_add(t, ckpt_mul(t, y, ckpt_affine(t, x[2], 1.f, 1.f)), x[1]);
    ops_pull(t, first, y, in[0], 3, x, out);
}

OPS_DECOMPOSED(norm_modulate_dx_grad, decompose_norm_modulate_dx)

OPS_DEF(layer_norm_modulate_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS | CKPT_OP_ADDEND,
        .shape = norm_modulate_dx_shape, .grad = norm_modulate_dx_grad,
        .cost = norm_modulate_dx_cost);

ckpt_tensor ckpt_layer_norm_modulate(ckpt_tape *t, ckpt_tensor x, ckpt_tensor shift,
                                     ckpt_tensor scale, float eps)
{
    struct norm_attr attr = {.eps = eps};
    ckpt_tensor out[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_tensor in[] = {ops_dense_rows(t, x), ops_dense_rows(t, shift), ops_dense_rows(t, scale)};
    ckpt_record(t, &op_layer_norm_modulate, 3, in, 2, out, &attr, sizeof attr);
    return out[0];
}

/* SPDX-License-Identifier: Apache-2.0 */
/* RMS norm and rotary embedding in one op, for the queries and keys of transformers. */
#include "decompose.h"
#include "norm.h"
#include "ops.h"
#include "rope.h"

static int norm_rope_shape(struct ckpt_call *call)
{
    const struct rms_norm_rope_attr *attr = call->attr;
    if (call_float(call, 0) || call_dense_rows(call, 0) || norm_check_weight(call, 1, 0) ||
        call_eps(call, attr->eps) || rope_check(call, 2, attr->axis))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 0);
    norm_stats_shape(call, 0);
    return CKPT_OK;
}

static void norm_rope_grad(struct ckpt_grad *g)
{
    ckpt_tensor dy = ops_dense_rows(g->tape, g->dout[0]);
    ckpt_tensor in[] = {dy, g->in[0], g->in[1], g->out[1], g->in[2]};
    if (g->need[2])
        ckpt_tape_fail(g->tape, CKPT_EINVAL,
                       "rms_norm_rope: the table of angles cannot be trained");
    ckpt_record(g->tape, &op_rms_norm_rope_dx, 5, in, 2, g->din, g->attr,
                sizeof(struct rms_norm_rope_attr));
}

OPS_COST(norm_rope_cost, 11.0, in[0])

OPS_DEF(rms_norm_rope, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS, .shape = norm_rope_shape,
        .grad = norm_rope_grad, .cost = norm_rope_cost);

/* {dy, x, w, rstd, table} -> {dx, dw} */
static int norm_rope_dx_shape(struct ckpt_call *call)
{
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_dense_rows(call, 1))
        return CKPT_ESHAPE;
    norm_weight_dx_shape(call);
    return CKPT_OK;
}

static void decompose_norm_rope_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                   ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    const struct rms_norm_rope_attr *attr = g->attr;
    const int first = ops_count(t);
    const unsigned last = 1u << (ckpt_desc_of(t, in[1]).ndim - 1);
    ckpt_tensor y = ckpt_mul(t, ops_normalised(t, in[1], last, attr->eps, false), in[2]);
    ops_pull(t, first, ckpt_rope(t, y, in[4], attr->axis), in[0], 2, in + 1, out);
}

OPS_DECOMPOSED(norm_rope_dx_grad, decompose_norm_rope_dx)

OPS_DEF(rms_norm_rope_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS,
        .shape = norm_rope_dx_shape, .grad = norm_rope_dx_grad, .cost = norm_rope_cost);

ckpt_tensor ckpt_rms_norm_rope(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, float eps,
                               ckpt_tensor table, int axis)
{
    struct rms_norm_rope_attr attr = {.eps = eps, .axis = axis};
    ckpt_tensor in[] = {ops_dense_rows(t, x), ops_dense_rows(t, w), ckpt_contiguous(t, table)};
    ckpt_tensor out[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_record(t, &op_rms_norm_rope, 3, in, 2, out, &attr, sizeof attr);
    return out[0];
}

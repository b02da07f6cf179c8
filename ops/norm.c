/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm (Ba et al. 2016) and RMS norm (Zhang & Sennrich 2019) over the last axis: shapes,
 * gradients and costs.
 *
 * - The forward op has a second output, the fp32 statistics of each row, for the backward op:
 *   keeping two floats per row is cheaper than reading a row twice.
 * - A backward op computes dx and the gradients of weight and bias in one pass.  There are three
 *   kinds: layer norm without weight (used before modulate), with weight, and RMS norm.
 * - Backward ops take an addend for dx: the gradient of the skip connection of a residual block.
 * - Second gradients come from the decomposed forward formula (decompose.h); norm_dx_attr() passes
 * eps to the backward op only for them.
 */
#include "decompose.h"
#include "norm.h"
#include "ops.h"
#include "tape/tape.h"

void norm_stats_shape(struct ckpt_call *call, int64_t n)
{
    struct ckpt_desc d = call->in[0];
    d.dtype = CKPT_F32;
    d.offset = 0;
    d.ndim--;
    if (n)
        d.shape[d.ndim++] = n;
    desc_dense(&d);
    call->out[1] = d;
}

int norm_check_weight(struct ckpt_call *call, int w, int x)
{
    const struct ckpt_desc *d = &call->in[x], *weight = &call->in[w];
    if (call_dense_rows(call, w))
        return CKPT_ESHAPE;
    if (weight->ndim != 1 || weight->shape[0] != d->shape[d->ndim - 1])
        return ckpt_call_fail(call, "the weight must have one axis, of the size of the last of x");
    if (weight->dtype != d->dtype)
        return ckpt_call_fail(call, "x and the weight must have the same dtype");
    return CKPT_OK;
}

static int layer_norm_shape(struct ckpt_call *call)
{
    const struct norm_attr *attr = call->attr;
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_eps(call, attr->eps))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 0);
    norm_stats_shape(call, 2);
    if (call->in[1].ndim < 0 && call->in[2].ndim >= 0)
        return ckpt_call_fail(call, "a bias needs a weight");
    for (int i = 1; i < 3; i++)
        if (call->in[i].ndim >= 0 && norm_check_weight(call, i, 0))
            return CKPT_ESHAPE;
    return CKPT_OK;
}

const void *norm_dx_attr(const struct ckpt_grad *g, size_t *size)
{
    const bool kept = g->tape->in_gradients;
    *size = kept ? sizeof(struct norm_attr) : 0;
    return kept ? g->attr : NULL;
}

static void layer_norm_grad(struct ckpt_grad *g)
{
    size_t size;
    const void *attr = norm_dx_attr(g, &size);
    ckpt_tensor dy = ops_dense_rows(g->tape, g->dout[0]);
    if (g->in[1].id) {
        ckpt_tensor in[] = {dy, g->in[0], g->in[1], g->out[1], CKPT_NONE}, out[3] = {CKPT_NONE};
        ckpt_record(g->tape, &op_layer_norm_affine_dx, 5, in, 3, out, attr, size);
        g->din[0] = out[0];
        g->din[1] = out[2];
        g->din[2] = out[1];
        return;
    }
    ckpt_tensor in[] = {dy, g->in[0], g->out[1], CKPT_NONE};
    g->din[0] = ops_record1(g->tape, &op_layer_norm_dx, 4, in, attr, size);
}

OPS_COST(norm_cost, 8.0, in[0])

OPS_DEF(layer_norm, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS, .shape = layer_norm_shape,
        .grad = layer_norm_grad, .cost = norm_cost);

/* {dy, x, stats, addend} -> dx */
static int layer_norm_dx_shape(struct ckpt_call *call)
{
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_dense_rows(call, 1))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 1);
    return CKPT_OK;
}

static unsigned last_axis(ckpt_tape *t, ckpt_tensor x)
{
    return 1u << (ckpt_desc_of(t, x).ndim - 1);
}

static ckpt_tensor normalised_rows(const struct ckpt_grad *g, ckpt_tensor x, bool centred)
{
    const struct norm_attr *attr = g->attr;
    return ops_normalised(g->tape, x, last_axis(g->tape, x), attr->eps, centred);
}

static void decompose_layer_norm_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                    ckpt_tensor *out)
{
    const int first = ops_count(g->tape);
    ckpt_tensor y = normalised_rows(g, in[1], true);
    ops_pull(g->tape, first, y, in[0], 1, &in[1], out);
}

OPS_DECOMPOSED(layer_norm_dx_grad, decompose_layer_norm_dx)

OPS_DEF(layer_norm_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS | CKPT_OP_ADDEND,
        .shape = layer_norm_dx_shape, .grad = layer_norm_dx_grad, .cost = norm_cost);

/* {dy, x, w, stats, addend} -> {dx, db, dw} */
static int layer_norm_affine_dx_shape(struct ckpt_call *call)
{
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_dense_rows(call, 1) ||
        norm_check_weight(call, 2, 1))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 1);
    call_sum_like(call, 1, 2);
    call_sum_like(call, 2, 2);
    return CKPT_OK;
}

static void decompose_layer_norm_affine_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                           ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    ckpt_tensor x[] = {in[1], ops_zeros_like(t, in[2]), in[2]}; /* in the order of dx, db, dw */
    const int first = ops_count(t);
    ckpt_tensor y = ckpt_mul(t, normalised_rows(g, x[0], true), x[2]);
    ops_pull(t, first, ckpt_add(t, y, x[1]), in[0], 3, x, out);
}

OPS_DECOMPOSED(layer_norm_affine_dx_grad, decompose_layer_norm_affine_dx)

OPS_DEF(layer_norm_affine_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS | CKPT_OP_ADDEND,
        .shape = layer_norm_affine_dx_shape, .grad = layer_norm_affine_dx_grad, .cost = norm_cost);

ckpt_tensor ckpt_layer_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b, float eps)
{
    struct norm_attr attr = {.eps = eps};
    ckpt_tensor in[] = {ops_dense_rows(t, x), w.id ? ops_dense_rows(t, w) : w,
                        b.id ? ops_dense_rows(t, b) : b};
    ckpt_tensor out[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_record(t, &op_layer_norm, 3, in, 2, out, &attr, sizeof attr);
    return out[0];
}

static int rms_norm_shape(struct ckpt_call *call)
{
    const struct norm_attr *attr = call->attr;
    if (call_float(call, 0) || call_dense_rows(call, 0) || norm_check_weight(call, 1, 0) ||
        call_eps(call, attr->eps))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 0);
    norm_stats_shape(call, 0);
    return CKPT_OK;
}

static void rms_norm_grad(struct ckpt_grad *g)
{
    ckpt_tensor dy = ops_dense_rows(g->tape, g->dout[0]);
    ckpt_tensor in[] = {dy, g->in[0], g->in[1], g->out[1], CKPT_NONE}, out[2] = {CKPT_NONE};
    ckpt_record(g->tape, &op_rms_norm_dx, 5, in, 2, out, g->attr, sizeof(struct norm_attr));
    g->din[0] = out[0];
    g->din[1] = out[1];
}

OPS_DEF(rms_norm, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS, .shape = rms_norm_shape,
        .grad = rms_norm_grad, .cost = norm_cost);

void norm_weight_dx_shape(struct ckpt_call *call)
{
    call_like_memory(call, 0, 1);
    call_sum_like(call, 1, 2);
}

/* {dy, x, w, rstd, addend} -> {dx, dw} */
static int rms_norm_dx_shape(struct ckpt_call *call)
{
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_dense_rows(call, 1))
        return CKPT_ESHAPE;
    norm_weight_dx_shape(call);
    return CKPT_OK;
}

static void decompose_rms_norm_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                  ckpt_tensor *out)
{
    const int first = ops_count(g->tape);
    ckpt_tensor y = ckpt_mul(g->tape, normalised_rows(g, in[1], false), in[2]);
    ops_pull(g->tape, first, y, in[0], 2, in + 1, out);
}

OPS_DECOMPOSED(rms_norm_dx_grad, decompose_rms_norm_dx)

OPS_DEF(rms_norm_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_ROWS | CKPT_OP_ADDEND,
        .shape = rms_norm_dx_shape, .grad = rms_norm_dx_grad, .cost = norm_cost);

ckpt_tensor ckpt_rms_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, float eps)
{
    struct norm_attr attr = {.eps = eps};
    ckpt_tensor in[] = {ops_dense_rows(t, x), ops_dense_rows(t, w)};
    ckpt_tensor out[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_record(t, &op_rms_norm, 2, in, 2, out, &attr, sizeof attr);
    return out[0];
}

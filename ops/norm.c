/*
 * Layer norm (Ba et al. 2016) without affine and RMS norm (Zhang & Sennrich 2019), over the last
 * axis.  Both keep the statistics of each row for the way back.
 */
#include "cpu/kernels.h"
#include "cpu/rows.h"
#include "norm.h"

/* out[out] as fp32 with the axes of x but the last, and then n > 0 values a row. */
static void rows_shape(struct ckpt_call *call, int out, int in, int64_t n)
{
    struct ckpt_desc d = call->in[in];
    d.dtype = CKPT_F32;
    d.offset = 0;
    d.ndim--;
    if (n)
        d.shape[d.ndim++] = n;
    desc_dense(&d);
    call->out[out] = d;
}

static int check_eps(struct ckpt_call *call)
{
    const struct norm_attr *attr = call->attr;
    if (attr->eps >= 0.f && isfinite(attr->eps))
        return CKPT_OK;
    return ckpt_call_fail(call, "eps is %g and must be a finite number, 0 or more",
                          (double)attr->eps);
}

static int layer_norm_shape(struct ckpt_call *call)
{
    if (call_float(call, 0) || call_dense_rows(call, 0) || check_eps(call))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 0);
    rows_shape(call, 1, 0, 2);
    return CKPT_OK;
}

static void layer_norm_grad(struct ckpt_grad *g)
{
    ckpt_tensor dy = ops_dense_rows(g->tape, g->dout[0]);
    g->din[0] = OPS_RECORD(g->tape, &op_layer_norm_dx, (const char *)NULL, dy, g->in[0], g->out[1]);
}

static void norm_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){.flops = 8.0 * (double)desc_numel(&call->in[0])};
}

const struct ckpt_op_def op_layer_norm = {
    .size = sizeof(struct ckpt_op_def),
    .name = "layer_norm",
    .flags = CKPT_OP_STRIDED,
    .shape = layer_norm_shape,
    .grad = layer_norm_grad,
    .cost = norm_cost,
    .cpu = cpu_layer_norm,
};

static int layer_norm_dx_shape(struct ckpt_call *call)
{
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_dense_rows(call, 1))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 1);
    return CKPT_OK;
}

const struct ckpt_op_def op_layer_norm_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "layer_norm_dx",
    .flags = CKPT_OP_STRIDED,
    .shape = layer_norm_dx_shape,
    .cost = norm_cost,
    .cpu = cpu_layer_norm_dx,
};

ckpt_tensor ckpt_layer_norm(ckpt_tape *t, ckpt_tensor x, float eps)
{
    struct norm_attr attr = {.eps = eps};
    ckpt_tensor in[] = {ops_dense_rows(t, x)}, out[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_record(t, &op_layer_norm, 1, in, 2, out, &attr, sizeof attr);
    return out[0];
}

static int rms_norm_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0], *w = &call->in[1];
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_dense_rows(call, 1) ||
        check_eps(call))
        return CKPT_ESHAPE;
    if (w->ndim != 1 || w->shape[0] != x->shape[x->ndim - 1])
        return ckpt_call_fail(call, "the weight must have one axis, of the size of the last of x");
    if (w->dtype != x->dtype)
        return ckpt_call_fail(call, "x and the weight must have the same dtype");
    call_like_memory(call, 0, 0);
    rows_shape(call, 1, 0, 0);
    return CKPT_OK;
}

static void rms_norm_grad(struct ckpt_grad *g)
{
    ckpt_tensor dy = ops_dense_rows(g->tape, g->dout[0]);
    ckpt_tensor in[] = {dy, g->in[0], g->in[1], g->out[1]};
    ckpt_record(g->tape, &op_rms_norm_dx, 4, in, 2, g->din, g->attr, sizeof(struct norm_attr));
}

const struct ckpt_op_def op_rms_norm = {
    .size = sizeof(struct ckpt_op_def),
    .name = "rms_norm",
    .flags = CKPT_OP_STRIDED,
    .shape = rms_norm_shape,
    .grad = rms_norm_grad,
    .cost = norm_cost,
    .cpu = cpu_rms_norm,
};

static int rms_norm_dx_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[1];
    if (call_float(call, 0) || call_dense_rows(call, 0) || call_dense_rows(call, 1))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 1);
    call_like(call, 1, 2);
    call->out[1].dtype = CKPT_F32;
    /* dw: a total and a block sum per chunk of rows */
    int64_t c = x->shape[x->ndim - 1];
    call->workspace = rows_sum_chunks(desc_numel(x) / c) * 2 * c * (int64_t)sizeof(float);
    return CKPT_OK;
}

const struct ckpt_op_def op_rms_norm_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "rms_norm_dx",
    .flags = CKPT_OP_STRIDED,
    .shape = rms_norm_dx_shape,
    .cost = norm_cost,
    .cpu = cpu_rms_norm_dx,
};

ckpt_tensor ckpt_rms_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, float eps)
{
    struct norm_attr attr = {.eps = eps};
    ckpt_tensor in[] = {ops_dense_rows(t, x), ops_dense_rows(t, w)};
    ckpt_tensor out[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_record(t, &op_rms_norm, 2, in, 2, out, &attr, sizeof attr);
    return out[0];
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What networks that judge pictures are made of: ReLU, pooling, distances of features. */
#include "ckpt.h"
#include "cpu/kernels.h"
#include "cuda/kernels.h"
#include "ops.h"
#include "perceptual.h"

/* One comparison an element. */
static void cost_compare(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){.flops = (double)desc_numel(&call->in[0])};
}

/* ---- ReLU ----------------------------------------------------------------------------------- */

static int relu_rule(struct ckpt_call *call)
{
    call_like(call, 0, 0);
    return call_float(call, 0);
}

/* By the result: it is needed behind, x is not. */
static void relu_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_relu_dx, (const char *)NULL, g->dout[0], g->out[0]);
}

const struct ckpt_op_def op_relu = {
    .size = sizeof(struct ckpt_op_def),
    .name = "relu",
    .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT,
    .shape = relu_rule,
    .grad = relu_grad,
    .cost = cost_compare,
    .cpu = cpu_relu,
    .cuda = CUDA_KERNEL(cuda_relu),
};

/* {dy, y} -> dx */
static int relu_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return CKPT_OK;
}

const struct ckpt_op_def op_relu_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "relu_dx",
    .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT,
    .shape = relu_dx_rule,
    .cost = cost_compare,
    .cpu = cpu_relu_dx,
    .cuda = CUDA_KERNEL(cuda_relu_dx),
};

ckpt_tensor ckpt_relu(ckpt_tape *t, ckpt_tensor x)
{
    return OPS_RECORD(t, &op_relu, (const char *)NULL, x);
}

/* ---- pooling -------------------------------------------------------------------------------- */

static int max_pool_rule(struct ckpt_call *call)
{
    const struct pool_attr *attr = call->attr;
    struct ckpt_desc *d = &call->out[0];
    int64_t taps = 1;
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    if (call->in[0].ndim < 3 || call->in[0].ndim > 5)
        return ckpt_call_fail(call, "x must be [N, ..., C] with one to three axes between");
    call_like(call, 0, 0);
    for (int i = 1; i < d->ndim - 1; i++) {
        int64_t window = attr->window[i - 1 + 5 - d->ndim];
        if (window < 1 || window > d->shape[i])
            return ckpt_call_fail(call, "a window of %lld does not fit axis %d of size %lld",
                                  (long long)window, i, (long long)d->shape[i]);
        if (window > POOL_TAPS / taps)
            return ckpt_call_fail(call, "a window has more than %d places", POOL_TAPS);
        d->shape[i] /= window;
        taps *= window;
    }
    desc_dense(d);
    return CKPT_OK;
}

static void max_pool_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_max_pool_dx, (const struct pool_attr *)g->attr, g->dout[0],
                           g->in[0]);
}

const struct ckpt_op_def op_max_pool = {
    .size = sizeof(struct ckpt_op_def),
    .name = "max_pool",
    .shape = max_pool_rule,
    .grad = max_pool_grad,
    .cost = cost_compare,
    .cpu = cpu_max_pool,
    .cuda = CUDA_KERNEL(cuda_max_pool),
};

/* {dy, x} -> dx */
static int max_pool_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return CKPT_OK;
}

const struct ckpt_op_def op_max_pool_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "max_pool_dx",
    .shape = max_pool_dx_rule,
    .cost = cost_compare,
    .cpu = cpu_max_pool_dx,
    .cuda = CUDA_KERNEL(cuda_max_pool_dx),
};

ckpt_tensor ckpt_max_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *window)
{
    struct pool_attr attr = {.window = {1, 1, 1}};
    int spatial = ckpt_desc_of(t, x).ndim - 2;
    for (int i = 0; i < spatial && spatial <= 3; i++) /* else the shape rule refuses */
        attr.window[3 - spatial + i] = window[i];
    return OPS_RECORD(t, &op_max_pool, &attr, x);
}

/* ---- distance of features ------------------------------------------------------------------- */

static int feature_distance_rule(struct ckpt_call *call)
{
    const struct ckpt_desc *a = &call->in[0], *w = &call->in[2];
    if (call_float(call, 0) || call_float(call, 1) || call_float(call, 2))
        return CKPT_ESHAPE;
    if (a->ndim < 1 || !desc_same_shape(a, &call->in[1]))
        return ckpt_call_fail(call, "a and b must have one shape, [..., C]");
    int64_t c = a->shape[a->ndim - 1];
    if (w->ndim != 1 || w->shape[0] != c)
        return ckpt_call_fail(call, "the weight must have one axis of size %lld", (long long)c);
    if (call->in[1].dtype != a->dtype || w->dtype != a->dtype)
        return ckpt_call_fail(call, "a, b and the weight must have the same dtype");
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
    call->workspace = distance_chunks(desc_numel(a) / c) * (int64_t)sizeof(double);
    return CKPT_OK;
}

/* Symmetric: the gradient of b is that of a with the two exchanged. */
static void feature_distance_grad(struct ckpt_grad *g)
{
    for (int i = 0; i < 2; i++)
        if (g->need[i])
            g->din[i] = OPS_RECORD(g->tape, &op_feature_distance_dx, (const char *)NULL, g->dout[0],
                                   g->in[i], g->in[1 - i], g->in[2]);
}

static void cost_distance(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){.flops = 9. * (double)desc_numel(&call->in[1])};
}

const struct ckpt_op_def op_feature_distance = {
    .size = sizeof(struct ckpt_op_def),
    .name = "feature_distance",
    .shape = feature_distance_rule,
    .grad = feature_distance_grad,
    .cost = cost_distance,
    .cpu = cpu_feature_distance,
    .cuda = CUDA_KERNEL(cuda_feature_distance),
};

/* {dloss, a, b, w} -> da */
static int feature_distance_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return CKPT_OK;
}

const struct ckpt_op_def op_feature_distance_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "feature_distance_dx",
    .shape = feature_distance_dx_rule,
    .cost = cost_distance,
    .cpu = cpu_feature_distance_dx,
    .cuda = CUDA_KERNEL(cuda_feature_distance_dx),
};

ckpt_tensor ckpt_feature_distance(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b, ckpt_tensor w)
{
    return OPS_RECORD(t, &op_feature_distance, (const char *)NULL, a, b, w);
}

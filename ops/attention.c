/* SPDX-License-Identifier: Apache-2.0 */
/* Self attention: shapes, gradients and costs of softmax(scale q k^T) v per head. */
#include <string.h>
#include "attention.h"
#include "cpu/attention.h"
#include "cpu/kernels.h"
#include "cuda/kernels.h"
#include "cuda/workspace.h"

static bool last_axis_dense(const struct ckpt_desc *d)
{
    return d->stride[d->ndim - 1] == 1 || d->shape[d->ndim - 1] == 1;
}

int attention_check(struct ckpt_call *call, int q_ndim, int k_ndim)
{
    for (int i = 0; i < 3; i++) {
        const struct ckpt_desc *d = &call->in[i];
        if (call_float(call, i))
            return CKPT_ESHAPE;
        if (d->dtype != call->in[0].dtype)
            return ckpt_call_fail(call, "q, k and v must have the same dtype");
        if (d->ndim != (i ? k_ndim : q_ndim))
            return ckpt_call_fail(call, "%c has %d axes and must have %d", "qkv"[i], d -> ndim,
                                  i ? k_ndim : q_ndim);
        if (!last_axis_dense(d))
            return ckpt_call_fail(call, "the last axis of %c is not dense; ckpt_contiguous it",
                                  "qkv"[i]);
    }
    if (!desc_same_shape(&call->in[1], &call->in[2]))
        return ckpt_call_fail(call, "k and v must have the same shape");
    return CKPT_OK;
}

void attention_like(struct ckpt_call *call, int out, int in)
{
    call_like(call, out, in);
    desc_dense_as(&call->out[out], &call->in[in]);
}

void attention_lse(struct ckpt_call *call, int out)
{
    const struct ckpt_desc *q = &call->in[0];
    struct ckpt_desc *lse = &call->out[out];
    *lse = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = q->ndim - 1};
    memcpy(lse->shape, q->shape, sizeof lse->shape);
    lse->shape[q->ndim - 3] = q->shape[q->ndim - 2];
    lse->shape[q->ndim - 2] = q->shape[q->ndim - 3];
    desc_dense(lse);
}

ckpt_tensor attention_rows_dense(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    return d.ndim < 1 || last_axis_dense(&d) ? x : ckpt_contiguous(t, x);
}

static int attention_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[0], *k = &call->in[1];
    if (q->ndim < 3)
        return ckpt_call_fail(call, "q must be [..., L, H, D]");
    if (attention_check(call, q->ndim, q->ndim))
        return CKPT_ESHAPE;
    for (int i = 0; i < q->ndim; i++)
        if (i != q->ndim - 3 && q->shape[i] != k->shape[i])
            return ckpt_call_fail(call, "axis %d of q has size %lld, that of k %lld", i,
                                  (long long)q->shape[i], (long long)k->shape[i]);
    attention_like(call, 0, 0);
    attention_lse(call, 1);
    struct attention_job job = attention_job_of(q, k);
    call->workspace = call->backend == CKPT_ON_CUDA ? cuda_attention_workspace(q, k)
                                                    : attention_forward_workspace(&job);
    return CKPT_OK;
}

static int attention_dx_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[0], *k = &call->in[1];
    for (int i = 0; i < 3; i++)
        attention_like(call, i, i);
    struct attention_job job = attention_job_of(q, k);
    call->workspace = call->backend == CKPT_ON_CUDA ? cuda_attention_dx_workspace(q, k)
                                                    : attention_backward_workspace(&job);
    return CKPT_OK;
}

static void attention_grad(struct ckpt_grad *grad)
{
    ckpt_tensor in[] = {grad->in[0],  grad->in[1],
                        grad->in[2],  grad->out[0],
                        grad->out[1], attention_rows_dense(grad->tape, grad->dout[0])};
    ckpt_tensor out[3] = {CKPT_NONE, CKPT_NONE, CKPT_NONE};
    ckpt_record(grad->tape, &op_attention_dx, 6, in, 3, out, grad->attr, sizeof(float));
    for (int i = 0; i < 3; i++)
        grad->din[i] = grad->need[i] ? out[i] : CKPT_NONE;
}

/* Queries times keys over all heads, times the width. */
static double score_macs(const struct ckpt_call *call)
{
    struct attention_job job = attention_job_of(&call->in[0], &call->in[1]);
    return (double)job.n_heads * (double)job.n_queries * (double)job.n_keys * (double)job.width;
}

static void attention_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2 * 2 * score_macs(call); /* q k^T and p v */
}

static void attention_dx_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2 * 5 * score_macs(call); /* q k^T again, dp, dq, dk, dv */
}

const struct ckpt_op_def op_attention = {.size = sizeof(struct ckpt_op_def),
                                         .name = "attention",
                                         .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT,
                                         .shape = attention_shape,
                                         .grad = attention_grad,
                                         .cost = attention_cost,
                                         .cpu = cpu_attention,
                                         .cuda = CUDA_KERNEL(cuda_attention)};

const struct ckpt_op_def op_attention_dx = {.size = sizeof(struct ckpt_op_def),
                                            .name = "attention_dx",
                                            .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT,
                                            .shape = attention_dx_shape,
                                            .cost = attention_dx_cost,
                                            .cpu = cpu_attention_dx,
                                            .cuda = CUDA_KERNEL(cuda_attention_dx)};

/*
 * Before a single key the probability is 1 whatever the score.  With a scale of 0 every kernel of
 * every device finds it so, and gradients of q and k that are exactly 0: p (dp - delta) would leave
 * what two sums of the same numbers differ by, and an optimizer without epsilon makes full steps of
 * that.  Cross attention knows its lengths at run time only: its kernels do the same by sample.
 */
static float scale_before(ckpt_tape *t, ckpt_tensor k, float scale)
{
    struct ckpt_desc d = ckpt_desc_of(t, k);
    return d.ndim >= 3 && d.shape[d.ndim - 3] == 1 ? 0.f : scale;
}

ckpt_tensor ckpt_attention(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v, float scale)
{
    ckpt_tensor out[2] = {CKPT_NONE, CKPT_NONE};
    scale = scale_before(t, k, scale);
    ckpt_record(t, &op_attention, 3, (ckpt_tensor[]){q, k, v}, 2, out, &scale, sizeof scale);
    return out[0];
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Cross attention on packed text: shapes, gradients and costs. */
#include "decompose.h"
#include "attention.h"
#include "attention_decompose.h"
#include "sequence.h"

static int check_lens(struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[0], *lens = &call->in[3];
    if (lens->dtype != CKPT_I32 || lens->ndim != 1 || lens->shape[0] != q->shape[0])
        return ckpt_call_fail(call, "lens must be i32 with one axis of size %lld, the samples of q",
                              (long long)q->shape[0]);
    return CKPT_OK;
}

static int cross_attention_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[0], *k = &call->in[1];
    if (attention_check(call, 4, 3) || check_lens(call))
        return CKPT_ESHAPE;
    if (q->shape[2] != k->shape[1] || q->shape[3] != k->shape[2])
        return ckpt_call_fail(call, "q has %lld heads of width %lld, k %lld of %lld",
                              (long long)q->shape[2], (long long)q->shape[3],
                              (long long)k->shape[1], (long long)k->shape[2]);
    call_like_memory(call, 0, 0);
    attention_lse(call);
    return CKPT_OK;
}

static int cross_attention_dx_shape(struct ckpt_call *call)
{
    for (int i = 0; i < 3; i++)
        call_like_memory(call, i, i);
    return CKPT_OK;
}

static void cross_attention_grad(struct ckpt_grad *grad)
{
    ckpt_tensor in[] = {grad->in[0],
                        grad->in[1],
                        grad->in[2],
                        grad->in[3],
                        grad->out[0],
                        grad->out[1],
                        attention_rows_dense(grad->tape, grad->dout[0])};
    ckpt_tensor out[3] = {CKPT_NONE, CKPT_NONE, CKPT_NONE};
    ckpt_record(grad->tape, &op_cross_attention_dx, 7, in, 3, out, grad->attr,
                sizeof(struct cross_attention_attr));
    for (int i = 0; i < 3; i++)
        grad->din[i] = grad->need[i] ? out[i] : CKPT_NONE;
}

static void decompose_cross_attention_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                         ckpt_tensor *out)
{
    const int first = ops_count(g->tape);
    ckpt_tensor y = cross_attention_decomposed(
        g->tape, ((const struct cross_attention_attr *)g->attr)->scale, in[0], in[1], in[2], in[3]);
    ops_pull(g->tape, first, y, in[6], 3, in, out);
}

OPS_DECOMPOSED(cross_attention_dx_grad, decompose_cross_attention_dx)

/* An upper bound: counts every packed row as used, each by the queries of its own sample. */
static double score_macs(const struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[0], *k = &call->in[1];
    return (double)desc_numel(k) * (double)q->shape[1];
}

static void cross_attention_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2 * 2 * score_macs(call);
}

static void cross_attention_dx_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2 * 5 * score_macs(call);
}

OPS_DEF(cross_attention, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT,
        .shape = cross_attention_shape, .grad = cross_attention_grad, .cost = cross_attention_cost);

OPS_DEF(cross_attention_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT,
        .shape = cross_attention_dx_shape, .grad = cross_attention_dx_grad,
        .cost = cross_attention_dx_cost);

/* Axes of q between samples and heads as one, for the op. */
static ckpt_tensor record_flat(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                               ckpt_tensor lens, float scale)
{
    const struct cross_attention_attr attr = {.scale = scale};
    const struct ckpt_desc d = ckpt_desc_of(t, q);
    const int n = d.ndim;
    ckpt_tensor out[2] = {CKPT_NONE, CKPT_NONE};
    if (n > 4)
        q = ckpt_reshape(t, q, 4, (int64_t[]){d.shape[0], -1, d.shape[n - 2], d.shape[n - 1]});
    ckpt_record(t, &op_cross_attention, 4, (ckpt_tensor[]){q, k, v, lens}, 2, out, &attr,
                sizeof attr);
    return n > 4 ? ckpt_reshape(t, out[0], n, d.shape) : out[0];
}

/* Each query reads the text alone, so the tokens of a rank are queries like others. */
ckpt_tensor ckpt_cross_attention(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                 ckpt_tensor lens, float scale)
{
    const int axes = ckpt_desc_of(t, q).ndim - 2;
    for (int i = 1; i < axes; i++)
        if (sequence_is_split(t, q, i)) {
            const struct tokens own = sequence_hide(t, q);
            ckpt_tensor y = record_flat(t, q, k, v, lens, scale);
            sequence_show(t, q, own);
            sequence_show(t, y, own);
            return y;
        }
    return record_flat(t, q, k, v, lens, scale);
}

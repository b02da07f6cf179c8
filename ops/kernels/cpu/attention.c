/* SPDX-License-Identifier: Apache-2.0 */
/* Attention kernels: locate the rows of each head. */
#include "cpu.h"
#include "attention.h"
#include "attention_fold.h"
#include "attr.h"
#include "kernels.h"

/* Element offset of entry `sequence` of the first n_lead axes of x, viewed as one axis. */
static int64_t sequence_offset(const struct ckpt_desc *x, int n_lead, int64_t sequence)
{
    int64_t offset = 0;
    for (int i = n_lead - 1; i >= 0; i--) {
        offset += sequence % x->shape[i] * x->stride[i];
        sequence /= x->shape[i];
    }
    return offset;
}

struct attention_rows attention_rows_at(const struct ckpt_view *x, int64_t sequence, int64_t head)
{
    const struct ckpt_desc *d = &x->desc;
    int64_t offset = sequence_offset(d, d->ndim - 3, sequence) + head * d->stride[d->ndim - 2];
    return (struct attention_rows){(char *)x->data + offset * ckpt_dtype_size(d->dtype), d->dtype,
                                   d->stride[d->ndim - 3]};
}

float *attention_lse_at(const struct ckpt_view *lse, int64_t sequence, int64_t head)
{
    const struct ckpt_desc *d = &lse->desc;
    return (float *)lse->data + sequence_offset(d, d->ndim - 2, sequence) +
           head * d->stride[d->ndim - 2];
}

struct attention_job attention_job_of(const struct ckpt_desc *q, const struct ckpt_desc *k)
{
    struct attention_job job = {
        .n_heads = q->shape[q->ndim - 2],
        .group = max_i64(1, q->shape[q->ndim - 2] / max_i64(1, k->shape[k->ndim - 2])),
        .n_queries = q->shape[q->ndim - 3],
        .n_keys = k->shape[k->ndim - 3],
        .width = q->shape[q->ndim - 1],
        .dtype = q->dtype};
    for (int i = 0; i < q->ndim - 3; i++)
        job.n_heads *= q->shape[i];
    return job;
}

/* Optional operand `which` of a call with `plain` required operands, or NULL if it is absent. */
static const struct ckpt_view *extra_of(const struct ckpt_kernel_args *a, int plain, int which)
{
    return a->n_in > plain && a->in[plain + which].data ? &a->in[plain + which] : NULL;
}

/* Stride of the axis `from_end` axes before the last; 0 where x broadcasts along it. */
static int64_t broadcast_step(const struct ckpt_desc *x, int from_end)
{
    const int axis = x->ndim - 1 - from_end;
    return axis < 0 || x->shape[axis] == 1 ? 0 : x->stride[axis];
}

static struct attention_bias bias_at(const struct ckpt_view *x, const struct ckpt_desc *q,
                                     int64_t sequence, int64_t head)
{
    struct attention_bias b = {x->data, x->desc.dtype, broadcast_step(&x->desc, 1),
                               broadcast_step(&x->desc, 0)};
    int64_t offset = head * broadcast_step(&x->desc, 2);
    for (int i = q->ndim - 4; i >= 0; i--) {
        offset += sequence % q->shape[i] * broadcast_step(&x->desc, q->ndim - 1 - i);
        sequence /= q->shape[i];
    }
    b.data = (const char *)x->data + offset * ckpt_dtype_size(b.dtype);
    return b;
}

/* Sets the optional inputs of a head: number of keys, first visible keys, bias. */
static void locate_extras(const struct ckpt_kernel_args *a, int plain, struct attention_head *h,
                          int64_t sequence, int64_t head)
{
    const int n_lead = a->in[0].desc.ndim - 3;
    const struct ckpt_view *bias = extra_of(a, plain, ATTENTION_BIAS);
    const struct ckpt_view *first = extra_of(a, plain, ATTENTION_FIRST);
    const struct ckpt_view *lengths = extra_of(a, plain, ATTENTION_LENGTHS);
    if (bias)
        h->bias = bias_at(bias, &a->in[0].desc, sequence, head);
    if (first) {
        h->first = (const int32_t *)first->data + sequence_offset(&first->desc, n_lead, sequence);
        h->first_step = first->desc.stride[n_lead];
    }
    if (lengths) {
        int64_t n =
            ((const int32_t *)lengths->data)[sequence_offset(&lengths->desc, n_lead, sequence)];
        h->n_keys = max_i64(0, min_i64(n, h->n_keys));
    }
}

/* in: q, k, v, in the backward pass also o, lse, d_o.  out: o, lse, or dq, dk, dv. */
static void locate_inputs(const struct ckpt_kernel_args *a, int plain, int64_t i,
                          struct attention_head *h, int64_t *sequence, int64_t *head,
                          int64_t *shared)
{
    const struct ckpt_desc *q = &a->in[0].desc, *k = &a->in[1].desc;
    const int64_t heads = q->shape[q->ndim - 2];
    *sequence = i / heads;
    *head = i % heads;
    *shared = *head / (heads / k->shape[k->ndim - 2]);
    h->n_queries = q->shape[q->ndim - 3];
    h->n_keys = h->n_rows = k->shape[k->ndim - 3];
    h->q = attention_rows_at(&a->in[0], *sequence, *head);
    h->k = attention_rows_at(&a->in[1], *sequence, *shared);
    h->v = attention_rows_at(&a->in[2], *sequence, *shared);
    locate_extras(a, plain, h, *sequence, *head);
}

static void locate_forward(const struct ckpt_kernel_args *a, int64_t i, struct attention_head *h)
{
    int64_t sequence, head, shared;
    locate_inputs(a, ATTENTION_PLAIN, i, h, &sequence, &head, &shared);
    h->o = attention_rows_at(&a->out[0], sequence, head);
    h->lse = attention_lse_at(&a->out[1], sequence, head);
}

static void locate_bias(const struct ckpt_kernel_args *a, int64_t i, struct attention_head *h)
{
    int64_t sequence, head, shared;
    locate_inputs(a, ATTENTION_DX_PLAIN, i, h, &sequence, &head, &shared);
    h->o = attention_rows_at(&a->in[ATTENTION_O], sequence, head);
    h->lse = attention_lse_at(&a->in[ATTENTION_LSE], sequence, head);
    h->d_o = attention_rows_at(&a->in[ATTENTION_D_O], sequence, head);
}

static void locate_backward(const struct ckpt_kernel_args *a, int64_t i, struct attention_head *h)
{
    int64_t sequence, head, shared;
    locate_inputs(a, ATTENTION_DX_PLAIN, i, h, &sequence, &head, &shared);
    h->o = attention_rows_at(&a->in[ATTENTION_O], sequence, head);
    h->lse = attention_lse_at(&a->in[ATTENTION_LSE], sequence, head);
    h->d_o = attention_rows_at(&a->in[ATTENTION_D_O], sequence, head);
    h->dq = attention_rows_at(&a->out[0], sequence, head);
    h->dk = attention_rows_at(&a->out[1], sequence, shared);
    h->dv = attention_rows_at(&a->out[2], sequence, shared);
}

static struct attention_job job_of(const struct ckpt_kernel_args *a, int plain)
{
    const struct attention_attr *attr = a->attr;
    struct attention_job job = attention_job_of(&a->in[0].desc, &a->in[1].desc);
    job.scale = attr->scale;
    job.causal = attr->causal;
    job.window = attr->window;
    job.hidden = attr->causal || extra_of(a, plain, ATTENTION_FIRST) ||
                 extra_of(a, plain, ATTENTION_LENGTHS);
    job.args = a;
    return job;
}

int cpu_attention(const struct ckpt_kernel_args *a)
{
    struct attention_job job = job_of(a, ATTENTION_PLAIN);
    job.locate = locate_forward;
    attention_forward(&job, a->workspace);
    return cpu_write_extra(a, CKPT_OK);
}

int cpu_attention_dx(const struct ckpt_kernel_args *a)
{
    struct attention_job job = job_of(a, ATTENTION_DX_PLAIN);
    job.locate = locate_backward;
    attention_backward(&job, a->workspace);
    return cpu_write_extra(a, CKPT_OK);
}

int cpu_attention_dbias(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *bias = extra_of(a, ATTENTION_DX_PLAIN, ATTENTION_BIAS);
    const struct attention_fold fold = attention_fold_of(&a->in[0].desc, &bias->desc);
    struct attention_job job = job_of(a, ATTENTION_DX_PLAIN);
    job.locate = locate_bias;
    attention_bias_backward(&job, &fold, a->out[0].data, a->workspace);
    return CKPT_OK;
}

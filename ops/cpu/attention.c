/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of self attention: where the rows of each head are. */
#include "cpu.h"
#include "attention.h"
#include "kernels.h"

/* Elements from the start of x to entry `sequence` of its first n_lead axes taken as one. */
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
    struct attention_job job = {.n_heads = q->shape[q->ndim - 2],
                                .n_queries = q->shape[q->ndim - 3],
                                .n_keys = k->shape[k->ndim - 3],
                                .width = q->shape[q->ndim - 1],
                                .dtype = q->dtype};
    for (int i = 0; i < q->ndim - 3; i++)
        job.n_heads *= q->shape[i];
    return job;
}

/* in: q, k, v, then going backward o, lse, d_o; out: o, lse or dq, dk, dv. */
static void locate_inputs(const struct ckpt_kernel_args *a, int64_t i, struct attention_head *h,
                          int64_t *sequence, int64_t *head)
{
    const struct ckpt_desc *q = &a->in[0].desc, *k = &a->in[1].desc;
    *sequence = i / q->shape[q->ndim - 2];
    *head = i % q->shape[q->ndim - 2];
    h->n_queries = q->shape[q->ndim - 3];
    h->n_keys = k->shape[k->ndim - 3];
    h->q = attention_rows_at(&a->in[0], *sequence, *head);
    h->k = attention_rows_at(&a->in[1], *sequence, *head);
    h->v = attention_rows_at(&a->in[2], *sequence, *head);
}

static void locate_forward(const struct ckpt_kernel_args *a, int64_t i, struct attention_head *h)
{
    int64_t sequence, head;
    locate_inputs(a, i, h, &sequence, &head);
    h->o = attention_rows_at(&a->out[0], sequence, head);
    h->lse = attention_lse_at(&a->out[1], sequence, head);
}

static void locate_backward(const struct ckpt_kernel_args *a, int64_t i, struct attention_head *h)
{
    int64_t sequence, head;
    locate_inputs(a, i, h, &sequence, &head);
    h->o = attention_rows_at(&a->in[3], sequence, head);
    h->lse = attention_lse_at(&a->in[4], sequence, head);
    h->d_o = attention_rows_at(&a->in[5], sequence, head);
    h->dq = attention_rows_at(&a->out[0], sequence, head);
    h->dk = attention_rows_at(&a->out[1], sequence, head);
    h->dv = attention_rows_at(&a->out[2], sequence, head);
}

static struct attention_job job_of(const struct ckpt_kernel_args *a)
{
    struct attention_job job = attention_job_of(&a->in[0].desc, &a->in[1].desc);
    job.scale = *(const float *)a->attr;
    job.args = a;
    return job;
}

int cpu_attention(const struct ckpt_kernel_args *a)
{
    struct attention_job job = job_of(a);
    job.locate = locate_forward;
    attention_forward(&job, a->workspace);
    return CKPT_OK;
}

int cpu_attention_dx(const struct ckpt_kernel_args *a)
{
    struct attention_job job = job_of(a);
    job.locate = locate_backward;
    attention_backward(&job, a->workspace);
    return CKPT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Cross attention kernels on packed text: locate the rows of each sample's heads. */
#include "cpu.h"
#include "attention.h"
#include "attr.h"
#include "kernels.h"

/* Operands common to the forward and the backward op. */
enum { Q, K, V, LENS };

struct attention_job cross_attention_job_of(const struct ckpt_desc *q, const struct ckpt_desc *k)
{
    return (struct attention_job){.n_heads = q->shape[0] * q->shape[2],
                                  .group = 1,
                                  .n_queries = q->shape[1],
                                  .n_keys = k->shape[0],
                                  .width = q->shape[3],
                                  .dtype = q->dtype};
}

/* Number of packed rows before sample b. */
static int64_t first_row(const struct ckpt_view *lens, int64_t b)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < b; i++)
        sum += ((const int32_t *)lens->data)[i * lens->desc.stride[0]];
    return sum;
}

/* Checks the lengths, which are data, before any row is accessed. */
static bool lens_fit(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *lens = &a->in[LENS];
    for (int64_t i = 0; i < lens->desc.shape[0]; i++)
        if (((const int32_t *)lens->data)[i * lens->desc.stride[0]] < 0)
            return false;
    return first_row(lens, lens->desc.shape[0]) <= a->in[K].desc.shape[0];
}

/* The rows of packed x from row `first` on. */
static struct attention_rows packed_rows(const struct ckpt_view *x, int64_t first, int64_t head)
{
    struct attention_rows r = attention_rows_at(x, 0, head);
    r.data = (char *)r.data + first * r.stride * ckpt_dtype_size(r.dtype);
    return r;
}

/* Returns the first packed row of the sample. */
static int64_t locate_inputs(const struct ckpt_kernel_args *a, int64_t b, int64_t head,
                             struct attention_head *h)
{
    int64_t first = first_row(&a->in[LENS], b);
    h->n_queries = a->in[Q].desc.shape[1];
    h->n_keys = h->n_rows = first_row(&a->in[LENS], b + 1) - first;
    h->q = attention_rows_at(&a->in[Q], b, head);
    h->k = packed_rows(&a->in[K], first, head);
    h->v = packed_rows(&a->in[V], first, head);
    return first;
}

static void locate_forward(const struct ckpt_kernel_args *a, int64_t i, struct attention_head *h)
{
    int64_t n_heads = a->in[Q].desc.shape[2], b = i / n_heads, head = i % n_heads;
    locate_inputs(a, b, head, h);
    h->o = attention_rows_at(&a->out[0], b, head);
    h->lse = attention_lse_at(&a->out[1], b, head);
}

static void locate_backward(const struct ckpt_kernel_args *a, int64_t i, struct attention_head *h)
{
    int64_t n_heads = a->in[Q].desc.shape[2], b = i / n_heads, head = i % n_heads;
    int64_t first = locate_inputs(a, b, head, h);
    h->o = attention_rows_at(&a->in[4], b, head);
    h->lse = attention_lse_at(&a->in[5], b, head);
    h->d_o = attention_rows_at(&a->in[6], b, head);
    h->dq = attention_rows_at(&a->out[0], b, head);
    h->dk = packed_rows(&a->out[1], first, head);
    h->dv = packed_rows(&a->out[2], first, head);
}

static struct attention_job job_of(const struct ckpt_kernel_args *a)
{
    struct attention_job job = cross_attention_job_of(&a->in[Q].desc, &a->in[K].desc);
    job.scale = *(const float *)a->attr;
    job.args = a;
    return job;
}

int cpu_cross_attention(const struct ckpt_kernel_args *a)
{
    struct attention_job job = job_of(a);
    if (!lens_fit(a))
        return CKPT_EINVAL;
    job.locate = locate_forward;
    attention_forward(&job, a->workspace);
    return cpu_write_extra(a, CKPT_OK);
}

/* Sets gradients of rows that belong to no sample to 0. */
static void zero_rest(const struct ckpt_view *x, int64_t first)
{
    for (int64_t head = 0; head < x->desc.shape[1]; head++)
        for (int64_t i = first; i < x->desc.shape[0]; i++)
            memset(packed_rows(x, i, head).data, 0,
                   (size_t)(x->desc.shape[2] * ckpt_dtype_size(x->desc.dtype)));
}

int cpu_cross_attention_dx(const struct ckpt_kernel_args *a)
{
    struct attention_job job = job_of(a);
    if (!lens_fit(a))
        return CKPT_EINVAL;
    job.locate = locate_backward;
    attention_backward(&job, a->workspace);
    int64_t used = first_row(&a->in[LENS], a->in[LENS].desc.shape[0]);
    zero_rest(&a->out[1], used);
    zero_rest(&a->out[2], used);
    return cpu_write_extra(a, CKPT_OK);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by libckpt's kernels: converts operands to kernel arguments, and selects the kernel. */
#include <cmath>
#include "kernels/cuda/attention/attention_args.cuh"
#include "kernels/cuda/attention/attention_core.h"
#include "kernels/cuda/attention/attention_workspace.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/largest_find.cuh"

/* Merges leading axes that are contiguous with the next one in all operands. */
static void merge_leads(struct attention_args *x)
{
    struct attention_operand *all[] = {
        &x->q,  &x->k,  &x->v,  &x->o,          &x->lse,          &x->d_o,
        &x->dq, &x->dk, &x->dv, &x->mask.first, &x->mask.lengths, &x->mask.bias};
    for (int i = x->n_lead - 2; i >= 0; i--) {
        bool one = true;
        for (const struct attention_operand *o : all)
            one = one && o->lead[i] == o->lead[i + 1] * x->lead[i + 1];
        if (!one)
            continue;
        x->lead[i + 1] *= x->lead[i];
        x->n_lead--;
        for (int to = i; to < x->n_lead; to++) {
            x->lead[to] = x->lead[to + 1];
            for (struct attention_operand *o : all)
                o->lead[to] = o->lead[to + 1];
        }
    }
}

/* Converts an operand [leading axes..., rows, heads, width].  Strides of axes of size 1 are
 * undefined and become 0. */
static struct attention_operand operand_of(const struct ckpt_view *v, int n_lead)
{
    const struct ckpt_desc *d = &v->desc;
    struct attention_operand x = {};
    int64_t any = d->shape[n_lead + 2];
    x.data = v->data;
    x.f32 = d->dtype == CKPT_F32;
    x.row = d->shape[n_lead] == 1 ? 0 : d->stride[n_lead];
    x.head = d->shape[n_lead + 1] == 1 ? 0 : d->stride[n_lead + 1];
    any |= x.row | x.head;
    for (int i = 0, kept = 0; i < n_lead; i++)
        if (d->shape[i] != 1)
            any |= x.lead[kept++] = d->stride[i];
    x.vectors = !x.f32 && any % 8 == 0 && aligned16(v->data);
    return x;
}

/* Converts lse, [leading axes..., heads, rows]. */
static struct attention_operand lse_of(const struct ckpt_view *v, int n_lead)
{
    const struct ckpt_desc *d = &v->desc;
    struct attention_operand x = {};
    x.data = v->data;
    x.f32 = true;
    x.head = d->stride[n_lead];
    x.row = d->stride[n_lead + 1];
    for (int i = 0, kept = 0; i < n_lead; i++)
        if (d->shape[i] != 1)
            x.lead[kept++] = d->stride[i];
    return x;
}

/* The optional operand `which` of a call with `plain` mandatory ones, or NULL. */
static const struct ckpt_view *extra_of(const struct ckpt_kernel_args *a, int plain, int which)
{
    return a->n_in > plain && a->in[plain + which].data ? &a->in[plain + which] : NULL;
}

/* Converts first [leading axes..., queries] or lengths [leading axes...]. */
static struct attention_operand places_of(const struct ckpt_view *v, int n_lead)
{
    struct attention_operand x = {};
    if (!v)
        return x;
    x.data = v->data;
    x.row = v->desc.ndim > n_lead ? v->desc.stride[n_lead] : 0;
    for (int i = 0, kept = 0; i < n_lead; i++)
        if (v->desc.shape[i] != 1)
            x.lead[kept++] = v->desc.stride[i];
    return x;
}

/* The stride of an axis counted from the last one; 0 if x is broadcast along it. */
static int64_t broadcast_step(const struct ckpt_desc *x, int from_end)
{
    const int axis = x->ndim - 1 - from_end;
    return axis < 0 || x->shape[axis] == 1 ? 0 : x->stride[axis];
}

static void add_bias(struct attention_mask *m, const struct ckpt_view *v, const struct ckpt_desc *q)
{
    if (!v)
        return;
    m->bias.data = v->data;
    m->bias.f32 = v->desc.dtype == CKPT_F32;
    m->bias.head = broadcast_step(&v->desc, 2);
    m->bias.row = broadcast_step(&v->desc, 1);
    m->bias_column = broadcast_step(&v->desc, 0);
    for (int i = 0, kept = 0; i < q->ndim - 3; i++)
        if (q->shape[i] != 1)
            m->bias.lead[kept++] = broadcast_step(&v->desc, q->ndim - 1 - i);
}

/* Sets the mask of self attention, which has `plain` mandatory operands. */
static void add_mask(struct attention_args *x, const struct ckpt_kernel_args *a, int plain)
{
    const struct attention_attr *attr = (const struct attention_attr *)a->attr;
    const struct ckpt_desc *q = &a->in[0].desc, *k = &a->in[1].desc;
    struct attention_mask *m = &x->mask;
    m->causal = attr->causal;
    m->window = attr->window;
    m->first = places_of(extra_of(a, plain, ATTENTION_FIRST), q->ndim - 3);
    m->lengths = places_of(extra_of(a, plain, ATTENTION_LENGTHS), q->ndim - 3);
    m->hidden = m->causal || m->first.data || m->lengths.data;
    add_bias(m, extra_of(a, plain, ATTENTION_BIAS), q);
    x->n_shared = k->shape[k->ndim - 2];
    x->group = max_i64(1, x->n_heads / max_i64(1, x->n_shared));
}

/* Packed rows [rows, heads, width] are common to all sequences. */
static struct attention_operand keys_of(const struct ckpt_view *v, int n_lead, bool packed)
{
    return operand_of(v, packed ? 0 : n_lead);
}

/* Sets the arguments common to forward and backward; lens is NULL for self attention. */
static struct attention_args args_of(const struct ckpt_kernel_args *a,
                                     const struct cuda_attention_sizes *s,
                                     const struct ckpt_view *lens)
{
    const struct ckpt_desc *q = &a->in[0].desc;
    struct attention_args x = {};
    int n_lead = q->ndim - 3;
    x.q = operand_of(&a->in[0], n_lead);
    x.k = keys_of(&a->in[1], n_lead, s->packed);
    x.v = keys_of(&a->in[2], n_lead, s->packed);
    for (int i = 0; i < n_lead; i++)
        if (q->shape[i] != 1)
            x.lead[x.n_lead++] = q->shape[i];
    x.n_sequences = s->n_sequences;
    x.n_heads = s->n_heads;
    x.n_queries = s->n_queries;
    x.n_keys = s->n_keys;
    x.lens = lens ? (const int32_t *)lens->data : NULL;
    x.lens_stride = lens ? lens->desc.stride[0] : 0;
    x.width = (int)s->width;
    x.scale = *(const float *)a->attr; /* also the first member of struct attention_attr */
    x.group = 1;
    x.n_shared = s->n_heads;
    return x;
}

static struct attention_args forward_args(const struct ckpt_kernel_args *a,
                                          const struct cuda_attention_sizes *s)
{
    struct attention_args x = args_of(a, s, s->packed ? &a->in[3] : NULL);
    int n_lead = a->in[0].desc.ndim - 3;
    x.o = operand_of(&a->out[0], n_lead);
    x.lse = lse_of(&a->out[1], n_lead);
    if (!s->packed)
        add_mask(&x, a, ATTENTION_PLAIN);
    merge_leads(&x);
    return x;
}

/* Can the tensor core kernels compute it?  Greater widths and masks of short sequences use the
 * plain kernels. */
static bool on_tensor_cores(const struct attention_args *x, const struct cuda_attention_sizes *s)
{
    return cuda_attention_on_tensor_cores(s) &&
           (!attention_is_masked(*x) ||
            (!cuda_attention_is_short(s) && s->n_queries <= INT32_MAX && s->n_keys <= INT32_MAX));
}

static void find_largest_of(const struct ckpt_kernel_args *a, struct attention_args &x)
{
    for (int i = 0; i < ATTENTION_RESULTS; i++)
        if (x.most[i])
            largest_find(a->out[i], x.most[i], stream_of(a));
}

static void begin_largest(const struct ckpt_kernel_args *a, struct attention_args &x)
{
    for (int i = 0; i < ATTENTION_RESULTS; i++)
        x.most[i] = largest_begin(a, i);
}

int cuda_attention_find_largest(const struct ckpt_kernel_args *a)
{
    struct attention_args x = {};
    begin_largest(a, x);
    find_largest_of(a, x);
    return launched();
}

static int forward(const struct ckpt_kernel_args *a, bool packed)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(&a->in[0].desc, &a->in[1].desc, packed);
    struct attention_args x = forward_args(a, &s);
    begin_largest(a, x);
    if (!on_tensor_cores(&x, &s)) {
        attention_plain_forward(x, stream_of(a));
        find_largest_of(a, x);
    } else if (cuda_attention_is_short(&s)) {
        attention_short_forward(x, stream_of(a));
    } else {
        attention_tiles_forward(x, stream_of(a));
    }
    return launched();
}

/* Partitions the scratch of the tensor core kernels and the queries into chunks for dk and dv.
 * Chunks are whole steps of these kernels, so only the last one may end within a step. */
static void partition_work(struct attention_args *x, const struct cuda_attention_sizes *s,
                           void *workspace)
{
    int64_t bytes = cuda_attention_statistics_bytes(s);
    x->statistics = (float2 *)workspace;
    if (cuda_attention_partial_bytes(s))
        x->partial = (float *)((char *)workspace + bytes);
    x->n_chunks = cuda_attention_chunks(s);
    if (attention_cluster_takes(*x)) {
        attention_cluster_divide(*x);
        return;
    }
    if (attention_stationary_dx_takes(*x))
        x->n_chunks = attention_onepass_key_chunks(*x);
    x->chunk = round_up(attention_tile_count(s->n_queries, x->n_chunks), CUDA_ATTENTION_KEYS);
}

/* The number of chunks of queries for the kernels of attention_onepass.cuh.  Blocks of causal masks
 * whose heads share keys see half of their tiles on average.  The estimated time is the maximum of
 * the longest block and of the average share of a multiprocessor, in units of a tile of queries.  A
 * block's start takes three units; adding the sums of chunks moves as many bytes as a tile does per
 * 3,800 keys.  Blocks of fewer than 28 tiles would wait for their turns. */
static int64_t onepass_chunks(const struct attention_args &x, int64_t blocks, int64_t tiles,
                              int64_t limit)
{
    const double rows = (double)(x.n_sequences * x.n_shared * x.n_keys);
    double best_time = HUGE_VAL;
    int64_t best = 1;
    if (!x.mask.causal || x.mask.window || x.group == 1)
        return attention_parts(blocks, tiles, 1, limit);
    for (int64_t parts = 1; parts <= limit && parts <= tiles; parts++) {
        const int64_t each = attention_tile_count(tiles, parts) * x.group;
        const double longest = (double)each + 3;
        const double average = (double)(tiles * x.group) / 2 + 3 * (double)parts;
        const double share = (double)blocks * average / 132;
        const double sums = parts > 1 ? 2 + (double)parts * rows / 3800 : 0;
        const double time = (longest > share ? longest : share) + sums;
        if (time < best_time && (parts == 1 || each >= 28)) {
            best_time = time;
            best = parts;
        }
    }
    return best;
}

/* The same partition for the kernels of attention_onepass.cuh. */
static void partition_onepass(struct attention_args *x, const struct cuda_attention_sizes *s,
                              void *workspace)
{
    const int64_t tiles = attention_tile_count(s->n_queries, CUDA_ATTENTION_ONEPASS_QUERIES);
    const int64_t blocks =
        s->n_sequences * x->n_shared * attention_tile_count(s->n_keys, CUDA_ATTENTION_ONEPASS_KEYS);
    char *at = (char *)workspace;
    x->statistics = (float2 *)at;
    x->sums = (float *)(at += cuda_attention_onepass_statistics_bytes(s));
    at += cuda_attention_onepass_sums_bytes(s);
    x->n_chunks = onepass_chunks(*x, blocks, tiles, cuda_attention_chunks(s));
    x->chunk = attention_tile_count(tiles, x->n_chunks) * CUDA_ATTENTION_ONEPASS_QUERIES;
    x->partial = x->n_chunks > 1 ? (float *)at : NULL;
    x->dq_order = (int *)(at + cuda_attention_partial_bytes(s));
}

static struct attention_args backward_args(const struct ckpt_kernel_args *a,
                                           const struct cuda_attention_sizes *s)
{
    const struct ckpt_view *rest = a->in + (s->packed ? 4 : 3); /* o, lse, d_o */
    struct attention_args x = args_of(a, s, s->packed ? &a->in[3] : NULL);
    int n_lead = a->in[0].desc.ndim - 3;
    x.o = operand_of(&rest[0], n_lead);
    x.lse = lse_of(&rest[1], n_lead);
    x.d_o = operand_of(&rest[2], n_lead);
    x.dq = operand_of(&a->out[0], n_lead);
    x.dk = keys_of(&a->out[1], n_lead, s->packed);
    x.dv = keys_of(&a->out[2], n_lead, s->packed);
    if (!s->packed)
        add_mask(&x, a, ATTENTION_DX_PLAIN);
    merge_leads(&x);
    return x;
}

static int backward(const struct ckpt_kernel_args *a, bool packed)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(&a->in[0].desc, &a->in[1].desc, packed);
    struct attention_args x = backward_args(a, &s);
    const bool tensor_cores = on_tensor_cores(&x, &s), short_ones = cuda_attention_is_short(&s);
    begin_largest(a, x);
    if (tensor_cores && !short_ones && attention_onepass_takes(x)) {
        struct attention_args onepass = x;
        partition_onepass(&onepass, &s, a->workspace);
        if (attention_onepass_backward(onepass, stream_of(a)))
            return launched();
    }
    partition_work(&x, &s, a->workspace);
    if (!tensor_cores) {
        attention_plain_backward(x, stream_of(a));
        find_largest_of(a, x);
    } else if (short_ones) {
        attention_short_backward(x, stream_of(a));
    } else {
        attention_tiles_backward(x, stream_of(a));
    }
    return launched();
}

bool cuda_attention_own_is_fast(const struct ckpt_kernel_args *a)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(&a->in[0].desc, &a->in[1].desc, false);
    return attention_pingpong_is_fast(forward_args(a, &s));
}

bool cuda_attention_own_dx_is_fast(const struct ckpt_kernel_args *a)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(&a->in[0].desc, &a->in[1].desc, false);
    return attention_onepass_is_fast(backward_args(a, &s));
}

int cuda_attention_own(const struct ckpt_kernel_args *a)
{
    return forward(a, false);
}

int cuda_attention_own_dx(const struct ckpt_kernel_args *a)
{
    return backward(a, false);
}

int cuda_attention_dbias(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *bias = extra_of(a, ATTENTION_DX_PLAIN, ATTENTION_BIAS);
    struct cuda_attention_sizes s = cuda_attention_sizes_of(&a->in[0].desc, &a->in[1].desc, false);
    struct attention_args x = args_of(a, &s, NULL);
    int n_lead = a->in[0].desc.ndim - 3;
    x.o = operand_of(&a->in[ATTENTION_O], n_lead);
    x.lse = lse_of(&a->in[ATTENTION_LSE], n_lead);
    x.d_o = operand_of(&a->in[ATTENTION_D_O], n_lead);
    add_mask(&x, a, ATTENTION_DX_PLAIN);
    const struct attention_fold fold = attention_fold_of(&a->in[0].desc, &bias->desc);
    float *out = static_cast<float *>(a->out[0].data);
    if (on_tensor_cores(&x, &s))
        attention_tiles_bias(x, fold, out, stream_of(a));
    else
        attention_plain_bias(x, fold, out, stream_of(a));
    return launched();
}

int cuda_cross_attention_own(const struct ckpt_kernel_args *a)
{
    return forward(a, true);
}

int cuda_cross_attention_own_dx(const struct ckpt_kernel_args *a)
{
    return backward(a, true);
}

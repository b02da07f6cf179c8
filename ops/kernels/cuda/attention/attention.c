/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on CUDA.  Long bf16 self attention runs in cuDNN; heads too wide for cuDNN use products
 * of cuBLASLt.  Short sequences, fp32, packed text, calls that the libraries refuse, and calls for
 * which they are not faster use libckpt's kernels.  The choice follows from the device, the shapes,
 * the strides, and cuDNN's answer for them, so it is the same in every step.
 */
#include <math.h>
#include <string.h>
#include "attr.h"
#include "kernels/cuda/attention/attention_core.h"
#include "kernels/cuda/attention/attention_wide.h"
#include "kernels/cuda/attention/attention_workspace.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/kernels.h"

enum {
    GRID = 65535, /* most blocks along the second and third axes of a grid */
    LAUNCHES = 64 /* most graph launches per call; for more, libckpt's kernels are better */
};

/*
 * The operands, in the order of enum cudnn_attention_tensor, and the sequences: leading axes,
 * merged where the strides of all operands allow it.  The largest one is the batch axis of the
 * graph; the others are looped over, with one launch each.
 */
struct attention_call {
    const struct attention_attr *attr;
    bool extras; /* has a bias, documents or lengths */
    int n;       /* operands */
    const struct ckpt_view *view[CUDNN_ATTENTION_OPERANDS];
    int n_axes, batch;               /* batch: the index of an axis, or -1 */
    struct cuda_attention_part part; /* sequences of the batch axis, and heads, of a launch */
    int64_t size[CKPT_MAX_DIMS];
    int64_t step[CKPT_MAX_DIMS][CUDNN_ATTENTION_OPERANDS]; /* in elements */
};

/* ---- the sequences --------------------------------------------------------------------------- */

/* Appends an axis, or merges it into the previous one. */
static void add_axis(struct attention_call *c, int64_t size, const int64_t *step)
{
    int last = c->n_axes - 1;
    bool merge = last >= 0;
    for (int i = 0; merge && i < c->n; i++)
        merge = c->step[last][i] == step[i] * size;
    if (!merge)
        last = c->n_axes++;
    c->size[last] = merge ? c->size[last] * size : size;
    memcpy(c->step[last], step, sizeof c->step[last]);
}

static void find_sequences(struct attention_call *c)
{
    const struct ckpt_desc *q = &c->view[CUDNN_ATTENTION_Q]->desc;
    c->n_axes = 0;
    c->batch = -1;
    for (int axis = 0; axis < q->ndim - 3; axis++) {
        int64_t step[CUDNN_ATTENTION_OPERANDS] = {0};
        for (int i = 0; i < c->n; i++)
            step[i] = c->view[i]->desc.stride[axis];
        if (q->shape[axis] != 1)
            add_axis(c, q->shape[axis], step);
    }
    for (int axis = 0; axis < c->n_axes; axis++)
        if (c->batch < 0 || c->size[axis] > c->size[c->batch])
            c->batch = axis;
    c->part =
        (struct cuda_attention_part){c->batch < 0 ? 1 : c->size[c->batch], q->shape[q->ndim - 2]};
}

/* The parts into which the axis is divided for launches. */
static int64_t axis_parts(const struct attention_call *c, int axis)
{
    return axis == c->batch ? c->size[axis] / c->part.sequences : c->size[axis];
}

static int64_t head_parts(const struct attention_call *c)
{
    const struct ckpt_desc *q = &c->view[CUDNN_ATTENTION_Q]->desc;
    return q->shape[q->ndim - 2] / c->part.heads;
}

/* The number of graph launches. */
static int64_t launches(const struct attention_call *c)
{
    int64_t n = head_parts(c);
    for (int axis = 0; axis < c->n_axes; axis++)
        n *= axis_parts(c, axis);
    return n;
}

/* The start of operand i in launch number `launch`. */
static void *operand_at(const struct attention_call *c, int i, int64_t launch)
{
    const struct ckpt_view *v = c->view[i];
    const int heads = v->desc.ndim - 2; /* their axis, also that of lse */
    const int64_t parts = head_parts(c);
    int64_t offset = launch % parts * (v->desc.shape[heads] / parts) * v->desc.stride[heads];
    launch /= parts;
    for (int axis = c->n_axes - 1; axis >= 0; axis--) {
        const int64_t n = axis == c->batch ? c->part.sequences : 1;
        offset += launch % axis_parts(c, axis) * n * c->step[axis][i];
        launch /= axis_parts(c, axis);
    }
    return (char *)v->data + offset * ckpt_dtype_size(v->desc.dtype);
}

/* ---- does cuDNN support it? ------------------------------------------------------------------ */

/*
 * Before 9.6 the caller had to clear the sums of dq. 9.10.0 and 9.10.1 are broken.  Up to 9.15.0
 * the backward pass requires a mask for keys past the last full tile of 128, which our graph lacks.
 */
static bool version_is_good(const struct attention_call *c)
{
    const struct ckpt_desc *k = &c->view[CUDNN_ATTENTION_K]->desc;
    const size_t version = cudnnGetVersion();
    if (version < 90600 || version == 91000 || version == 91001)
        return false;
    return version > 91500 || c->n != CUDNN_ATTENTION_OPERANDS || k->shape[k->ndim - 3] % 128 == 0;
}

/* Rows and strides must be multiples of 16 bytes; no axis may be broadcast. */
static bool rows_fit(const struct ckpt_view *v)
{
    const struct ckpt_desc *d = &v->desc;
    if (d->dtype != CKPT_BF16 || d->stride[d->ndim - 1] != 1 || (uintptr_t)v->data % 16)
        return false;
    for (int i = 0; i < d->ndim - 1; i++)
        if (d->shape[i] != 1 && (d->stride[i] % 8 || d->stride[i] <= 0))
            return false;
    return true;
}

static bool lse_fits(const struct ckpt_view *v)
{
    const struct ckpt_desc *d = &v->desc;
    return d->stride[d->ndim - 1] == 1 || d->shape[d->ndim - 1] == 1;
}

/* cuDNN's causal mask needs as many queries as keys; lengths, documents and biases are not
 * supported. */
static bool mask_fits(const struct attention_call *c)
{
    const struct ckpt_desc *q = &c->view[CUDNN_ATTENTION_Q]->desc;
    const struct ckpt_desc *k = &c->view[CUDNN_ATTENTION_K]->desc;
    return !c->extras && (!c->attr->causal || q->shape[q->ndim - 3] == k->shape[k->ndim - 3]);
}

/* Also sets the sequences of c. */
static bool worth_cudnn(struct attention_call *c)
{
    const struct ckpt_desc *q = &c->view[CUDNN_ATTENTION_Q]->desc;
    const struct ckpt_desc *k = &c->view[CUDNN_ATTENTION_K]->desc;
    if (!cuda_attention_in_cudnn(q, k) || desc_numel(q) == 0 || desc_numel(k) == 0 ||
        !version_is_good(c) || !mask_fits(c))
        return false;
    for (int i = 0; i < c->n; i++)
        if (!(i == CUDNN_ATTENTION_LSE ? lse_fits(c->view[i]) : rows_fit(c->view[i])))
            return false;
    find_sequences(c);
    return q->shape[q->ndim - 2] <= GRID && c->part.sequences <= GRID && launches(c) <= LAUNCHES;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The stride of an axis of size 1 is undefined.  It is set to that of a dense operand, so that
 * equal calls have equal specs. */
static int64_t stride_of(const struct ckpt_desc *d, int axis, int64_t dense)
{
    return d->shape[axis] == 1 ? dense : d->stride[axis];
}

static void fill_strides(const struct attention_call *c, int i, struct cudnn_attention_spec *s)
{
    const struct ckpt_desc *d = &c->view[i]->desc;
    const bool lse = i == CUDNN_ATTENTION_LSE;
    const int64_t width = lse ? 1 : s->width, n_rows = d->shape[lse ? d->ndim - 1 : d->ndim - 3];
    s->stride[i].head = stride_of(d, d->ndim - 2, lse ? n_rows : width);
    const int64_t heads = d->shape[d->ndim - 2];
    s->stride[i].row = lse ? 1 : stride_of(d, d->ndim - 3, heads * width);
    s->stride[i].batch = c->batch < 0 ? n_rows * heads * width : c->step[c->batch][i];
}

static struct cudnn_attention_spec spec_of(const struct attention_call *c)
{
    const struct ckpt_desc *q = &c->view[CUDNN_ATTENTION_Q]->desc;
    const struct ckpt_desc *k = &c->view[CUDNN_ATTENTION_K]->desc;
    struct cudnn_attention_spec s = {.batch = c->part.sequences,
                                     .heads = c->part.heads,
                                     .shared = k->shape[k->ndim - 2] / head_parts(c),
                                     .queries = q->shape[q->ndim - 3],
                                     .keys = k->shape[k->ndim - 3],
                                     .width = q->shape[q->ndim - 1],
                                     .causal = c->attr->causal,
                                     .window = c->attr->window};
    for (int i = 0; i < c->n; i++)
        fill_strides(c, i, &s);
    return s;
}

/* The tensors of a graph and their addresses. */
struct binding {
    int n;
    int64_t uid[CUDNN_ATTENTION_TENSORS];
    void *at[CUDNN_ATTENTION_TENSORS];
};

static void bind(struct binding *b, int tensor, void *at)
{
    b->uid[b->n] = tensor + 1;
    b->at[b->n++] = at;
}

/* Runs the graph on all sequences; `scratch` has all bindings but the operands. */
static int run(const struct ckpt_kernel_args *a, const struct attention_call *c,
               const struct cudnn_plan *plan, const struct binding *scratch, void *workspace)
{
    int rc = CKPT_OK;
    for (int64_t launch = 0; !rc && launch < launches(c); launch++) {
        struct binding b = *scratch;
        for (int i = 0; i < c->n; i++)
            bind(&b, i, operand_at(c, i, launch));
        rc = cudnn_plan_run(a->device, a->stream, plan, b.n, b.uid, b.at, workspace);
    }
    return rc;
}

static struct cuda_attention_sizes sizes_of(const struct attention_call *c)
{
    return cuda_attention_sizes_of(&c->view[CUDNN_ATTENTION_Q]->desc,
                                   &c->view[CUDNN_ATTENTION_K]->desc, false);
}

/* *plan: the graph for the sequences of one launch, or NULL if cuDNN does not support the call. */
static int find_plan(const struct ckpt_kernel_args *a,
                     void (*describe)(struct cudnn_graph *g, const void *spec),
                     struct attention_call *c, const struct cudnn_plan **plan)
{
    *plan = NULL;
    if (!worth_cudnn(c))
        return CKPT_OK;
    const struct cuda_attention_sizes sizes = sizes_of(c);
    const bool ordered = describe == cudnn_attention_ordered;
    int64_t workspace = CUDA_ATTENTION_CUDNN;
    if (ordered)
        c->part = cuda_attention_ordered_part(&sizes, c->part.sequences);
    if (describe != cudnn_attention_forward)
        workspace += cuda_attention_shared_bytes(&sizes, c->part.sequences * c->part.heads);
    if (ordered)
        workspace += c->part.sequences * c->part.heads * cuda_attention_ordered_bytes(&sizes);
    const struct cudnn_attention_spec spec = spec_of(c);
    const struct cudnn_recipe recipe = {
        .describe = describe,
        .spec = &spec,
        .spec_size = sizeof spec,
        .limits = {.workspace = workspace, .deterministic = ordered}};
    int rc = cudnn_plan_get(a->device, a->stream, &recipe, plan);
    if (rc || !cudnn_plan_accepted(*plan))
        *plan = NULL;
    return rc;
}

/* Allocates bytes from the scratch. */
static void *allocate(char **at, int64_t bytes)
{
    char *taken = *at;
    *at += bytes;
    return taken;
}

static char *scratch_begin(const struct ckpt_kernel_args *a)
{
    return (char *)a->workspace + -(uintptr_t)a->workspace % CUDA_ATTENTION_CUDNN_ALIGN;
}

/* The kernels of wide heads support only attention without masks, biases and groups. */
static bool is_plain(const struct attention_call *c)
{
    const struct ckpt_desc *q = &c->view[CUDNN_ATTENTION_Q]->desc;
    const struct ckpt_desc *k = &c->view[CUDNN_ATTENTION_K]->desc;
    return !c->extras && !c->attr->causal && q->shape[q->ndim - 2] == k->shape[k->ndim - 2];
}

static int without_cudnn(const struct ckpt_kernel_args *a, const struct attention_call *c)
{
    if (!is_plain(c) || !cuda_attention_wide_takes(a))
        return cuda_attention_own(a);
    int rc = cuda_attention_wide(a);
    return rc ? rc : cuda_attention_find_largest(a);
}

static int without_cudnn_dx(const struct ckpt_kernel_args *a, const struct attention_call *c)
{
    if (!is_plain(c) || !cuda_attention_wide_takes(a))
        return cuda_attention_own_dx(a);
    int rc = cuda_attention_wide_dx(a);
    return rc ? rc : cuda_attention_find_largest(a);
}

/* The scalars of both graphs. */
struct scalars {
    float scale, one, hidden;
    int32_t window;
};

static void bind_scalars(struct binding *b, const struct attention_call *c, struct scalars *s)
{
    *s = (struct scalars){c->attr->scale, 1, -INFINITY, (int32_t)c->attr->window};
    bind(b, CUDNN_ATTENTION_SCALE, &s->scale);
    if (c->attr->causal)
        bind(b, CUDNN_ATTENTION_HIDDEN, &s->hidden);
    if (c->attr->window)
        bind(b, CUDNN_ATTENTION_WINDOW, &s->window);
}

int cuda_attention(const struct ckpt_kernel_args *a)
{
    struct attention_call c = {.attr = a->attr,
                               .extras = a->n_in > ATTENTION_PLAIN,
                               .n = CUDNN_ATTENTION_D_O,
                               .view = {&a->in[0], &a->in[1], &a->in[2], &a->out[0], &a->out[1]}};
    const struct cudnn_plan *plan;
    struct scalars scalars;
    struct binding b = {.n = 0};
    if (cuda_attention_own_is_fast(a))
        return cuda_attention_own(a);
    int rc = find_plan(a, cudnn_attention_forward, &c, &plan);
    if (rc || !plan)
        return rc ? rc : without_cudnn(a, &c);
    bind_scalars(&b, &c, &scalars);
    rc = run(a, &c, plan, &b, scratch_begin(a));
    return rc ? rc : cuda_attention_find_largest(a);
}

/* cuDNN's sums of dq have no fixed order, except by a graph that needs much scratch. */
int cuda_attention_dx(const struct ckpt_kernel_args *a)
{
    struct attention_call c = {.attr = a->attr,
                               .extras = a->n_in > ATTENTION_DX_PLAIN,
                               .n = CUDNN_ATTENTION_OPERANDS,
                               .view = {&a->in[0], &a->in[1], &a->in[2], &a->in[3], &a->in[4],
                                        &a->in[5], &a->out[0], &a->out[1], &a->out[2]}};
    const struct cuda_attention_sizes s = sizes_of(&c);
    const bool unordered = cuda_libs_unordered(a->device);
    const struct cudnn_plan *plan = NULL;
    struct scalars scalars;
    struct binding b = {.n = 0};
    int rc = CKPT_OK;
    if (unordered ? !cuda_attention_own_dx_is_fast(a) : cuda_attention_in_ordered(&s))
        rc =
            find_plan(a, unordered ? cudnn_attention_backward : cudnn_attention_ordered, &c, &plan);
    if (rc || !plan)
        return rc ? rc : without_cudnn_dx(a, &c);
    const int64_t n_rows = c.part.sequences * c.part.heads * s.n_queries;
    char *scratch = scratch_begin(a);
    bind_scalars(&b, &c, &scalars);
    bind(&b, CUDNN_ATTENTION_ONE, &scalars.one);
    if (unordered)
        bind(&b, CUDNN_ATTENTION_DQ_SUM,
             allocate(&scratch, cuda_attention_dq_bytes(n_rows, s.width)));
    bind(&b, CUDNN_ATTENTION_DELTA, allocate(&scratch, cuda_attention_delta_bytes(n_rows)));
    rc = run(a, &c, plan, &b, scratch);
    return rc ? rc : cuda_attention_find_largest(a);
}

int cuda_cross_attention(const struct ckpt_kernel_args *a)
{
    return cuda_cross_attention_own(a);
}

int cuda_cross_attention_dx(const struct ckpt_kernel_args *a)
{
    return cuda_cross_attention_own_dx(a);
}

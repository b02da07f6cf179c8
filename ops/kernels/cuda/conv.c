/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions by cuDNN.  An engine must be deterministic and must not reduce the precision of
 * fp32.  Convolutions that cuDNN refuses run in conv_direct.cu.  Depthwise ones, which are bound by
 * memory, run in conv_depthwise.cu; they sum in fp32 and do not round the weight gradient on the
 * way.
 *
 * An invariant convolution (struct ckpt_conv_spec) uses the engine selected for one fixed picture
 * size.  The sum over taps and channels of an output element then has one order, independent of its
 * position and of the size of the tensor.
 */
#include "kernels/cuda/conv_direct.h"
#include "kernels/cuda/cudnn_conv.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/workspace.h"

static struct cudnn_recipe recipe_of(const struct cudnn_conv_graph *k, int64_t workspace)
{
    return (struct cudnn_recipe){.describe = cudnn_conv_describe,
                                 .spec = k,
                                 .spec_size = sizeof *k,
                                 .limits = {workspace, true, k->dtype == CKPT_F32}};
}

/* Does adding any number of rows to an aligned address keep it aligned?  The engine of an invariant
 * convolution must not depend on an address. */
static bool rows_are_aligned(const struct cudnn_conv_graph *k)
{
    int64_t size = ckpt_dtype_size((enum ckpt_dtype)k->dtype);
    return k->s.in[2] * k->s.c * size % 16 == 0 && k->s.out[2] * k->s.k * size % 16 == 0;
}

/* *plan: cuDNN's plan for k, or NULL if cuDNN refuses or an address is not aligned to 16 bytes. */
static int find_plan(const struct ckpt_kernel_args *a, const struct cudnn_conv_graph *k,
                     int64_t workspace, void *const *pointers, const struct cudnn_plan **plan)
{
    struct cudnn_conv_graph fixed[CUDNN_LIKE];
    struct cudnn_recipe recipe = recipe_of(k, workspace), like[CUDNN_LIKE];
    *plan = NULL;
    if (k->s.invariant) {
        if (!rows_are_aligned(k))
            return CKPT_OK;
        cudnn_conv_like(k, fixed);
        for (int i = 0; i < CUDNN_LIKE; i++)
            like[i] = recipe_of(&fixed[i],
                                cuda_conv_workspace(&fixed[i].s, (enum ckpt_dtype)k->dtype));
        recipe.like = like;
        recipe.n_like = CUDNN_LIKE;
    }
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)pointers[i] % 16)
            return CKPT_OK;
    int rc = cudnn_plan_get(a->device, a->stream, &recipe, plan);
    if (!rc && !cudnn_plan_accepted(*plan))
        *plan = NULL;
    return rc;
}

static int run_plan(const struct ckpt_kernel_args *a, const struct cudnn_conv_graph *k,
                    const struct cudnn_plan *plan, void *const *pointers, void *workspace)
{
    static const int64_t uids[] = {CUDNN_CONV_UID_X, CUDNN_CONV_UID_W, CUDNN_CONV_UID_Y,
                                   CUDNN_CONV_UID_BIAS};
    return cudnn_plan_run(a->device, a->stream, plan, k->bias ? 4 : 3, uids, pointers, workspace);
}

/* Convolves a part of the call, of shape s. from_x and from_y are the positions, in elements of a
 * single channel, at which the part of each operand begins. */
static int convolve(const struct ckpt_kernel_args *a, const struct conv_shape *s, int64_t from_x,
                    int64_t from_y)
{
    const enum ckpt_dtype dtype = a->in[0].desc.dtype;
    const int64_t size = ckpt_dtype_size(dtype);
    struct cudnn_conv_graph k = cudnn_conv_graph(s, dtype, CUDNN_CONV_Y);
    char *x = (char *)a->in[0].data + from_x * s->c * size;
    char *y = (char *)a->out[0].data + from_y * s->k * size;
    void *const pointers[] = {x, a->in[1].data, y, a->in[2].data};
    const struct cudnn_plan *plan;
    k.bias = a->in[2].data != NULL;
    int rc = find_plan(a, &k, a->workspace_bytes, pointers, &plan);
    if (rc || plan)
        return rc ? rc : run_plan(a, &k, plan, pointers, a->workspace);
    struct ckpt_view in[] = {a->in[0], a->in[1], a->in[2]}, out = a->out[0];
    struct ckpt_kernel_args part = *a;
    in[0].data = x;
    out.data = y;
    part.in = in;
    part.out = &out;
    return cuda_conv_direct(&part, s);
}

/* Splits n into the fewest calls of at most `limit`; returns the nearly equal size of a call. */
static int64_t evenly(int64_t n, int64_t limit)
{
    int64_t calls = (n + limit - 1) / limit;
    return (n + calls - 1) / calls;
}

/* Samples per call for engines that index elements with 32 bits; 0: a single sample is too
 * large. */
static int64_t samples_at_once(const struct conv_shape *s)
{
    int64_t each = max_i64(conv_volume(s->in) * s->c, conv_volume(s->out) * s->k);
    int64_t limit = INT32_MAX / each;
    return limit ? evenly(s->n, limit) : 0;
}

/* Output positions along the first axis per call, if a single sample is too large. */
static int64_t places_at_once(const struct conv_shape *s)
{
    int64_t x = INT32_MAX / (s->in[1] * s->in[2] * s->c);
    int64_t y = INT32_MAX / (s->out[1] * s->out[2] * s->k);
    int64_t limit = min_i64(y, (x - conv_extent(s, 0)) / s->stride[0] + 1);
    return evenly(s->out[0], max_i64(1, limit));
}

/* The shape for output positions [first, first + n) along the first axis; *from: the first input
 * position that they read. */
static struct conv_shape cut(const struct conv_shape *s, int64_t first, int64_t n, int64_t *from)
{
    struct conv_shape part = *s;
    int64_t begin = first * s->stride[0] - s->before[0];
    int64_t end = begin + (n - 1) * s->stride[0] + conv_extent(s, 0);
    *from = max_i64(0, begin);
    part.out[0] = n;
    part.in[0] = min_i64(end, s->in[0]) - *from;
    part.before[0] = *from - begin;
    part.after[0] = max_i64(0, end - s->in[0]);
    return part;
}

/* Convolves one sample after another, each in parts along the first axis. */
static int convolve_places(const struct ckpt_kernel_args *a, const struct conv_shape *all)
{
    struct conv_shape one = *all;
    int64_t at_once = places_at_once(all), from;
    int rc = CKPT_OK;
    one.n = 1;
    for (int64_t i = 0; i < all->n; i++)
        for (int64_t first = 0; !rc && first < one.out[0]; first += at_once) {
            struct conv_shape s = cut(&one, first, min_i64(at_once, one.out[0] - first), &from);
            rc = convolve(a, &s, (i * one.in[0] + from) * one.in[1] * one.in[2],
                          (i * one.out[0] + first) * one.out[1] * one.out[2]);
        }
    return rc;
}

/* An invariant convolution must not switch to another engine.  If its sizes exceed 32-bit indices,
 * it is split into several calls of the same engine. */
int cuda_conv(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    const struct conv_shape all = conv_shape_forward(in, a->attr);
    struct conv_shape s = all;
    if (conv_is_depthwise(&s))
        return cuda_depthwise(a, &s);
    int64_t at_once = all.invariant ? samples_at_once(&all) : all.n;
    if (!at_once)
        return convolve_places(a, &all);
    int rc = CKPT_OK;
    for (int64_t first = 0; !rc && first < all.n; first += s.n) {
        s.n = min_i64(at_once, all.n - first);
        rc = convolve(a, &s, first * conv_volume(s.in), first * conv_volume(s.out));
    }
    return rc;
}

int cuda_conv_dx(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    struct conv_shape s = conv_shape_dx(in, a->attr);
    if (conv_is_depthwise(&s))
        return cuda_depthwise_dx(a, &s);
    struct cudnn_conv_graph k = cudnn_conv_graph(&s, in[0].dtype, CUDNN_CONV_DX);
    void *const pointers[] = {a->out[0].data, a->in[1].data, a->in[0].data, NULL};
    const struct cudnn_plan *plan;
    int rc = find_plan(a, &k, a->workspace_bytes, pointers, &plan);
    if (rc)
        return rc;
    return plan ? run_plan(a, &k, plan, pointers, a->workspace) : cuda_conv_dx_direct(a, &s);
}

/*
 * cuDNN computes the weight gradient of bf16 operands in bf16.  It goes to the front of the
 * workspace; cuda_conv_widen then stores it as fp32 or adds it.
 */
int cuda_conv_dw(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    struct conv_shape s = conv_shape_dw(in, a->attr);
    if (conv_is_depthwise(&s))
        return cuda_depthwise_dw(a, &s);
    struct cudnn_conv_graph k = cudnn_conv_graph(&s, in[0].dtype, CUDNN_CONV_DW);
    bool narrow = k.dtype == CKPT_BF16;
    int64_t front = narrow ? cuda_conv_dw_front(&s) : 0;
    void *dw = narrow ? a->workspace : a->out[0].data;
    void *const pointers[] = {a->in[1].data, dw, a->in[0].data, NULL};
    const struct cudnn_plan *plan;
    k.add = a->accumulate && !narrow;
    int rc = find_plan(a, &k, a->workspace_bytes - front, pointers, &plan);
    if (rc)
        return rc;
    if (!plan)
        return cuda_conv_dw_direct(a, &s);
    rc = run_plan(a, &k, plan, pointers, (char *)a->workspace + front);
    return rc || !narrow ? rc : cuda_conv_widen(a);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions over two or three axes, channels last.  Padding may differ at the two ends of an
 * axis, as causal video models want it.
 */
#include <string.h>
#include "conv.h"
#include "cpu/kernels.h"
#include "cuda/kernels.h"
#include "cuda/workspace.h"
#include "ops.h"
#include "core/sized.h"

/* Keeps every product of sizes far from overflow. */
#define MAX_STEP ((int64_t)1 << 24)

/* The spatial sizes of a tensor [n, ..., c], three of them. */
static void spatial_sizes(const struct ckpt_desc *d, int64_t *size)
{
    int absent = 5 - d->ndim;
    for (int i = 0; i < 3; i++)
        size[i] = i < absent ? 1 : d->shape[1 + i - absent];
}

static int64_t last_size(const struct ckpt_desc *d)
{
    return d->shape[d->ndim - 1];
}

static struct conv_shape shape_of(const struct conv_attr *attr)
{
    struct conv_shape s = {.n = 0};
    memcpy(s.stride, attr->stride, sizeof s.stride);
    memcpy(s.before, attr->before, sizeof s.before);
    memcpy(s.after, attr->after, sizeof s.after);
    return s;
}

struct conv_shape conv_shape_forward(const struct ckpt_desc *in, const struct conv_attr *attr)
{
    struct conv_shape s = shape_of(attr);
    s.n = in[0].shape[0];
    s.c = last_size(&in[0]);
    s.k = in[1].shape[0];
    s.invariant = attr->invariant;
    spatial_sizes(&in[0], s.in);
    spatial_sizes(&in[1], s.kernel);
    for (int i = 0; i < 3; i++)
        s.out[i] = (s.in[i] + s.before[i] + s.after[i] - s.kernel[i]) / s.stride[i] + 1;
    return s;
}

struct conv_shape conv_shape_dx(const struct ckpt_desc *in, const struct conv_attr *attr)
{
    struct conv_shape s = shape_of(attr);
    s.n = in[0].shape[0];
    s.c = last_size(&in[1]);
    s.k = in[1].shape[0];
    memcpy(s.in, attr->size, sizeof s.in);
    spatial_sizes(&in[1], s.kernel);
    spatial_sizes(&in[0], s.out);
    return s;
}

struct conv_shape conv_shape_dw(const struct ckpt_desc *in, const struct conv_attr *attr)
{
    struct conv_shape s = shape_of(attr);
    s.n = in[0].shape[0];
    s.c = last_size(&in[1]);
    s.k = last_size(&in[0]);
    spatial_sizes(&in[1], s.in);
    memcpy(s.kernel, attr->size, sizeof s.kernel);
    spatial_sizes(&in[0], s.out);
    return s;
}

struct conv_gather conv_gather_x(const struct conv_shape *s)
{
    struct conv_gather g = {.channels = s->c, .turn = 1};
    for (int i = 0; i < 3; i++) {
        g.source[i] = s->in[i];
        g.positions[i] = s->out[i];
        g.taps[i] = s->kernel[i];
        g.scale[i] = s->stride[i];
        g.shift[i] = -s->before[i];
        g.divide[i] = 1;
    }
    return g;
}

/* With a stride most taps find nothing. */
struct conv_gather conv_gather_dy(const struct conv_shape *s)
{
    struct conv_gather g = {.channels = s->k, .turn = -1};
    for (int i = 0; i < 3; i++) {
        g.source[i] = s->out[i];
        g.positions[i] = s->in[i];
        g.taps[i] = s->kernel[i];
        g.scale[i] = 1;
        g.shift[i] = s->before[i];
        g.divide[i] = s->stride[i];
    }
    return g;
}

/* out[0] as [n, size..., channels], with as many axes as `like`. */
static void set_out(struct ckpt_call *call, enum ckpt_dtype dtype, const struct ckpt_desc *like,
                    int64_t n, const int64_t *size, int64_t channels)
{
    struct ckpt_desc d = {.dtype = dtype, .ndim = like->ndim};
    d.shape[0] = n;
    memcpy(d.shape + 1, size + 5 - d.ndim, sizeof *size * (size_t)(d.ndim - 2));
    d.shape[d.ndim - 1] = channels;
    desc_dense(&d);
    call->out[0] = d;
}

static int check_operands(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0], *w = &call->in[1], *b = &call->in[2];
    if (call_float(call, 0) || call_float(call, 1))
        return CKPT_ESHAPE;
    if (x->dtype != w->dtype || (b->ndim >= 0 && b->dtype != w->dtype))
        return ckpt_call_fail(call, "x, w and the bias must have the same dtype");
    if ((x->ndim != 4 && x->ndim != 5) || w->ndim != x->ndim)
        return ckpt_call_fail(call, "x must be [N, H, W, C] or [N, D, H, W, C], and w [K, ..., C] "
                                    "with as many axes");
    if (last_size(x) != last_size(w))
        return ckpt_call_fail(call, "x has %lld channels, w is for %lld", (long long)last_size(x),
                              (long long)last_size(w));
    if (b->ndim >= 0 && (b->ndim != 1 || b->shape[0] != w->shape[0]))
        return ckpt_call_fail(call, "the bias must have one axis of size %lld",
                              (long long)w->shape[0]);
    return CKPT_OK;
}

static int check_walk(struct ckpt_call *call)
{
    const struct conv_attr *a = call->attr;
    int64_t in[3], kernel[3];
    spatial_sizes(&call->in[0], in);
    spatial_sizes(&call->in[1], kernel);
    for (int i = 0; i < 3; i++) {
        if (a->stride[i] < 1 || a->stride[i] > MAX_STEP)
            return ckpt_call_fail(call, "a stride is %lld; strides are 1 to %lld",
                                  (long long)a->stride[i], (long long)MAX_STEP);
        if (a->before[i] < 0 || a->after[i] < 0 || a->before[i] > MAX_STEP ||
            a->after[i] > MAX_STEP)
            return ckpt_call_fail(call, "padding of %lld and %lld; it must be 0 to %lld",
                                  (long long)a->before[i], (long long)a->after[i],
                                  (long long)MAX_STEP);
        if (in[i] + a->before[i] + a->after[i] < kernel[i])
            return ckpt_call_fail(call, "a kernel of %lld does not fit into %lld with its padding",
                                  (long long)kernel[i], (long long)in[i]);
    }
    return CKPT_OK;
}

/* Kernels count the places of a sample, and what one of them sees, in 32 bits. */
static int check_volume(struct ckpt_call *call, const struct conv_shape *s)
{
    double seen = (double)s->c * (double)s->kernel[0] * (double)s->kernel[1] * (double)s->kernel[2];
    double in = (double)s->in[0] * (double)s->in[1] * (double)s->in[2];
    double out = (double)s->out[0] * (double)s->out[1] * (double)s->out[2];
    if (seen <= INT32_MAX && in <= INT32_MAX && out <= INT32_MAX &&
        seen / (double)s->c * (double)s->k <= INT32_MAX)
        return CKPT_OK;
    return ckpt_call_fail(call, "a sample, or the kernel, has more than %d places", INT32_MAX);
}

static int conv_rule(struct ckpt_call *call)
{
    if (check_operands(call) || check_walk(call))
        return CKPT_ESHAPE;
    struct conv_shape s = conv_shape_forward(call->in, call->attr);
    if (check_volume(call, &s))
        return CKPT_ESHAPE;
    set_out(call, call->in[0].dtype, &call->in[0], s.n, s.out, s.k);
    call->workspace = call->backend == CKPT_ON_CUDA ? cuda_conv_workspace(&s, call->in[0].dtype)
                                                    : cpu_conv_workspace(&s, call->in[0].dtype);
    return CKPT_OK;
}

static int conv_dx_rule(struct ckpt_call *call)
{
    struct conv_shape s = conv_shape_dx(call->in, call->attr);
    set_out(call, call->in[1].dtype, &call->in[0], s.n, s.in, s.c);
    call->workspace = call->backend == CKPT_ON_CUDA ? cuda_conv_workspace(&s, call->in[1].dtype)
                                                    : cpu_conv_dx_workspace(&s, call->in[1].dtype);
    return CKPT_OK;
}

static int conv_dw_rule(struct ckpt_call *call)
{
    struct conv_shape s = conv_shape_dw(call->in, call->attr);
    set_out(call, CKPT_F32, &call->in[0], s.k, s.kernel, s.c);
    call->workspace = call->backend == CKPT_ON_CUDA ? cuda_conv_dw_workspace(&s, call->in[1].dtype)
                                                    : cpu_conv_dw_workspace(&s, call->in[1].dtype);
    return CKPT_OK;
}

static void conv_grad(struct ckpt_grad *g)
{
    ckpt_tensor x = g->in[0], w = g->in[1], dy = g->dout[0];
    struct ckpt_desc dx = ckpt_desc_of(g->tape, x), dw = ckpt_desc_of(g->tape, w);
    struct conv_attr attr = *(const struct conv_attr *)g->attr;
    if (g->need[0]) {
        spatial_sizes(&dx, attr.size);
        g->din[0] = OPS_RECORD(g->tape, &op_conv_dx, &attr, dy, w);
    }
    if (g->need[1]) {
        spatial_sizes(&dw, attr.size);
        g->din[1] = OPS_RECORD(g->tape, &op_conv_dw, &attr, dy, x);
    }
    if (g->need[2])
        g->din[2] = ops_record1(g->tape, &op_column_sum, 1, &dy, NULL, 0);
}

/* Two flops per multiply-add; taps that fall on padding count too. */
static double flops_of(const struct conv_shape *s)
{
    return 2. * (double)s->n * (double)conv_volume(s->out) * (double)conv_volume(s->kernel) *
           (double)s->c * (double)s->k;
}

static void conv_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    struct conv_shape s = conv_shape_forward(call->in, call->attr);
    cost->flops = flops_of(&s);
}

static void conv_dx_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    struct conv_shape s = conv_shape_dx(call->in, call->attr);
    cost->flops = flops_of(&s);
}

static void conv_dw_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    struct conv_shape s = conv_shape_dw(call->in, call->attr);
    cost->flops = flops_of(&s);
}

const struct ckpt_op_def op_conv = {
    .size = sizeof(struct ckpt_op_def),
    .name = "conv",
    .shape = conv_rule,
    .grad = conv_grad,
    .cost = conv_cost,
    .cpu = cpu_conv,
    .cuda = CUDA_KERNEL(cuda_conv),
};

const struct ckpt_op_def op_conv_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "conv_dx",
    .shape = conv_dx_rule,
    .cost = conv_dx_cost,
    .cpu = cpu_conv_dx,
    .cuda = CUDA_KERNEL(cuda_conv_dx),
};

const struct ckpt_op_def op_conv_dw = {
    .size = sizeof(struct ckpt_op_def),
    .name = "conv_dw",
    .flags = CKPT_OP_ACCUMULATE,
    .shape = conv_dw_rule,
    .cost = conv_dw_cost,
    .cpu = cpu_conv_dw,
    .cuda = CUDA_KERNEL(cuda_conv_dw),
};

ckpt_tensor ckpt_conv(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                      const struct ckpt_conv_spec *spec)
{
    struct ckpt_conv_spec whole = CKPT_CONV_INIT;
    struct error e;
    struct conv_attr attr = {.stride = {1, 1, 1}};
    int spatial = ckpt_desc_of(t, x).ndim - 2, absent = 3 - spatial;
    if (spec && sized_read(&e, "struct ckpt_conv_spec", &whole, sizeof whole, spec)) {
        ckpt_tape_fail(t, e.code, "conv: %s", e.text);
        return CKPT_NONE;
    }
    attr.invariant = whole.invariant;
    for (int i = 0; i < spatial && absent >= 0; i++) { /* else the shape rule refuses */
        attr.stride[absent + i] = whole.stride[i];
        attr.before[absent + i] = whole.before[i];
        attr.after[absent + i] = whole.after[i];
    }
    return OPS_RECORD(t, &op_conv, &attr, x, w, b);
}

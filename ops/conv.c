/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions over one to three axes, channels last.  Padding may differ at the two ends of an
 * axis, as causal video models need.  A transposed convolution is the gradient with respect to x of
 * a convolution: both use the same kernels, and the gradients of each of the three ops are recorded
 * as the other two.
 */
#include <string.h>
#include "call.h"
#include "fake_quantize.h"
#include "shapes/conv.h"
#include "ops.h"
#include "core/sized.h"

/* Bound on strides, dilations and padding; keeps every product of sizes far from overflow. */
#define MAX_STEP ((int64_t)1 << 24)

static int64_t last_size(const struct ckpt_desc *d)
{
    return d->shape[d->ndim - 1];
}

/* Sets out[0] to [n, size..., channels], with as many axes as `like`. */
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

/* transposed: axis 0 of w is the channels of x. */
static int check_operands(struct ckpt_call *call, bool transposed)
{
    const struct ckpt_desc *x = &call->in[0], *w = &call->in[1];
    const long long groups = ((const struct conv_attr *)call->attr)->groups;
    if (call_float(call, 0) || call_float(call, 1))
        return CKPT_ESHAPE;
    if (x->dtype != w->dtype)
        return ckpt_call_fail(call, "x, w and the bias must have the same dtype");
    if (x->ndim < 3 || x->ndim > 5 || w->ndim != x->ndim)
        return ckpt_call_fail(call, "x must be [N, L, C], [N, H, W, C] or [N, D, H, W, C], and w "
                                    "must have as many axes");
    if (groups < 1 || w->shape[0] % groups)
        return ckpt_call_fail(call, "%lld groups do not divide the %lld channels of w's axis 0",
                              groups, (long long)w->shape[0]);
    if (last_size(x) % groups)
        return ckpt_call_fail(call, "%lld groups do not divide the %lld channels of x", groups,
                              (long long)last_size(x));
    int64_t parts = transposed ? 1 : groups, of_w = transposed ? w->shape[0] : last_size(w);
    if (last_size(x) / parts != of_w)
        return ckpt_call_fail(call,
                              "x has %lld channels (its last axis) in %lld groups, w is for %lld "
                              "in each",
                              (long long)last_size(x), (long long)parts, (long long)of_w);
    return CKPT_OK;
}

static int check_bias(struct ckpt_call *call)
{
    const struct ckpt_desc *w = &call->in[1], *b = &call->in[2];
    if (b->ndim < 0)
        return CKPT_OK;
    if (b->dtype != w->dtype)
        return ckpt_call_fail(call, "x, w and the bias must have the same dtype");
    if (b->ndim != 1 || b->shape[0] != w->shape[0])
        return ckpt_call_fail(call, "the bias must have one axis of size %lld",
                              (long long)w->shape[0]);
    return CKPT_OK;
}

static bool outside(int64_t x, int64_t min)
{
    return x < min || x > MAX_STEP;
}

static int check_steps(struct ckpt_call *call)
{
    const struct conv_attr *a = call->attr;
    for (int i = 0; i < 3; i++) {
        if (outside(a->stride[i], 1) || outside(a->dilation[i], 1))
            return ckpt_call_fail(
                call, "a stride is %lld, with a dilation of %lld; they are 1 to %lld",
                (long long)a->stride[i], (long long)a->dilation[i], (long long)MAX_STEP);
        if (outside(a->before[i], 0) || outside(a->after[i], 0))
            return ckpt_call_fail(call, "padding of %lld and %lld; it must be 0 to %lld",
                                  (long long)a->before[i], (long long)a->after[i],
                                  (long long)MAX_STEP);
    }
    return CKPT_OK;
}

static int check_fit(struct ckpt_call *call)
{
    const struct conv_attr *a = call->attr;
    int64_t in[3], kernel[3];
    conv_spatial(&call->in[0], in);
    conv_spatial(&call->in[1], kernel);
    for (int i = 0; i < 3; i++)
        if (kernel[i] - 1 > (in[i] + a->before[i] + a->after[i] - 1) / a->dilation[i] ||
            in[i] + a->before[i] + a->after[i] < kernel[i])
            return ckpt_call_fail(call,
                                  "a kernel of %lld, dilated by %lld, does not fit into %lld with "
                                  "its padding",
                                  (long long)kernel[i], (long long)a->dilation[i],
                                  (long long)in[i]);
    return CKPT_OK;
}

/* Kernels index the positions of a sample, and the inputs of one position, in 32 bits. */
static int check_volume(struct ckpt_call *call, const struct conv_shape *s)
{
    double taps = (double)s->kernel[0] * (double)s->kernel[1] * (double)s->kernel[2];
    double in = (double)s->in[0] * (double)s->in[1] * (double)s->in[2];
    double out = (double)s->out[0] * (double)s->out[1] * (double)s->out[2];
    if (in <= INT32_MAX && out <= INT32_MAX && taps * (double)conv_group_c(s) <= INT32_MAX &&
        taps * (double)conv_group_k(s) <= INT32_MAX)
        return CKPT_OK;
    return ckpt_call_fail(call, "a sample, or the kernel, has more than %d positions", INT32_MAX);
}

static int conv_rule(struct ckpt_call *call)
{
    if (check_operands(call, false) || check_bias(call) || check_steps(call) || check_fit(call))
        return CKPT_ESHAPE;
    struct conv_shape s = conv_shape_forward(call->in, call->attr);
    if (check_volume(call, &s))
        return CKPT_ESHAPE;
    set_out(call, call->in[0].dtype, &call->in[0], s.n, s.out, s.k);
    return CKPT_OK;
}

static int conv_dx_rule(struct ckpt_call *call)
{
    struct conv_shape s = conv_shape_dx(call->in, call->attr);
    set_out(call, call->in[1].dtype, &call->in[0], s.n, s.in, s.c);
    return CKPT_OK;
}

static int conv_dw_rule(struct ckpt_call *call)
{
    struct conv_shape s = conv_shape_dw(call->in, call->attr);
    set_out(call, CKPT_F32, &call->in[0], s.k, s.kernel, conv_group_c(&s));
    return CKPT_OK;
}

/* {x, w} -> y of the size given by the attributes. */
static int conv_transpose_rule(struct ckpt_call *call)
{
    const struct conv_attr *a = call->attr;
    if (check_operands(call, true) || check_steps(call))
        return CKPT_ESHAPE;
    for (int i = 0; i < 3; i++) {
        if (a->more[i] < 0 || a->more[i] >= a->stride[i])
            return ckpt_call_fail(call,
                                  "an output padding must be at least 0 and below the stride of "
                                  "%lld plus the padding at the end",
                                  (long long)a->stride[i]);
        if (a->size[i] < 1)
            return ckpt_call_fail(call, "the result has no positions along an axis, or too many");
    }
    struct conv_shape s = conv_shape_dx(call->in, a);
    return check_volume(call, &s) ? CKPT_ESHAPE : conv_dx_rule(call);
}

static void conv_grad(struct ckpt_grad *g)
{
    ckpt_tensor x = g->in[0], w = g->in[1], dy = g->dout[0];
    struct ckpt_desc dx = ckpt_desc_of(g->tape, x), dw = ckpt_desc_of(g->tape, w);
    struct conv_attr attr = *(const struct conv_attr *)g->attr;
    if (g->need[0]) {
        conv_spatial(&dx, attr.size);
        g->din[0] = OPS_RECORD(g->tape, &op_conv_dx, &attr, dy, w);
    }
    if (g->need[1]) {
        conv_spatial(&dw, attr.size);
        g->din[1] = OPS_RECORD(g->tape, &op_conv_dw, &attr, dy, x);
    }
    if (g->need[2])
        g->din[2] = ops_record1(g->tape, &op_column_sum, 1, &dy, NULL, 0);
}

/* The attributes of the convolution whose gradient the op of g is. */
static struct conv_attr forward_attr(const struct ckpt_grad *g)
{
    struct conv_attr attr = *(const struct conv_attr *)g->attr;
    memset(attr.size, 0, sizeof attr.size);
    attr.invariant = 0;
    return attr;
}

/* {dy, w} -> dx, and {x, w} -> y of a transposed convolution: linear in both operands. */
static void conv_dx_grad(struct ckpt_grad *g)
{
    ckpt_tensor dy = g->in[0], w = g->in[1], ddx = g->dout[0];
    struct ckpt_desc dw = ckpt_desc_of(g->tape, w);
    struct conv_attr attr = forward_attr(g);
    if (g->need[0])
        g->din[0] = OPS_RECORD(g->tape, &op_conv, &attr, ddx, w, CKPT_NONE);
    if (g->need[1]) {
        conv_spatial(&dw, attr.size);
        g->din[1] = OPS_RECORD(g->tape, &op_conv_dw, &attr, dy, ddx);
    }
}

/* {dy, x} -> dw, linear in both operands. */
static void conv_dw_grad(struct ckpt_grad *g)
{
    ckpt_tensor dy = g->in[0], x = g->in[1];
    struct ckpt_desc dx = ckpt_desc_of(g->tape, x);
    struct conv_attr attr = forward_attr(g);
    ckpt_tensor ddw = ckpt_cast(g->tape, g->dout[0], dx.dtype);
    if (g->need[0])
        g->din[0] = OPS_RECORD(g->tape, &op_conv, &attr, x, ddw, CKPT_NONE);
    if (g->need[1]) {
        conv_spatial(&dx, attr.size);
        g->din[1] = OPS_RECORD(g->tape, &op_conv_dx, &attr, dy, ddw);
    }
}

/* Two flops per multiply-add; taps on padding are counted too. */
static double flops_of(const struct conv_shape *s)
{
    return 2. * (double)s->n * (double)conv_volume(s->out) * (double)conv_volume(s->kernel) *
           (double)conv_group_c(s) * (double)s->k;
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

OPS_DEF(conv, .shape = conv_rule, .grad = conv_grad, .cost = conv_cost);

OPS_DEF(conv_dx, .shape = conv_dx_rule, .grad = conv_dx_grad, .cost = conv_dx_cost);

OPS_DEF(conv_dw, .flags = CKPT_OP_ACCUMULATE, .shape = conv_dw_rule, .grad = conv_dw_grad,
        .cost = conv_dw_cost);

/* conv_dx with its own name, and with checks of the caller's arguments. */
OPS_DEF(conv_transpose, .shape = conv_transpose_rule, .grad = conv_dx_grad, .cost = conv_dx_cost);

/* Copies spec, or the defaults if it is NULL, to attributes for `spatial` axes.  The shape rule
 * checks that there are 1 to 3. */
static int read_spec(ckpt_tape *t, const char *name, const struct ckpt_conv_spec *spec, int spatial,
                     struct ckpt_conv_spec *whole, struct conv_attr *attr)
{
    int absent = 3 - spatial;
    *whole = (struct ckpt_conv_spec)CKPT_CONV_INIT;
    *attr = (struct conv_attr){.stride = {1, 1, 1}, .dilation = {1, 1, 1}};
    if (spec && sized_read("struct ckpt_conv_spec", whole, sizeof *whole, spec)) {
        ckpt_tape_fail(t, CKPT_EINVAL, "%s: %s", name, error_get());
        return CKPT_EINVAL;
    }
    attr->invariant = whole->invariant;
    attr->groups = whole->groups;
    for (int i = 0; i < spatial && absent >= 0; i++) {
        attr->stride[absent + i] = whole->stride[i];
        attr->before[absent + i] = whole->before[i];
        attr->after[absent + i] = whole->after[i];
        attr->dilation[absent + i] = whole->dilation[i];
        attr->more[absent + i] = whole->output_padding[i];
    }
    return CKPT_OK;
}

ckpt_tensor ckpt_conv(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                      const struct ckpt_conv_spec *spec)
{
    struct ckpt_conv_spec whole;
    struct conv_attr attr;
    if (read_spec(t, "conv", spec, ckpt_desc_of(t, x).ndim - 2, &whole, &attr))
        return CKPT_NONE;
    memset(attr.more, 0, sizeof attr.more);
    qat_round(t, QAT_CONV, &x, &w);
    return OPS_RECORD(t, &op_conv, &attr, x, w, b);
}

/* The size of the result along an axis; 0 where the arguments are invalid or too large, which the
 * shape rule reports. */
static int64_t transposed_size(const struct conv_attr *a, int axis, int64_t n, int64_t kernel)
{
    const int64_t stride = a->stride[axis], dilation = a->dilation[axis];
    if (outside(stride, 1) || outside(dilation, 1) || outside(a->before[axis], 0) ||
        outside(a->after[axis], 0) || outside(a->more[axis], 0) || n > INT32_MAX ||
        kernel > INT32_MAX)
        return 0;
    return (n - 1) * stride + (kernel - 1) * dilation + 1 - a->before[axis] - a->after[axis] +
           a->more[axis];
}

ckpt_tensor ckpt_conv_transpose(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                const struct ckpt_conv_spec *spec)
{
    OPS_CALL(t);
    struct ckpt_desc dx = ckpt_desc_of(t, x), dw = ckpt_desc_of(t, w), db = ckpt_desc_of(t, b);
    struct ckpt_conv_spec whole;
    struct conv_attr attr;
    int64_t n[3], kernel[3];
    if (read_spec(t, "conv_transpose", spec, dx.ndim - 2, &whole, &attr))
        return CKPT_NONE;
    if (whole.invariant) {
        ckpt_tape_fail(t, CKPT_EINVAL, "conv_transpose: invariant is not supported");
        return CKPT_NONE;
    }
    if (dx.ndim >= 3 && dx.ndim <= 5 && dw.ndim == dx.ndim) { /* else the shape rule fails */
        conv_spatial(&dx, n);
        conv_spatial(&dw, kernel);
        for (int i = 0; i < 3; i++) {
            int64_t less = max_i64(0, min_i64(attr.after[i], attr.more[i]));
            attr.after[i] -= less; /* output padding first cancels padding, then adds positions */
            attr.more[i] -= less;
            attr.size[i] = transposed_size(&attr, i, n[i], kernel[i]);
        }
    }
    qat_round(t, QAT_CONV_TRANSPOSE, &x, &w);
    ckpt_tensor y = OPS_RECORD(t, &op_conv_transpose, &attr, x, w);
    if (!b.id || !y.id)
        return y;
    struct ckpt_desc dy = ckpt_desc_of(t, y);
    if (db.ndim != 1 || db.shape[0] != dy.shape[dy.ndim - 1] || db.dtype != dy.dtype) {
        ckpt_tape_fail(t, CKPT_ESHAPE,
                       "conv_transpose: the bias must have one axis of size %lld and w's dtype",
                       (long long)dy.shape[dy.ndim - 1]);
        return CKPT_NONE;
    }
    return ckpt_add(t, y, b);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, pools, padding. */
#include <math.h>
#include <string.h>
#include "import/channels.h"
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

/* ---- pictures -------------------------------------------------------------------------------- */

struct picture picture_read(struct call *c, const char *name)
{
    struct picture p = {.a = math_cast(c->r, call_tensor(c, name), c->dtype)};

    p.spatial = p.a.ndim - 2;
    if (p.spatial < 1 || p.spatial > 3)
        recording_fail(c->r, CKPT_ESHAPE, "a picture with %d axes cannot be recorded", p.a.ndim);
    p.a = channels_last(c->r, p.a);
    tensor_record(c->r, &p.a);
    return p;
}

struct tensor picture_of(struct call *c, ckpt_tensor y)
{
    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    return channels_first(c->r, tensor_of(c->r, c->dtype, y));
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* The sizes of the kernel; the result has the size of the picture with "same". */
static void read_padding(struct call *c, const struct tensor *w, int n, struct ckpt_conv_spec *spec)
{
    const char *how = strstr(c->op->name, ".padding") ? call_text(c, "padding") : NULL;

    if (!how) {
        call_sizes_of(c, "padding", 0, spec->before, n);
        memcpy(spec->after, spec->before, sizeof spec->after);
        return;
    }
    for (int i = 0; i < n && !strcmp(how, "same"); i++) {
        const int64_t all = spec->dilation[i] * (w->shape[1 + i] - 1);
        spec->before[i] = all / 2;
        spec->after[i] = all - all / 2;
    }
}

static struct tensor convolve(struct call *c, bool transposed)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    struct picture p = picture_read(c, "input");
    struct tensor w = channels_last(c->r, math_cast(c->r, call_tensor(c, "weight"), c->dtype));
    ckpt_tensor b = call_operand(c, "bias", c->dtype);

    tensor_record(c->r, &w);
    if (c->r->failed)
        return p.a;
    call_sizes_of(c, "stride", 1, spec.stride, p.spatial);
    call_sizes_of(c, "dilation", 1, spec.dilation, p.spatial);
    read_padding(c, &w, p.spatial, &spec);
    spec.groups = call_int(c, "groups");
    if (transposed)
        call_sizes_of(c, "output_padding", 0, spec.output_padding, p.spatial);
    if (c->r->failed)
        return p.a;
    return picture_of(c, transposed ? ckpt_conv_transpose(c->r->t, p.a.x, w.x, b, &spec)
                                    : ckpt_conv(c->r->t, p.a.x, w.x, b, &spec));
}

static struct tensor op_conv(struct call *c, int part)
{
    (void)part;
    return convolve(c, false);
}

static struct tensor op_conv_transpose(struct call *c, int part)
{
    (void)part;
    return convolve(c, true);
}

static struct tensor op_convolution(struct call *c, int part)
{
    (void)part;
    return convolve(c, call_bool(c, "transposed"));
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* Rounding up is padding at the far end, of windows that begin inside the picture. */
static void round_up_size(const struct picture *p, const int64_t *window,
                          struct ckpt_pool_spec *spec)
{
    for (int i = 0; i < p->spatial; i++) {
        const int64_t n = p->a.shape[1 + i] + spec->before[i], s = spec->stride[i];
        const int64_t room = n + spec->after[i] - window[i];
        int64_t count = (room + s - 1) / s + 1;
        if ((count - 1) * s >= n)
            count--;
        const int64_t more = (count - 1) * s - room;
        spec->after[i] += more > 0 ? more : 0;
    }
}

static int64_t read_windows(struct call *c, const struct picture *p, int64_t *window,
                            struct ckpt_pool_spec *spec)
{
    int64_t given[TENSOR_AXES];

    call_sizes_of(c, "kernel_size", 1, window, p->spatial);
    memcpy(spec->stride, window, (size_t)p->spatial * sizeof *window);
    if (pt2_arg_find(c->node, "stride") && call_ints(c, "stride", given, TENSOR_AXES))
        call_sizes_of(c, "stride", 1, spec->stride, p->spatial);
    call_sizes_of(c, "padding", 0, spec->before, p->spatial);
    memcpy(spec->after, spec->before, sizeof spec->after);
    if (c->r->failed)
        return 0;
    const int64_t before = spec->after[0] + spec->after[1] + spec->after[2];
    if (call_bool(c, "ceil_mode"))
        round_up_size(p, window, spec);
    return spec->after[0] + spec->after[1] + spec->after[2] - before;
}

/* Where an element was taken from is not known here. */
static void refuse_places(struct call *c, int part)
{
    if (part)
        recording_fail(c->r, CKPT_EFORMAT, "the places of the largest elements are read");
}

static struct tensor op_max_pool(struct call *c, int part)
{
    struct ckpt_pool_spec spec = CKPT_POOL_INIT;
    struct picture p = picture_read(c, "self");
    int64_t window[TENSOR_AXES], dilation[TENSOR_AXES];

    refuse_places(c, part);
    if (c->r->failed)
        return p.a;
    read_windows(c, &p, window, &spec);
    call_ints_of(c, "dilation", dilation, p.spatial);
    for (int i = 0; i < p.spatial; i++)
        if (dilation[i] != 1)
            recording_fail(c->r, CKPT_EFORMAT, "a pool with gaps cannot be recorded");
    return picture_of(c, c->r->failed ? p.a.x : ckpt_max_pool(c->r->t, p.a.x, window, &spec));
}

/* The number by which PyTorch divides the sum of a window of one axis: padding that the model asked
 * for counts, that of rounding up does not. */
static double window_count(const struct picture *p, const struct ckpt_pool_spec *spec,
                           const int64_t *window, const int64_t *after, int axis, int64_t i)
{
    const int64_t begin = i * spec->stride[axis] - spec->before[axis];
    const int64_t end = p->a.shape[1 + axis] + after[axis];

    return (double)(begin + window[axis] < end ? window[axis] : end - begin);
}

/* Means that were divided by the window's size, divided by other numbers instead. */
static ckpt_tensor divide_again(struct call *c, const struct picture *p, ckpt_tensor y,
                                const struct ckpt_pool_spec *spec, const int64_t *window,
                                const int64_t *after, double divisor)
{
    const struct ckpt_desc d = ckpt_desc_of(c->r->t, y);

    for (int k = 0; k < p->spatial && d.ndim > 0 && !c->r->failed; k++) {
        int64_t shape[TENSOR_AXES] = {1, 1, 1, 1, 1};
        shape[1 + k] = d.shape[1 + k];
        struct tensor w = tensor_zeros(c->r, c->dtype, d.ndim, shape);
        for (int64_t i = 0; i < shape[1 + k] && !c->r->failed; i++)
            w.f[i] = (double)window[k] / (divisor == 0 ? window_count(p, spec, window, after, k, i)
                                          : k          ? 1
                                                       : divisor);
        y = ckpt_mul(c->r->t, y, tensor_record(c->r, &w));
    }
    return y;
}

static struct tensor op_avg_pool(struct call *c, int part)
{
    struct ckpt_pool_spec spec = CKPT_POOL_INIT;
    struct picture p = picture_read(c, "self");
    int64_t window[TENSOR_AXES], after[TENSOR_AXES] = {0};
    double divisor = 0;

    (void)part;
    if (c->r->failed)
        return p.a;
    call_ints_of(c, "padding", after, p.spatial);
    const bool beyond = read_windows(c, &p, window, &spec) > 0;
    if (pt2_arg_find(c->node, "divisor_override") && call_has(c, "divisor_override"))
        divisor = call_double(c, "divisor_override");
    spec.count_include_pad = call_bool(c, "count_include_pad") || divisor != 0;
    if (c->r->failed)
        return p.a;
    ckpt_tensor y = ckpt_avg_pool(c->r->t, p.a.x, window, &spec);
    if (divisor != 0 || (beyond && spec.count_include_pad))
        y = divide_again(c, &p, y, &spec, window, after, divisor);
    return picture_of(c, y);
}

/* To a single element: the mean over all. */
static struct tensor op_adaptive_avg_pool(struct call *c, int part)
{
    struct picture p = picture_read(c, "self");
    int64_t size[TENSOR_AXES];
    unsigned mask = 0;
    bool one = true;

    (void)part;
    if (c->r->failed)
        return p.a;
    call_sizes_of(c, "output_size", 1, size, p.spatial);
    if (c->r->failed)
        return p.a;
    for (int i = 0; i < p.spatial; i++) {
        one = one && size[i] == 1;
        mask |= 2u << i;
    }
    if (!one)
        return picture_of(c, ckpt_adaptive_avg_pool(c->r->t, p.a.x, size));
    return picture_of(c, ckpt_cast(c->r->t, ckpt_mean(c->r->t, p.a.x, mask), tape_dtype(c->dtype)));
}

/* ---- padding --------------------------------------------------------------------------------- */

/* The elements of the other end, as if the axis went round. */
static struct tensor pad_circular(struct call *c, struct tensor a, int axis, int64_t before,
                                  int64_t after)
{
    struct tensor parts[3];
    const int64_t size = a.shape[axis];
    int n = 0;

    if (before)
        parts[n++] = view_slice(c->r, a, axis, size - before, size, 1);
    parts[n++] = a;
    if (after)
        parts[n++] = view_slice(c->r, a, axis, 0, after, 1);
    return c->r->failed ? a : join_tensors(c->r, axis, n, parts);
}

static struct tensor pad_constant(struct call *c, struct tensor a, int axis, int64_t before,
                                  int64_t after, double value)
{
    struct tensor parts[3], fill = tensor_number(c->r, a.dtype, value, (int64_t)value);
    int64_t shape[TENSOR_AXES];
    int n = 0;

    memcpy(shape, a.shape, sizeof shape);
    shape[axis] = before;
    if (before)
        parts[n++] = view_expand(c->r, fill, a.ndim, shape);
    parts[n++] = a;
    shape[axis] = after;
    if (after)
        parts[n++] = view_expand(c->r, fill, a.ndim, shape);
    return join_tensors(c->r, axis, n, parts);
}

static struct tensor pad_axis(struct call *c, struct tensor a, int axis, const int64_t *by,
                              const char *mode)
{
    const int64_t cut[2] = {by[0] < 0 ? -by[0] : 0, by[1] < 0 ? -by[1] : 0};
    const int64_t before = by[0] > 0 ? by[0] : 0, after = by[1] > 0 ? by[1] : 0;
    const bool constant = !strcmp(mode, "constant");
    const double value = constant && call_has(c, "value") ? call_double(c, "value") : 0;

    if (cut[0] || cut[1])
        a = view_slice(c->r, a, axis, cut[0], a.shape[axis] - cut[1], 1);
    if ((!before && !after) || c->r->failed)
        return a;
    if (a.constant && constant)
        return pad_constant(c, a, axis, before, after, value);
    if (!strcmp(mode, "circular"))
        return pad_circular(c, a, axis, before, after);
    tensor_record(c->r, &a);
    struct tensor y = tensor_of(c->r, a.dtype,
                                ckpt_pad(c->r->t, a.plain.id ? a.plain : a.x,
                                         a.plain.id ? a.order[axis] : axis, before, after,
                                         constant                     ? CKPT_PAD_CONSTANT
                                         : !strcmp(mode, "replicate") ? CKPT_PAD_REPLICATE
                                                                      : CKPT_PAD_REFLECT,
                                         (float)value));
    return a.plain.id && !c->r->failed ? view_permute(c->r, y, a.order) : y;
}

static struct tensor pad(struct call *c, const char *argument, const char *mode)
{
    struct tensor a = call_tensor(c, "self");
    int64_t by[2 * TENSOR_AXES];
    const int n = call_ints(c, argument, by, 2 * TENSOR_AXES);

    if (n % 2 || n / 2 > a.ndim)
        recording_fail(c->r, CKPT_EFORMAT, "%d numbers pad %d axes", n, a.ndim);
    for (int k = 0; k < n && !c->r->failed; k++)
        if (by[k] < -CALL_LARGEST || by[k] > CALL_LARGEST)
            recording_fail(c->r, CKPT_ESHAPE, "an axis is padded by %lld elements",
                           (long long)by[k]);
    for (int k = 0; k < n / 2 && !c->r->failed; k++)
        a = pad_axis(c, a, a.ndim - 1 - k, by + 2 * (size_t)k, mode);
    return a;
}

static struct tensor op_pad(struct call *c, int part)
{
    (void)part;
    return pad(c, "pad", call_text(c, "mode"));
}

static struct tensor op_constant_pad(struct call *c, int part)
{
    (void)part;
    return pad(c, "pad", "constant");
}

static struct tensor op_reflection_pad(struct call *c, int part)
{
    (void)part;
    return pad(c, "padding", "reflect");
}

static struct tensor op_replication_pad(struct call *c, int part)
{
    (void)part;
    return pad(c, "padding", "replicate");
}

static struct tensor op_adaptive_max_pool(struct call *c, int part)
{
    struct picture p = picture_read(c, "self");
    int64_t size[TENSOR_AXES];

    refuse_places(c, part);
    if (c->r->failed)
        return p.a;
    call_sizes_of(c, "output_size", 1, size, p.spatial);
    return picture_of(c, c->r->failed ? p.a.x : ckpt_adaptive_max_pool(c->r->t, p.a.x, size));
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_picture[] = {
    OP("conv1d.default", op_conv),
    OP("conv2d.default", op_conv),
    OP("conv3d.default", op_conv),
    OP("conv1d.padding", op_conv),
    OP("conv2d.padding", op_conv),
    OP("conv3d.padding", op_conv),
    OP("convolution.default", op_convolution),
    OP("conv_transpose1d.default", op_conv_transpose),
    OP("conv_transpose2d.input", op_conv_transpose),
    OP("conv_transpose3d.input", op_conv_transpose),
    OP("max_pool1d.default", op_max_pool),
    OP("max_pool2d.default", op_max_pool),
    OP("max_pool3d.default", op_max_pool),
    OP("max_pool2d_with_indices.default", op_max_pool),
    OP("max_pool3d_with_indices.default", op_max_pool),
    OP("adaptive_max_pool1d.default", op_adaptive_max_pool),
    OP("adaptive_max_pool2d.default", op_adaptive_max_pool),
    OP("adaptive_max_pool3d.default", op_adaptive_max_pool),
    OP("avg_pool1d.default", op_avg_pool),
    OP("avg_pool2d.default", op_avg_pool),
    OP("avg_pool3d.default", op_avg_pool),
    OP("adaptive_avg_pool1d.default", op_adaptive_avg_pool),
    OP("adaptive_avg_pool2d.default", op_adaptive_avg_pool),
    OP("adaptive_avg_pool3d.default", op_adaptive_avg_pool),
    OP("pad.default", op_pad),
    OP("constant_pad_nd.default", op_constant_pad),
    OP("reflection_pad1d.default", op_reflection_pad),
    OP("reflection_pad2d.default", op_reflection_pad),
    OP("reflection_pad3d.default", op_reflection_pad),
    OP("replication_pad1d.default", op_replication_pad),
    OP("replication_pad2d.default", op_replication_pad),
    OP("replication_pad3d.default", op_replication_pad),
    {NULL, NULL, NULL, NULL, false},
};

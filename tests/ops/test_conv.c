/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions in one to three axes with stride, dilation and groups, transposed ones, and pools
 * whose windows overlap, against the definitions; gradients as in test_gradients.
 */
#include "shapes/conv.h"
#include "harness.h"
#include "ops.h"

#include <math.h>
#include <string.h>

/*
 * Attributes of a case: conv as in reference.h; size[0..2] the dilation or the window, size[3..5]
 * the output padding; axis the groups; mask whether padding counts.  Of three axes the last ones.
 */
enum { MORE = 3 };

/* ---- references: loops over every pair of places ----------------------------------------------
 */

/* Spatial sizes of [n, ..., c] as three. */
static void sizes_of(const struct array *x, int64_t *size)
{
    for (int i = 0; i < 3; i++)
        size[i] = i + x->ndim < 5 ? 1 : x->shape[i + x->ndim - 4];
}

static int64_t volume(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

static void split(int64_t place, const int64_t *size, int64_t *at)
{
    for (int i = 2; i >= 0; i--) {
        at[i] = place % size[i];
        place /= size[i];
    }
}

static void shape_of(const struct array *like, const int64_t *size, int64_t channels,
                     int64_t *shape)
{
    shape[0] = like->shape[0];
    memcpy(shape + 1, size + 5 - like->ndim, sizeof(*size) * (size_t)(like->ndim - 2));
    shape[like->ndim - 1] = channels;
}

/* The position of tap t of place o of the smaller side of a convolution on the larger side, or -1.
 * */
static int64_t reach(const struct op_attr *a, const int64_t *o, const int64_t *t,
                     const int64_t *size)
{
    int64_t place = 0;
    for (int i = 0; i < 3; i++) {
        int64_t at = o[i] * a->conv[0][i] - a->conv[1][i] + t[i] * a->size[i];
        if (at < 0 || at >= size[i])
            return -1;
        place = place * size[i] + at;
    }
    return place;
}

/* The products of one sample: large [size, C], small [to, K], w [K, kernel, C / groups]. */
static void add_products(const struct op_attr *a, const int64_t *size, const int64_t *to,
                         const struct array *w, double *large, double *small, bool transposed)
{
    int64_t kernel[3], o[3], t[3], K = w->shape[0], of_group = w->shape[w->ndim - 1];
    int64_t C = of_group * a->axis;
    sizes_of(w, kernel);
    for (int64_t p = 0; p < volume(to); p++)
        for (int64_t tap = 0; tap < volume(kernel); tap++) {
            split(p, to, o);
            split(tap, kernel, t);
            int64_t at = reach(a, o, t, size);
            for (int64_t k = 0; k < K && at >= 0; k++)
                for (int64_t c = 0; c < of_group; c++) {
                    double v = w->x[(k * volume(kernel) + tap) * of_group + c];
                    double *x = &large[at * C + k / (K / a->axis) * of_group + c];
                    if (transposed)
                        *x += v * small[p * K + k];
                    else
                        small[p * K + k] += v * *x;
                }
        }
}

static void add_bias(struct array *y, const struct array *b)
{
    for (int64_t i = 0; b->ndim >= 0 && i < y->n; i++)
        y->x[i] += b->x[i % b->n];
}

static void ref_any_conv(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t size[3], kernel[3], to[3], shape[5], K = in[1].shape[0];
    int64_t C = in[0].shape[in[0].ndim - 1];
    sizes_of(&in[0], size);
    sizes_of(&in[1], kernel);
    for (int i = 0; i < 3; i++)
        to[i] = (size[i] + a->conv[1][i] + a->conv[2][i] - a->size[i] * (kernel[i] - 1) - 1) /
                    a->conv[0][i] +
                1;
    shape_of(&in[0], to, K, shape);
    array_init(out, in[0].ndim, shape);
    for (int64_t n = 0; n < shape[0]; n++)
        add_products(a, size, to, &in[1], in[0].x + n * volume(size) * C,
                     out->x + n * volume(to) * K, false);
    add_bias(out, &in[2]);
}

/* {dy, x} -> dw: every product of the function above is added to its weight. */
static void ref_dw(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t size[3], to[3], o[3], t[3], shape[5], K = in[0].shape[in[0].ndim - 1];
    int64_t C = in[1].shape[in[1].ndim - 1], of_group = C / a->axis;
    const int64_t *kernel = &a->size[MORE];
    sizes_of(&in[1], size);
    sizes_of(&in[0], to);
    shape_of(&in[1], kernel, of_group, shape);
    shape[0] = K;
    array_init(out, in[0].ndim, shape);
    for (int64_t i = 0; i < in[0].n; i++)
        for (int64_t tap = 0; tap < volume(kernel); tap++) {
            int64_t k = i % K, n = i / K / volume(to);
            split(i / K % volume(to), to, o);
            split(tap, kernel, t);
            int64_t at = reach(a, o, t, size);
            for (int64_t c = 0; c < of_group && at >= 0; c++)
                out->x[(k * volume(kernel) + tap) * of_group + c] +=
                    in[0].x[i] *
                    in[1].x[(n * volume(size) + at) * C + k / (K / a->axis) * of_group + c];
        }
}

static void ref_transpose(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t size[3], kernel[3], to[3], shape[5], K = in[1].shape[0];
    int64_t C = in[1].shape[in[1].ndim - 1] * a->axis;
    sizes_of(&in[0], to);
    sizes_of(&in[1], kernel);
    for (int i = 0; i < 3; i++)
        size[i] = (to[i] - 1) * a->conv[0][i] - a->conv[1][i] - a->conv[2][i] +
                  a->size[i] * (kernel[i] - 1) + 1 + a->size[MORE + i];
    shape_of(&in[0], size, C, shape);
    array_init(out, in[0].ndim, shape);
    for (int64_t n = 0; n < shape[0]; n++)
        add_products(a, size, to, &in[1], out->x + n * volume(size) * C,
                     in[0].x + n * volume(to) * K, true);
    add_bias(out, &in[2]);
}

/* One place of the result: the largest value, or the mean. */
static double pooled(const struct array *x, const struct op_attr *a, const int64_t *size,
                     const int64_t *o, int64_t n, int64_t c, bool largest)
{
    struct op_attr by = *a; /* reach() goes from tap to tap by these */
    int64_t t[3], seen = 0, C = x->shape[x->ndim - 1];
    double value = largest ? -INFINITY : 0;
    for (int i = 0; i < 3; i++)
        by.size[i] = 1;
    for (int64_t tap = 0; tap < volume(a->size); tap++) {
        split(tap, a->size, t);
        int64_t at = reach(&by, o, t, size);
        if (at < 0)
            continue;
        double v = x->x[(n * volume(size) + at) * C + c];
        value = largest ? fmax(value, v) : value + v;
        seen++;
    }
    return largest ? value : value / (double)(a->mask ? volume(a->size) : seen);
}

static void pool_all(const struct array *in, struct array *out, const struct op_attr *a,
                     bool largest)
{
    int64_t size[3], to[3], shape[5], o[3], C = in->shape[in->ndim - 1];
    sizes_of(in, size);
    for (int i = 0; i < 3; i++)
        to[i] = (size[i] + a->conv[1][i] + a->conv[2][i] - a->size[i]) / a->conv[0][i] + 1;
    shape_of(in, to, C, shape);
    array_init(out, in->ndim, shape);
    for (int64_t i = 0; i < out->n; i++) {
        split(i / C % volume(to), to, o);
        out->x[i] = pooled(in, a, size, o, i / C / volume(to), i % C, largest);
    }
}

static void ref_largest(const struct array *in, struct array *out, const struct op_attr *a)
{
    pool_all(in, out, a, true);
}

static void ref_means(const struct array *in, struct array *out, const struct op_attr *a)
{
    pool_all(in, out, a, false);
}

/* ---- cases ------------------------------------------------------------------------------------
 */

/* Sizes of a convolution: of the larger side, of the kernel, of the groups. */
struct sizes {
    int ndim;
    int64_t n, x[3], kernel[3], of_group, k_of_group;
};

static void set_axis(struct op_attr *a, int i, int64_t stride, int64_t before, int64_t after,
                     int64_t dilation)
{
    a->conv[0][i] = stride;
    a->conv[1][i] = before;
    a->conv[2][i] = after;
    a->size[i] = dilation;
}

static void no_steps(struct op_attr *a)
{
    for (int i = 0; i < 3; i++)
        set_axis(a, i, 1, 0, 0, 1);
    a->axis = 1;
}

/* Several tiles and parts of sums: an odd picture in groups, a long dilated sequence. */
static struct sizes draw_large(struct op_attr *a, int trial, bool depthwise)
{
    if (trial == TRIAL_LARGE) {
        set_axis(a, 1, 2, 1, 1, 1);
        set_axis(a, 2, 1, 2, 2, 2);
        a->axis = depthwise ? 72 : 3;
        return (struct sizes){4, 2, {1, 33, 31}, {1, 3, 3}, depthwise ? 1 : 24, depthwise ? 1 : 8};
    }
    set_axis(a, 2, 1, 12, 0, depthwise ? 1 : 4); /* causal */
    a->axis = depthwise ? 11 : 2;
    if (depthwise) /* more taps than a GPU keeps beside the places */
        return (struct sizes){3, 1, {1, 1, 400}, {1, 1, 250}, 1, 2};
    return (struct sizes){3, 3, {1, 1, 900}, {1, 1, 4}, 6, 35};
}

static struct sizes draw_sizes(struct op_attr *a, struct rng *r, int trial, bool depthwise)
{
    struct sizes s = {draw_rank(r, 3, 5), 1, {1, 1, 1}, {1, 1, 1}, 1, 1};
    no_steps(a);
    if (trial >= TRIAL_LARGE)
        return draw_large(a, trial, depthwise);
    if (trial == TRIAL_TINY)
        return s;
    s.n = rng_range(r, 1, 2);
    a->axis = (int)rng_range(r, depthwise ? 2 : 1, 3);
    s.of_group = depthwise ? 1 : rng_range(r, 1, 3);
    s.k_of_group = rng_range(r, 1, 2);
    for (int i = 5 - s.ndim; i < 3; i++) {
        s.x[i] = rng_range(r, 1, s.ndim == 3 ? 9 : 4);
        s.kernel[i] = trial % 4 == 3 ? 1 : rng_range(r, 1, 3);
        int64_t dilation = rng_range(r, 1, 3), reach = (s.kernel[i] - 1) * dilation + 1;
        set_axis(a, i, rng_range(r, 1, 3), rng_range(r, 0, 2), rng_range(r, 0, 2), dilation);
        while (s.x[i] + a->conv[1][i] + a->conv[2][i] < reach)
            a->conv[1 + i % 2][i]++;
    }
    return s;
}

static void add_picture(struct op_case *c, struct rng *r, int ndim, int64_t n, const int64_t *size,
                        int64_t channels)
{
    int64_t shape[5] = {n};
    memcpy(shape + 1, size + 5 - ndim, sizeof(*size) * (size_t)(ndim - 2));
    shape[ndim - 1] = channels;
    case_add(c, r, ROLE_PARAM, ndim, shape);
}

static void add_weights(struct op_case *c, struct rng *r, const struct sizes *s, int64_t bias)
{
    add_picture(c, r, s->ndim, s->k_of_group * c->attr.axis, s->kernel, s->of_group);
    if (bias)
        case_add(c, r, ROLE_PARAM, 1, &bias);
    else
        case_add_absent(c);
}

static void draw_any(struct op_case *c, struct rng *r, int trial, bool depthwise)
{
    struct sizes s = draw_sizes(&c->attr, r, trial, depthwise);
    add_picture(c, r, s.ndim, s.n, s.x, s.of_group * c->attr.axis);
    add_weights(c, r, &s, trial % 3 == 1 ? 0 : s.k_of_group * c->attr.axis);
}

static void draw_conv(struct op_case *c, struct rng *r, int trial)
{
    draw_any(c, r, trial, false);
}

static void draw_depthwise(struct op_case *c, struct rng *r, int trial)
{
    draw_any(c, r, trial, true);
}

/* The smaller side is given; the padding leaves at least one place. */
static void draw_transpose(struct op_case *c, struct rng *r, int trial)
{
    struct op_attr *a = &c->attr;
    struct sizes s = draw_sizes(a, r, trial, trial % 5 == 2);
    for (int i = 0; i < 3; i++) {
        int64_t reach = (s.x[i] - 1) * a->conv[0][i] + a->size[i] * (s.kernel[i] - 1) + 1;
        while (reach - a->conv[1][i] - a->conv[2][i] < 1)
            a->conv[a->conv[1][i] ? 1 : 2][i]--;
        if (i >= 5 - s.ndim)
            a->size[MORE + i] = rng_range(r, 0, a->conv[0][i] - 1 + a->conv[2][i]);
    }
    add_picture(c, r, s.ndim, s.n, s.x, s.k_of_group * a->axis);
    add_weights(c, r, &s, trial % 3 == 1 ? 0 : s.of_group * a->axis);
}

static struct ckpt_conv_spec spec_of(const struct op_case *c)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    int absent = 5 - c->in[0].value.ndim;
    for (int i = absent; i < 3; i++) {
        spec.stride[i - absent] = c->attr.conv[0][i];
        spec.before[i - absent] = c->attr.conv[1][i];
        spec.after[i - absent] = c->attr.conv[2][i];
        spec.dilation[i - absent] = c->attr.size[i];
        spec.output_padding[i - absent] = c->attr.size[MORE + i];
    }
    spec.groups = c->attr.axis;
    return spec;
}

static ckpt_tensor record_conv(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct ckpt_conv_spec spec = spec_of(c);
    return ckpt_conv(t, in[0], in[1], in[2], &spec);
}

static ckpt_tensor record_transpose(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct ckpt_conv_spec spec = spec_of(c);
    return ckpt_conv_transpose(t, in[0], in[1], in[2], &spec);
}

/* The gradient of a weight as an op of its own: size[MORE...] is the kernel. */
static void draw_dw(struct op_case *c, struct rng *r, int trial)
{
    struct op_attr *a = &c->attr;
    struct sizes s = draw_sizes(a, r, trial, trial % 5 == 2);
    int64_t to[3];
    for (int i = 0; i < 3; i++) {
        to[i] = (s.x[i] + a->conv[1][i] + a->conv[2][i] - a->size[i] * (s.kernel[i] - 1) - 1) /
                    a->conv[0][i] +
                1;
        a->size[MORE + i] = s.kernel[i];
    }
    add_picture(c, r, s.ndim, s.n, to, s.k_of_group * a->axis);
    add_picture(c, r, s.ndim, s.n, s.x, s.of_group * a->axis);
}

static ckpt_tensor record_dw(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct conv_attr attr = {.groups = c->attr.axis};
    for (int i = 0; i < 3; i++) {
        attr.stride[i] = c->attr.conv[0][i];
        attr.before[i] = c->attr.conv[1][i];
        attr.after[i] = c->attr.conv[2][i];
        attr.dilation[i] = c->attr.size[i];
        attr.size[i] = c->attr.size[MORE + i];
    }
    return OPS_RECORD(t, &op_conv_dw, &attr, in[0], in[1]);
}

/* ---- pools ------------------------------------------------------------------------------------
 */

static void draw_pool(struct op_case *c, struct rng *r, int trial)
{
    struct op_attr *a = &c->attr;
    int ndim = trial >= TRIAL_LARGE ? 4 : draw_rank(r, 3, 5);
    int64_t x[3] = {1, 1, 1}, channels = trial >= TRIAL_LARGE ? 300 : rng_range(r, 1, 3);
    no_steps(a);
    a->mask = trial % 2;
    for (int i = 5 - ndim; i < 3 && trial != TRIAL_TINY; i++) {
        int64_t window = rng_range(r, 1, 4);
        x[i] = trial >= TRIAL_LARGE ? 11 + i : rng_range(r, 1, ndim == 3 ? 9 : 4);
        set_axis(a, i, trial % 4 == 3 ? window : rng_range(r, 1, 3), rng_range(r, 0, window - 1),
                 rng_range(r, 0, window - 1), window);
        x[i] += window > x[i] + a->conv[1][i] + a->conv[2][i] ? window : 0;
    }
    add_picture(c, r, ndim, trial == TRIAL_TINY ? 1 : 2, x, trial == TRIAL_TINY ? 1 : channels);
}

/* No two values of a window are equal, also in bf16: a difference quotient would have two slopes.
 * */
static void draw_largest(struct op_case *c, struct rng *r, int trial)
{
    draw_pool(c, r, trial);
    struct array *x = &c->in[0].value;
    int64_t channels = x->shape[x->ndim - 1];
    for (int64_t i = 0; i < x->n; i++)
        x->x[i] = (double)((i / channels + 5 * (i % channels)) * 37 % 251 - 125) / 16;
}

static struct ckpt_pool_spec pool_spec_of(const struct op_case *c, int64_t *window)
{
    struct ckpt_pool_spec spec = CKPT_POOL_INIT;
    int absent = 5 - c->in[0].value.ndim;
    for (int i = absent; i < 3; i++) {
        window[i - absent] = c->attr.size[i];
        spec.stride[i - absent] = c->attr.conv[0][i];
        spec.before[i - absent] = c->attr.conv[1][i];
        spec.after[i - absent] = c->attr.conv[2][i];
    }
    spec.count_include_pad = c->attr.mask != 0;
    return spec;
}

static ckpt_tensor record_largest(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    int64_t window[3];
    struct ckpt_pool_spec spec = pool_spec_of(c, window);
    return ckpt_max_pool(t, in[0], window, &spec);
}

static ckpt_tensor record_means(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    int64_t window[3];
    struct ckpt_pool_spec spec = pool_spec_of(c, window);
    return ckpt_avg_pool(t, in[0], window, &spec);
}

static const struct op_row rows[] = {
    {"conv", draw_conv, record_conv, ref_any_conv},
    {"conv_depthwise", draw_depthwise, record_conv, ref_any_conv},
    {"conv_transpose", draw_transpose, record_transpose, ref_transpose},
    {"conv_dw", draw_dw, record_dw, ref_dw},
    {"max_pool", draw_largest, record_largest, ref_largest},
    {"avg_pool", draw_pool, record_means, ref_means},
    {NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}

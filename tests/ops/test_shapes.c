/* SPDX-License-Identifier: Apache-2.0 */
/* Expand, repeat, stack, flip, roll, pad, masked fill, pools and resizing, against the definitions.
 */
#include "harness.h"

#include <math.h>
#include <string.h>

/* out of `shape`, whose element i is element from(i) of in, or `value`. */
struct place {
    int64_t outer, size, inner; /* of the result */
};

static struct place place_of(const struct array *x, int axis)
{
    struct place p = {1, x->shape[axis], 1};
    for (int i = 0; i < x->ndim; i++)
        if (i < axis)
            p.outer *= x->shape[i];
        else if (i > axis)
            p.inner *= x->shape[i];
    return p;
}

/* Copies place from(at) of the axis to place `at` of the result; -1: value. */
static void move_along(const struct array *in, struct array *out, const struct op_attr *a,
                       int64_t size, int64_t (*from)(int64_t at, int64_t n, const struct op_attr *))
{
    struct place p = place_of(in, a->axis);
    int64_t shape[CKPT_MAX_DIMS];
    memcpy(shape, in->shape, sizeof shape);
    shape[a->axis] = size;
    array_init(out, in->ndim, shape);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t o = i / (size * p.inner), at = from(i / p.inner % size, p.size, a);
        out->x[i] = at < 0 ? a->a : in->x[(o * p.size + at) * p.inner + i % p.inner];
    }
}

static int64_t flipped(int64_t at, int64_t n, const struct op_attr *a)
{
    (void)a;
    return n - 1 - at;
}

static int64_t rolled(int64_t at, int64_t n, const struct op_attr *a)
{
    return ((at - a->begin) % n + n) % n;
}

static int64_t padded(int64_t at, int64_t n, const struct op_attr *a)
{
    at -= a->begin;
    if (at >= 0 && at < n)
        return at;
    if (a->mask == CKPT_PAD_CONSTANT)
        return -1;
    if (a->mask == CKPT_PAD_REPLICATE)
        return at < 0 ? 0 : n - 1;
    return at < 0 ? -at : 2 * n - 2 - at;
}

static void ref_flip(const struct array *in, struct array *out, const struct op_attr *a)
{
    move_along(in, out, a, in->shape[a->axis], flipped);
}

static void ref_roll(const struct array *in, struct array *out, const struct op_attr *a)
{
    move_along(in, out, a, in->shape[a->axis], rolled);
}

static void ref_pad(const struct array *in, struct array *out, const struct op_attr *a)
{
    move_along(in, out, a, in->shape[a->axis] + a->begin + a->end, padded);
}

static void ref_expand(const struct array *in, struct array *out, const struct op_attr *a)
{
    array_init(out, a->n_size, a->size);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = in->x[array_broadcast(out, in, i)];
}

static void ref_repeat(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t shape[CKPT_MAX_DIMS];
    for (int i = 0; i < in->ndim; i++)
        shape[i] = in->shape[i] * a->size[i];
    array_init(out, in->ndim, shape);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t rest = i, at = 0, step = 1;
        for (int k = in->ndim - 1; k >= 0; k--) {
            at += rest % shape[k] % in->shape[k] * step;
            rest /= shape[k];
            step *= in->shape[k];
        }
        out->x[i] = in->x[at];
    }
}

static void ref_stack(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t shape[CKPT_MAX_DIMS], inner = 1;
    for (int i = 0, k = 0; i <= in[0].ndim; i++)
        shape[i] = i == a->axis ? 2 : in[0].shape[k++];
    for (int i = a->axis; i < in[0].ndim; i++)
        inner *= in[0].shape[i];
    array_init(out, in[0].ndim + 1, shape);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = in[i / inner % 2].x[i / (2 * inner) * inner + i % inner];
}

static void ref_masked_fill(const struct array *in, struct array *out, const struct op_attr *a)
{
    array_init(out, in[0].ndim, in[0].shape);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = in[1].x[array_broadcast(out, &in[1], i)] != 0 ? a->a : in[0].x[i];
}

/* ---- pictures [N, H, W, C]
 * ---------------------------------------------------------------------*/

/* The weight of place k of n in place `at` of `to`. */
static double share_of(const struct op_attr *a, int64_t at, int64_t to, int64_t k, int64_t n)
{
    if (a->mask == 2) /* nearest */
        return k == at * n / to;
    if (a->mask) { /* linear */
        double where = fmax(0, ((double)at + 0.5) * (double)n / (double)to - 0.5);
        return fmax(0, 1 - fabs(fmin(where, (double)(n - 1)) - (double)k));
    }
    int64_t begin = at * n / to, end = ((at + 1) * n + to - 1) / to;
    return k >= begin && k < end ? 1. / (double)(end - begin) : 0;
}

/* To size[0] x size[1], of the first begin x end places. */
static void ref_resize(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t h = a->size[0], w = a->size[1], c = in->shape[3];
    array_init(out, 4, (int64_t[]){in->shape[0], h, w, c});
    for (int64_t i = 0; i < out->n; i++) {
        int64_t n = i / (h * w * c), y = i / (w * c) % h, x = i / c % w;
        for (int64_t p = 0; p < a->begin; p++)
            for (int64_t q = 0; q < a->end; q++)
                out->x[i] += share_of(a, y, h, p, a->begin) * share_of(a, x, w, q, a->end) *
                             in->x[((n * in->shape[1] + p) * in->shape[2] + q) * c + i % c];
    }
}

/* The largest of each window; size and begin, end as above. */
static void ref_adaptive_max(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t h = a->size[0], w = a->size[1], c = in->shape[3];
    array_init(out, 4, (int64_t[]){in->shape[0], h, w, c});
    for (int64_t i = 0; i < out->n; i++) {
        int64_t n = i / (h * w * c), y = i / (w * c) % h, x = i / c % w;
        out->x[i] = -INFINITY;
        for (int64_t p = y * a->begin / h; p * h < (y + 1) * a->begin; p++)
            for (int64_t q = x * a->end / w; q * w < (x + 1) * a->end; q++)
                out->x[i] =
                    fmax(out->x[i], in->x[((n * in->shape[1] + p) * in->shape[2] + q) * c + i % c]);
    }
}

static void ref_shuffle(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t fh = a->size[0], fw = a->size[1], h = in->shape[1] * fh, w = in->shape[2] * fw;
    int64_t c = in->shape[3] / (fh * fw);
    array_init(out, 4, (int64_t[]){in->shape[0], h, w, c});
    for (int64_t i = 0; i < out->n; i++) {
        int64_t n = i / (h * w * c), y = i / (w * c) % h, x = i / c % w;
        int64_t from = (n * in->shape[1] + y / fh) * in->shape[2] + x / fw;
        out->x[i] = in->x[((from * c + i % c) * fh + y % fh) * fw + x % fw];
    }
}

static void draw_picture(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[4];
    draw_shape(r, trial < TRIAL_LARGE ? trial : 1, 4, 6, shape);
    case_add(c, r, ROLE_PARAM, 4, shape);
    for (int i = 0; i < 2; i++)
        c->attr.size[i] = rng_range(r, 1, trial == TRIAL_TINY ? 1 : 9);
    c->attr.begin = shape[1];
    c->attr.end = shape[2];
}

static void draw_linear(struct op_case *c, struct rng *r, int trial)
{
    draw_picture(c, r, trial);
    c->attr.mask = 1;
}

static void draw_nearest(struct op_case *c, struct rng *r, int trial)
{
    draw_picture(c, r, trial);
    c->attr.mask = 2;
}

/* No two values of a channel are equal, also in bf16: a difference quotient would have two slopes.
 * */
static void draw_largest(struct op_case *c, struct rng *r, int trial)
{
    draw_picture(c, r, trial);
    struct array *x = &c->in[0].value;
    int64_t channels = x->shape[3];
    for (int64_t i = 0; i < x->n; i++)
        x->x[i] = (double)((i / channels + 5 * (i % channels)) * 37 % 251 - 125) / 16;
}

/* begin and end become multiples of the windows; conv[0] holds the windows. */
static void draw_windows(struct op_case *c, struct rng *r, int trial)
{
    draw_picture(c, r, trial);
    int64_t *filled[] = {&c->attr.begin, &c->attr.end};
    for (int i = 0; i < 2; i++) {
        int64_t window = c->attr.conv[0][i] = rng_range(r, 1, *filled[i]);
        c->attr.size[i] = *filled[i] / window;
        *filled[i] = c->attr.size[i] * window;
    }
}

static void draw_shuffle(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[4];
    draw_shape(r, trial < TRIAL_LARGE ? trial : 1, 4, 4, shape);
    for (int i = 0; i < 2; i++)
        shape[3] *= c->attr.size[i] = rng_range(r, 1, 3);
    case_add(c, r, ROLE_PARAM, 4, shape);
}

static void draw_along(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    c->attr.axis = (int)rng_range(r, 0, o->value.ndim - 1);
    c->attr.begin = rng_range(r, -9, 9);
}

static void draw_pad(struct op_case *c, struct rng *r, int trial)
{
    draw_along(c, r, trial);
    int64_t most = c->in[0].value.shape[c->attr.axis] - 1;
    c->attr.mask = (unsigned)trial % 3;
    if (c->attr.mask != CKPT_PAD_REFLECT)
        most = 3;
    c->attr.begin = rng_range(r, 0, most);
    c->attr.end = rng_range(r, 0, most);
    c->attr.a = 0.5;
}

static void draw_expand(struct op_case *c, struct rng *r, int trial)
{
    c->attr.n_size = draw_rank(r, 1, 4);
    draw_shape(r, trial, c->attr.n_size, 6, c->attr.size);
    draw_broadcast(c, r, ROLE_PARAM, c->attr.n_size, c->attr.size);
}

static void draw_repeat(struct op_case *c, struct rng *r, int trial)
{
    draw_one(c, r, trial);
    for (int i = 0; i < 4; i++)
        c->attr.size[i] = rng_range(r, 1, 3);
}

static void draw_stack(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    c->attr.axis = (int)rng_range(r, 0, o->value.ndim);
    case_add(c, r, ROLE_PARAM, o->value.ndim, o->value.shape);
}

static void draw_fill(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    draw_broadcast(c, r, ROLE_INDEX, o->value.ndim, o->value.shape);
    draw_mask(&c->in[1], r);
    c->attr.a = -2;
}

#define RECORD(name, call)                                                                         \
    static ckpt_tensor record_##name(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c) \
    {                                                                                              \
        return call;                                                                               \
    }
RECORD(flip, ckpt_flip(t, in[0], c->attr.axis))
RECORD(roll, ckpt_roll(t, in[0], c->attr.axis, c->attr.begin))
RECORD(pad, ckpt_pad(t, in[0], c->attr.axis, c->attr.begin, c->attr.end,
                     (enum ckpt_padding)c->attr.mask, (float)c->attr.a))
RECORD(expand, ckpt_expand(t, in[0], c->attr.n_size, c->attr.size))
RECORD(repeat, ckpt_repeat(t, in[0], c->attr.size))
RECORD(stack, ckpt_stack(t, c->attr.axis, 2, in))
RECORD(fill, ckpt_masked_fill(t, in[0], in[1], (float)c->attr.a))

RECORD(avg_pool, ckpt_avg_pool(t, in[0], c->attr.conv[0], NULL))
RECORD(adaptive, ckpt_adaptive_avg_pool(t, in[0], c->attr.size))
RECORD(resize, ckpt_resize_linear(t, in[0], c->attr.size))
RECORD(adaptive_max, ckpt_adaptive_max_pool(t, in[0], c->attr.size))
RECORD(nearest, ckpt_resize_nearest(t, in[0], c->attr.size))
RECORD(shuffle, ckpt_pixel_shuffle(t, in[0], c->attr.size))

static const struct op_row rows[] = {
    {"expand", draw_expand, record_expand, ref_expand},
    {"repeat", draw_repeat, record_repeat, ref_repeat},
    {"stack", draw_stack, record_stack, ref_stack},
    {"flip", draw_along, record_flip, ref_flip},
    {"roll", draw_along, record_roll, ref_roll},
    {"pad", draw_pad, record_pad, ref_pad},
    {"masked_fill", draw_fill, record_fill, ref_masked_fill},
    {"avg_pool", draw_windows, record_avg_pool, ref_resize},
    {"adaptive_avg_pool", draw_picture, record_adaptive, ref_resize},
    {"adaptive_max_pool", draw_largest, record_adaptive_max, ref_adaptive_max},
    {"resize_nearest", draw_nearest, record_nearest, ref_resize},
    {"resize_linear", draw_linear, record_resize, ref_resize},
    {"pixel_shuffle", draw_shuffle, record_shuffle, ref_shuffle},
    {NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}

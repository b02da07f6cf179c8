/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resizing.  Each axis of a picture is multiplied by a matrix whose rows are the weights of a
 * result position; nearest neighbours are looked up.  Where positions follow from a factor that was
 * given, not from the sizes, that factor counts, as in PyTorch.
 */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

/* ---- positions ------------------------------------------------------------------------------- */

/* An axis of `from` elements that gets `to`; a step of 1 there is `scale` here. */
struct scaling {
    int64_t from, to;
    double scale;
    bool corners; /* the first and last elements lie upon each other */
};

/* What `scale_factors` has for an axis, or 0. */
static double factor_of(struct call *c, int axis, int spatial)
{
    const struct pt2_arg *a = pt2_arg_find(c->node, "scale_factors");

    if (!a || a->kind != ARG_LIST || a->list.n != spatial)
        return 0;
    struct item f = call_item(c, &a->list.item[axis]);
    return f.kind == ITEM_FLOAT ? f.f : f.kind == ITEM_INT ? (double)f.i : 0;
}

static struct scaling scaling_of(struct call *c, const struct picture *p, int axis)
{
    struct scaling s = {.from = p->a.shape[1 + axis]};
    const double factor = factor_of(c, axis, p->spatial);
    int64_t size[TENSOR_AXES] = {0};

    s.corners = pt2_arg_find(c->node, "align_corners") && call_bool(c, "align_corners");
    if (call_has(c, "output_size"))
        call_sizes_of(c, "output_size", 1, size, p->spatial);
    else if (factor > 0 && factor * (double)s.from < CALL_LARGEST)
        size[axis] = (int64_t)floor((double)s.from * factor);
    s.to = size[axis];
    if (s.to < 1 || s.from < 1)
        recording_fail(c->r, CKPT_EFORMAT,
                       "%lld elements of an axis resized by %g are none or too many",
                       (long long)s.from, factor);
    if (s.corners)
        s.scale = s.to > 1 ? (double)(s.from - 1) / (double)(s.to - 1) : 0;
    else
        s.scale = factor > 0 ? 1 / factor : (double)s.from / (double)s.to;
    if (!(s.scale * (double)s.to < 1e9))
        recording_fail(c->r, CKPT_EFORMAT, "a factor of resizing is out of range");
    return s;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Fills the weights of result position i, which are 0 yet. */
typedef void (*fill_row)(const struct scaling *s, int64_t i, double *row);

static int64_t inside(const struct scaling *s, int64_t at)
{
    return at < 0 ? 0 : at >= s->from ? s->from - 1 : at;
}

static double position(const struct scaling *s, int64_t i)
{
    return s->corners ? s->scale * (double)i : s->scale * ((double)i + 0.5) - 0.5;
}

static void linear_row(const struct scaling *s, int64_t i, double *row)
{
    const double at = fmax(0, position(s, i));
    const int64_t low = inside(s, (int64_t)at);
    const double share = fmin(1, fmax(0, at - (double)low));

    row[low] += 1 - share;
    row[inside(s, low + 1)] += share;
}

/* Keys 1981, with the parameter a. */
static double cubic(double x, double a)
{
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static void cubic_row(const struct scaling *s, int64_t i, double *row)
{
    const double at = position(s, i), low = floor(at);

    for (int k = -1; k < 3; k++)
        row[inside(s, (int64_t)low + k)] += cubic(at - low - k, -0.75);
}

static double triangle(double x)
{
    return fmax(0, 1 - fabs(x));
}

static double soft_cubic(double x)
{
    return cubic(x, -0.5);
}

/* A filter that is as wide as a result element where the picture shrinks. */
static void filter_row(const struct scaling *s, int64_t i, double *row, double (*filter)(double),
                       double reach)
{
    const double wide = fmax(1, s->scale);
    const double center = s->scale * ((double)i + 0.5);
    const int64_t begin = inside(s, (int64_t)fmax(0, center - reach * wide + 0.5));
    double end = fmin((double)s->from, floor(center + reach * wide + 0.5)), sum = 0;

    for (int64_t k = begin; k < (int64_t)end; k++)
        sum += row[k] = filter(((double)k - center + 0.5) / wide);
    for (int64_t k = begin; k < (int64_t)end; k++)
        row[k] /= sum;
}

static void smooth_linear_row(const struct scaling *s, int64_t i, double *row)
{
    filter_row(s, i, row, triangle, 1);
}

static void smooth_cubic_row(const struct scaling *s, int64_t i, double *row)
{
    filter_row(s, i, row, soft_cubic, 2);
}

/* ---- products -------------------------------------------------------------------------------- */

static ckpt_tensor multiply_axis(struct call *c, ckpt_tensor x, int axis, const struct scaling *s,
                                 fill_row fill)
{
    struct ckpt_desc d = ckpt_desc_of(c->r->t, x);
    int64_t flat[3] = {1, s->from, 1};

    if (d.ndim < 0)
        return CKPT_NONE;
    if ((double)s->to * (double)s->from > 0x1p26) {
        recording_fail(c->r, CKPT_ESHAPE, "a matrix of more than 2^26 weights resizes an axis");
        return CKPT_NONE;
    }
    struct tensor w = tensor_zeros(c->r, PT2_F64, 2, (int64_t[]){s->to, s->from});
    for (int64_t i = 0; i < s->to && !c->r->failed; i++)
        fill(s, i, w.f + i * s->from);
    for (int i = 0; i < d.ndim; i++)
        if (i != axis)
            flat[i < axis ? 0 : 2] *= d.shape[i];
    ckpt_tensor y = ckpt_matmul(c->r->t, tensor_record(c->r, &w), ckpt_reshape(c->r->t, x, 3, flat),
                                false, false);
    d.shape[axis] = s->to;
    return ckpt_reshape(c->r->t, y, d.ndim, d.shape);
}

static struct tensor resize_by(struct call *c, fill_row fill)
{
    struct picture p = picture_read(c, "input");
    ckpt_tensor x = c->r->failed ? CKPT_NONE : ckpt_cast(c->r->t, p.a.x, CKPT_F32);

    for (int i = 0; i < p.spatial && !c->r->failed; i++) {
        struct scaling s = scaling_of(c, &p, i);
        if (!c->r->failed && (s.to != s.from || s.scale != 1))
            x = multiply_axis(c, x, 1 + i, &s, fill);
    }
    return picture_of(c, c->r->failed ? x : ckpt_cast(c->r->t, x, tape_dtype(c->dtype)));
}

static bool follows_sizes(const struct scaling *s)
{
    return !s->corners && s->scale == (double)s->from / (double)s->to;
}

/* Plain linear resizing is an op of the tape. */
static struct tensor op_linear_resize(struct call *c, int part)
{
    struct picture p = picture_read(c, "input");
    int64_t size[TENSOR_AXES];
    bool plain = true;

    (void)part;
    for (int i = 0; i < p.spatial && !c->r->failed; i++) {
        struct scaling s = scaling_of(c, &p, i);
        size[i] = s.to;
        plain = plain && follows_sizes(&s);
    }
    if (!plain || c->r->failed)
        return resize_by(c, linear_row);
    return picture_of(c, ckpt_resize_linear(c->r->t, p.a.x, size));
}

static struct tensor op_cubic_resize(struct call *c, int part)
{
    (void)part;
    return resize_by(c, cubic_row);
}

static struct tensor op_smooth_linear(struct call *c, int part)
{
    (void)part;
    return resize_by(c, smooth_linear_row);
}

static struct tensor op_smooth_cubic(struct call *c, int part)
{
    (void)part;
    return resize_by(c, smooth_cubic_row);
}

/* ---- nearest neighbours ---------------------------------------------------------------------- */

/* The neighbours of all positions of an axis, found in fp32 as PyTorch does. */
static ckpt_tensor look_up(struct call *c, ckpt_tensor x, int axis, const struct scaling *s)
{
    const bool exact = strstr(c->op->name, "exact") != NULL;
    const float scale = (float)s->scale;
    struct tensor index = tensor_zeros(c->r, PT2_I64, 1, &s->to);

    for (int64_t i = 0; i < s->to && !c->r->failed; i++)
        index.i[i] = inside(s, (int64_t)floorf(((float)i + (exact ? 0.5f : 0.f)) * scale));
    return ckpt_index_select(c->r->t, x, axis, tensor_record(c->r, &index));
}

static struct tensor op_nearest_resize(struct call *c, int part)
{
    struct picture p = picture_read(c, "input");
    struct scaling s[3];
    int64_t factor[3];
    bool whole = true;

    (void)part;
    for (int i = 0; i < p.spatial && !c->r->failed; i++) {
        s[i] = scaling_of(c, &p, i);
        if (c->r->failed)
            return p.a;
        factor[i] = s[i].to / s[i].from;
        whole = whole && factor[i] * s[i].from == s[i].to && follows_sizes(&s[i]);
    }
    if (c->r->failed)
        return p.a;
    if (whole)
        return picture_of(c, ckpt_upsample_nearest(c->r->t, p.a.x, factor));
    for (int i = 0; i < p.spatial; i++)
        if (s[i].to != s[i].from || s[i].scale != 1)
            p.a.x = look_up(c, p.a.x, 1 + i, &s[i]);
    return picture_of(c, p.a.x);
}

/* ---- channels and space ---------------------------------------------------------------------- */

static struct tensor op_pixel_shuffle(struct call *c, int part)
{
    struct picture p = picture_read(c, "self");
    const int64_t f = call_int(c, "upscale_factor");

    (void)part;
    if (f < 1 || f > CALL_LARGEST)
        recording_fail(c->r, CKPT_ESHAPE, "a picture enlarged by %lld", (long long)f);
    return picture_of(c, c->r->failed ? p.a.x
                                      : ckpt_pixel_shuffle(c->r->t, p.a.x, (int64_t[]){f, f, f}));
}

/* [N, C, H f, W f] to [N, C f f, H, W]. */
static struct tensor op_pixel_unshuffle(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int64_t f = call_int(c, "downscale_factor");
    const int n = a.ndim - 3; /* axes before the channels */
    int64_t apart[TENSOR_AXES], joint[TENSOR_AXES];
    int axes[TENSOR_AXES];

    (void)part;
    if (n < 0 || n > 2 || f < 1 || f > CALL_LARGEST || a.shape[n + 1] % f || a.shape[n + 2] % f) {
        recording_fail(c->r, CKPT_ESHAPE, "a factor of %lld does not divide the picture",
                       (long long)f);
        return a;
    }
    memcpy(apart, a.shape, sizeof apart);
    memcpy(joint, a.shape, sizeof joint);
    for (int i = 0; i < 2; i++) {
        joint[n + 1 + i] = apart[n + 1 + 2 * i] = a.shape[n + 1 + i] / f;
        apart[n + 2 + 2 * i] = f;
    }
    joint[n] *= f * f;
    const int order[] = {0, 2, 4, 1, 3};
    for (int i = 0; i < n + 5; i++)
        axes[i] = i < n ? i : n + order[i - n];
    a = view_permute(c->r, view_reshape(c->r, a, n + 5, apart), axes);
    return c->r->failed ? a : view_reshape(c->r, a, n + 3, joint);
}

static struct tensor op_channel_shuffle(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int64_t groups = call_int(c, "groups"), n = a.ndim > 1 ? a.shape[1] : 0;
    struct tensor y = a;
    int64_t flat[4] = {a.shape[0], groups, groups ? n / groups : 0, 1};

    (void)part;
    for (int i = 2; i < a.ndim; i++)
        flat[3] *= a.shape[i];
    y = view_swap(c->r, view_reshape(c->r, a, 4, flat), 1, 2);
    return c->r->failed ? a : view_reshape(c->r, y, a.ndim, a.shape);
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_resize[] = {
    OP("upsample_nearest1d.vec", op_nearest_resize),
    OP("upsample_nearest2d.vec", op_nearest_resize),
    OP("upsample_nearest3d.vec", op_nearest_resize),
    OP("_upsample_nearest_exact1d.vec", op_nearest_resize),
    OP("_upsample_nearest_exact2d.vec", op_nearest_resize),
    OP("_upsample_nearest_exact3d.vec", op_nearest_resize),
    OP("upsample_linear1d.vec", op_linear_resize),
    OP("upsample_bilinear2d.vec", op_linear_resize),
    OP("upsample_trilinear3d.vec", op_linear_resize),
    OP("upsample_bicubic2d.vec", op_cubic_resize),
    OP("_upsample_bilinear2d_aa.vec", op_smooth_linear),
    OP("_upsample_bicubic2d_aa.vec", op_smooth_cubic),
    OP("pixel_shuffle.default", op_pixel_shuffle),
    OP("pixel_unshuffle.default", op_pixel_unshuffle),
    OP("channel_shuffle.default", op_channel_shuffle),
    {NULL, NULL, NULL, NULL, false},
};

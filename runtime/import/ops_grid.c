/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures read at places that a step computes, between their elements. */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

enum { BILINEAR, NEAREST };
enum { ZEROS, BORDER };

/* A picture [N, C, H W], and where to read it along x and y: [N, 1, places]. */
struct sampling {
    struct call *c;
    struct tensor a, at[2];
    int64_t size[2]; /* W and H */
};

static const struct unary down = {floor, ckpt_floor};

static struct tensor with(const struct sampling *s, enum binary f, struct tensor a, double b)
{
    return math_binary(s->c->r, f, a, tensor_number(s->c->r, PT2_F32, b, 0), PT2_F32);
}

static struct tensor is(const struct sampling *s, enum binary f, struct tensor a, double b)
{
    return math_binary(s->c->r, f, a, tensor_number(s->c->r, PT2_F32, b, 0), PT2_BOOL);
}

/* x where it is so to a bound, else the bound, without a gradient. */
static struct tensor bounded(const struct sampling *s, struct tensor x, enum binary f, double bound)
{
    return math_where(s->c->r, is(s, f, x, bound), x, tensor_number(s->c->r, PT2_F32, bound, 0),
                      PT2_F32);
}

/* From [-1, 1] to [0, size - 1] or, as if pixels had an extent, to [-1/2, size - 1/2]. */
static void read_places(struct sampling *s, struct tensor grid, int axis)
{
    const double n = (double)s->size[axis], wide = call_bool(s->c, "align_corners") ? n - 1 : n;
    struct recording *r = s->c->r;
    const int64_t shape[] = {grid.shape[0], 1, grid.shape[1] * grid.shape[2]};
    struct tensor x = view_slice(r, grid, 3, axis, axis + 1, 1);

    x = r->failed ? x : view_reshape(r, x, 3, shape);
    x = math_cast(r, x, PT2_F32);
    x = math_affine(r, x, wide / 2, (n - 1) / 2);
    if (call_int(s->c, "padding_mode") == BORDER)
        x = bounded(s, bounded(s, x, BINARY_GT, 0), BINARY_LT, n - 1);
    s->at[axis] = x;
}

/* The elements at whole places x and y times a weight [N, 1, places]; outside of the picture 0. */
static struct tensor corner(const struct sampling *s, const struct tensor *x, struct tensor weight)
{
    struct recording *r = s->c->r;
    struct tensor index[2], inside;

    for (int k = 0; k < 2 && !r->failed; k++) {
        const double last = (double)s->size[k] - 1;
        inside = math_binary(r, BINARY_AND, is(s, BINARY_GE, x[k], 0), is(s, BINARY_LE, x[k], last),
                             PT2_BOOL);
        weight = math_where(r, inside, weight, tensor_number(r, PT2_F32, 0, 0), PT2_F32);
        index[k] = bounded(s, bounded(s, x[k], BINARY_GT, 0), BINARY_LT, last);
    }
    if (r->failed)
        return weight;
    struct tensor place = with(s, BINARY_MUL, index[1], (double)s->size[0]);
    place = math_cast(r, math_binary(r, BINARY_ADD, place, index[0], PT2_F32), PT2_I64);
    const int64_t shape[] = {s->a.shape[0], s->a.shape[1], r->failed ? 0 : place.shape[2]};
    place = r->failed ? place : view_expand(r, place, 3, shape);
    tensor_record(r, &place);
    struct tensor a = s->a;
    if (r->failed)
        return a;
    a = tensor_of(r, s->c->dtype, ckpt_gather(r->t, a.x, 2, place.x));
    return math_binary(r, BINARY_MUL, a, weight, s->c->dtype);
}

static struct tensor bilinear(const struct sampling *s)
{
    struct recording *r = s->c->r;
    struct tensor x[2], y = s->a;

    for (int k = 0; k < 4 && !r->failed; k++) {
        struct tensor weight = tensor_number(r, PT2_F32, 1, 1);
        for (int i = 0; i < 2 && !r->failed; i++) {
            const bool far = k >> i & 1;
            struct tensor low = math_unary(r, &down, s->at[i], PT2_F32);
            struct tensor part = math_binary(r, BINARY_SUB, s->at[i], low, PT2_F32);
            part = far ? part : math_affine(r, part, -1, 1);
            x[i] = far ? with(s, BINARY_ADD, low, 1) : low;
            weight = math_binary(r, BINARY_MUL, part, weight, PT2_F32);
        }
        struct tensor one = corner(s, x, weight);
        y = k ? math_binary(r, BINARY_ADD, y, one, s->c->dtype) : one;
    }
    return y;
}

static struct tensor nearest(const struct sampling *s)
{
    static const struct unary round = {nearbyint, ckpt_round};
    struct tensor x[2] = {math_unary(s->c->r, &round, s->at[0], PT2_F32),
                          math_unary(s->c->r, &round, s->at[1], PT2_F32)};
    struct tensor one = tensor_number(s->c->r, PT2_F32, 1, 1);

    return s->c->r->failed ? one : corner(s, x, view_expand(s->c->r, one, 3, x[0].shape));
}

static struct tensor op_grid_sampler(struct call *c, int part)
{
    struct sampling s = {.c = c, .a = math_cast(c->r, call_tensor(c, "input"), c->dtype)};
    struct tensor grid = call_tensor(c, "grid");
    const int64_t how = call_int(c, "interpolation_mode");

    (void)part;
    if (s.a.ndim != 4 || grid.ndim != 4 || grid.shape[3] != 2 || how > NEAREST ||
        call_int(c, "padding_mode") > BORDER || s.a.shape[2] * s.a.shape[3] > MOST_WHOLE)
        recording_fail(
            c->r, CKPT_EFORMAT,
            "of grids pictures of up to 2^24 elements are read, bilinear or nearest, with "
            "zeros or the border around");
    const int64_t shape[] = {s.a.shape[0], s.a.shape[1], s.a.shape[2] * s.a.shape[3]};
    s.size[0] = s.a.shape[3];
    s.size[1] = s.a.shape[2];
    for (int k = 0; k < 2 && !c->r->failed; k++)
        read_places(&s, grid, k);
    s.a = c->r->failed ? s.a : view_reshape(c->r, s.a, 3, shape);
    tensor_record(c->r, &s.a);
    struct tensor y = c->r->failed ? s.a : how == NEAREST ? nearest(&s) : bilinear(&s);
    const int64_t whole[] = {shape[0], shape[1], grid.shape[1], grid.shape[2]};
    return c->r->failed ? y : view_reshape(c->r, y, 4, whole);
}

/* The places [N, H, W, 2] that matrices [N, 2, 3] give those of an even grid. */
static struct tensor op_affine_grid(struct call *c, int part)
{
    struct tensor theta = call_tensor(c, "theta");
    int64_t n[4];
    const bool corners = call_bool(c, "align_corners");

    (void)part;
    if (call_ints(c, "size", n, 4) != 4 || theta.ndim != 3)
        recording_fail(c->r, CKPT_EFORMAT, "an affine grid of a volume");
    for (int i = 2; i < 4 && !c->r->failed; i++)
        if (n[i] < 1 || n[i] > CALL_LARGEST || n[2] * n[3] > MOST_WHOLE)
            recording_fail(c->r, CKPT_ESHAPE, "an affine grid of these sizes");
    if (c->r->failed)
        return theta;
    struct tensor base = tensor_zeros(c->r, PT2_F32, 2, (int64_t[]){n[2] * n[3], 3});
    for (int64_t k = 0; k < n[2] * n[3] && !c->r->failed; k++) {
        const int64_t at[] = {k % n[3], k / n[3]}, size[] = {n[3], n[2]};
        for (int i = 0; i < 2; i++) {
            const double wide = size[i] > 1 ? (double)(2 * at[i] - size[i] + 1) : 0;
            base.f[k * 3 + i] =
                (float)(wide / (double)(corners && size[i] > 1 ? size[i] - 1 : size[i]));
        }
        base.f[k * 3 + 2] = 1;
    }
    base = c->r->failed ? base : view_unsqueeze(c->r, base, 0);
    const int64_t shape[] = {theta.shape[0], n[2] * n[3], 3};
    base = c->r->failed ? base : view_expand(c->r, base, 3, shape);
    struct tensor y = record_product(c, base, view_swap(c->r, theta, 1, 2));
    const int64_t whole[] = {theta.shape[0], n[2], n[3], 2};
    return c->r->failed ? y : view_reshape(c->r, y, 4, whole);
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_grid[] = {
    OP("grid_sampler.default", op_grid_sampler),
    OP("grid_sampler_2d.default", op_grid_sampler),
    OP("affine_grid_generator.default", op_affine_grid),
    {NULL, NULL, NULL, NULL, false},
};

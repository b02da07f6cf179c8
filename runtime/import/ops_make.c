/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors from numbers: constants of one value or in steps, random values. */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

/* ---- one value ------------------------------------------------------------------------------- */

/* One element that is repeated; `size` is in an argument, or that of `self`. */
static struct tensor uniform(struct call *c, struct tensor one)
{
    int64_t size[TENSOR_AXES];
    int n = 0;

    if (pt2_arg_find(c->node, "size")) {
        n = call_ints(c, "size", size, TENSOR_AXES);
    } else {
        struct tensor like = call_tensor(c, "self");
        n = like.ndim;
        memcpy(size, like.shape, sizeof size);
    }
    return view_expand(c->r, one, n, size);
}

/* What is empty is never read before it is written. */
static struct tensor op_zeros(struct call *c, int part)
{
    (void)part;
    return uniform(c, tensor_number(c->r, c->dtype, 0, 0));
}

static struct tensor op_ones(struct call *c, int part)
{
    (void)part;
    return uniform(c, tensor_number(c->r, c->dtype, 1, 1));
}

static struct tensor op_full(struct call *c, int part)
{
    (void)part;
    return uniform(c, math_cast(c->r, call_tensor(c, "fill_value"), c->dtype));
}

static struct tensor op_scalar_tensor(struct call *c, int part)
{
    (void)part;
    return math_cast(c->r, call_tensor(c, "s"), c->dtype);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool has_argument(struct call *c, const char *name)
{
    return pt2_arg_find(c->node, name) != NULL;
}

static struct tensor op_arange(struct call *c, int part)
{
    const double start = has_argument(c, "start") ? call_double(c, "start") : 0;
    const double step = has_argument(c, "step") ? call_double(c, "step") : 1;
    const double n = step != 0 ? ceil((call_double(c, "end") - start) / step) : 0;

    (void)part;
    if (!(n >= 0 && n < 1e9)) {
        recording_fail(c->r, CKPT_EFORMAT, "a range has %.0f elements", n);
        return tensor_number(c->r, c->dtype, 0, 0);
    }
    struct tensor a = tensor_zeros(c->r, c->dtype, 1, &(int64_t){(int64_t)n});
    for (int64_t k = 0; k < (int64_t)n && !c->r->failed; k++)
        if (pt2_is_float(c->dtype))
            a.f[k] = tensor_round(c->dtype, start + (double)k * step);
        else
            a.i[k] = (int64_t)(start + (double)k * step);
    return a;
}

static struct tensor op_linspace(struct call *c, int part)
{
    const double start = call_double(c, "start"), end = call_double(c, "end");
    const int64_t n = call_int(c, "steps");

    (void)part;
    if (n < 0 || !pt2_is_float(c->dtype)) {
        recording_fail(c->r, CKPT_EFORMAT, "a range has %lld steps", (long long)n);
        return tensor_number(c->r, c->dtype, 0, 0);
    }
    struct tensor a = tensor_zeros(c->r, c->dtype, 1, &n);
    double step = n > 1 ? (end - start) / (double)(n - 1) : 0;
    if (c->dtype != PT2_F64) /* as PyTorch rounds it: positions are products of thousands */
        step = n > 1 ? (float)(end - start) / (float)(n - 1) : 0;
    for (int64_t k = 0; k < n && !c->r->failed; k++)
        a.f[k] = tensor_round(c->dtype, k < n / 2 ? start + step * (double)k
                                                  : end - step * (double)(n - 1 - k));
    return a;
}

static struct tensor keep_triangle(struct call *c, bool upper)
{
    struct tensor a = call_tensor(c, "self");

    if (a.ndim < 2) {
        recording_fail(c->r, CKPT_ESHAPE, "a triangle of a tensor with %d axes", a.ndim);
        return a;
    }
    struct tensor keep = tensor_triangle(c->r, a.shape[a.ndim - 2], a.shape[a.ndim - 1],
                                         call_int(c, "diagonal"), upper);
    return math_where(c->r, keep, a, tensor_number(c->r, c->dtype, 0, 0), c->dtype);
}

static struct tensor op_tril(struct call *c, int part)
{
    (void)part;
    return keep_triangle(c, false);
}

static struct tensor op_triu(struct call *c, int part)
{
    (void)part;
    return keep_triangle(c, true);
}

static struct tensor op_eye(struct call *c, int part)
{
    const int64_t n = call_int(c, "n"), m = has_argument(c, "m") ? call_int(c, "m") : n;
    struct tensor a = tensor_zeros(c->r, PT2_I64, 2, (int64_t[]){n, m});

    (void)part;
    for (int64_t i = 0; i < n && i < m && !c->r->failed; i++)
        a.i[i * m + i] = 1;
    return math_cast(c->r, a, c->dtype);
}

static struct tensor op_one_hot(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int64_t classes = call_int(c, "num_classes");

    (void)part;
    if (classes < 1)
        recording_fail(c->r, CKPT_EFORMAT, "the number of classes depends on the step");
    ckpt_tensor x = tensor_record(c->r, &a);
    return c->r->failed ? a
                        : tensor_of(c->r, c->dtype, ckpt_one_hot(c->r->t, x, classes, CKPT_I32));
}

/* ---- random values --------------------------------------------------------------------------- */

static struct tensor like_of(struct call *c)
{
    struct tensor like = uniform(c, tensor_number(c->r, c->dtype, 0, 0));

    if (!like.ndim || !pt2_is_float(c->dtype))
        recording_fail(c->r, CKPT_EFORMAT, "random values without an axis or in whole numbers");
    return like;
}

static struct tensor op_randn(struct call *c, int part)
{
    struct tensor like = like_of(c);

    (void)part;
    return c->r->failed
               ? like
               : tensor_of(c->r, c->dtype,
                           ckpt_randn(c->r->t, tape_dtype(c->dtype), like.ndim, like.shape));
}

static struct tensor op_normal(struct call *c, int part)
{
    const struct tensor a = op_randn(c, part);

    return c->r->failed ? a : math_affine(c->r, a, call_double(c, "std"), call_double(c, "mean"));
}

/* The distribution function of normal values is uniform. */
static struct tensor rand_like(struct call *c, struct tensor like)
{
    if (c->r->failed)
        return like;
    ckpt_tensor x = ckpt_randn(c->r->t, CKPT_F32, like.ndim, like.shape);
    x = ckpt_affine(c->r->t, ckpt_erf(c->r->t, ckpt_affine(c->r->t, x, 0.70710678f, 0.f)), 0.5f,
                    0.5f);
    x = ckpt_clamp(c->r->t, x, 0.f, 0x1.fffffep-1f); /* 1 is no result */
    return tensor_of(c->r, PT2_F32, x);
}

static struct tensor op_rand(struct call *c, int part)
{
    (void)part;
    return math_cast(c->r, rand_like(c, like_of(c)), c->dtype);
}

/* Whole numbers of [low, high). */
static struct tensor op_randint(struct call *c, int part)
{
    const int64_t low = has_argument(c, "low") ? call_int(c, "low") : 0, high = call_int(c, "high");
    struct tensor like = uniform(c, tensor_number(c->r, PT2_F32, 0, 0));
    static const struct unary down = {floor, ckpt_floor};

    (void)part;
    if (!like.ndim || low >= high || low < -MOST_WHOLE || high > MOST_WHOLE ||
        high - low > MOST_WHOLE)
        recording_fail(c->r, CKPT_EFORMAT,
                       "random values without an axis, or not between -2^24 and 2^24");
    struct tensor a = rand_like(c, like);
    a = c->r->failed ? a : math_affine(c->r, a, (double)(high - low), 0);
    a = math_unary(c->r, &down, a, PT2_F32);
    return math_cast(c->r, c->r->failed ? a : math_affine(c->r, a, 1, (double)low), c->dtype);
}

/* The order of random values. */
static struct tensor op_randperm(struct call *c, int part)
{
    const int64_t n = call_int(c, "n");
    struct tensor a = rand_like(c, tensor_zeros(c->r, PT2_F32, 1, &n));

    (void)part;
    if (c->r->failed)
        return a;
    a = tensor_of(c->r, PT2_I64, ckpt_argsort(c->r->t, a.x, false));
    return math_cast(c->r, a, c->dtype);
}

static struct tensor op_uniform(struct call *c, int part)
{
    const double from = call_double(c, "from"), to = call_double(c, "to");
    const struct tensor a = op_rand(c, part);

    return c->r->failed ? a : math_affine(c->r, a, to - from, from);
}

static struct tensor op_exponential(struct call *c, int part)
{
    static const struct unary f = {NULL, ckpt_log1p};
    const double rate = call_double(c, "lambd");
    struct tensor a = op_rand(c, part);

    a = math_unary(c->r, &f, c->r->failed ? a : math_affine(c->r, a, -1, 0), c->dtype);
    return c->r->failed ? a : math_affine(c->r, a, -1 / rate, 0);
}

static struct tensor op_bernoulli(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    if (!a.ndim)
        recording_fail(c->r, CKPT_EFORMAT, "random values without an axis");
    return c->r->failed ? a
                        : tensor_of(c->r, c->dtype,
                                    ckpt_bernoulli(c->r->t, (float)call_double(c, "p"),
                                                   tape_dtype(c->dtype), a.ndim, a.shape));
}

/* 1 with a chance for each element. */
static struct tensor op_bernoulli_of(struct call *c, int part)
{
    struct tensor chance = math_cast(c->r, call_tensor(c, "self"), PT2_F32);
    struct tensor a = rand_like(c, like_of(c));

    (void)part;
    return math_cast(c->r, math_binary(c->r, BINARY_LT, a, chance, PT2_BOOL), c->dtype);
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_make[] = {
    OP("zeros.default", op_zeros),
    OP("zeros_like.default", op_zeros),
    OP("new_zeros.default", op_zeros),
    OP("empty.memory_format", op_zeros),
    OP("empty_like.default", op_zeros),
    OP("new_empty.default", op_zeros),
    OP("ones.default", op_ones),
    OP("ones_like.default", op_ones),
    OP("new_ones.default", op_ones),
    OP("full.default", op_full),
    OP("full_like.default", op_full),
    OP("new_full.default", op_full),
    OP("scalar_tensor.default", op_scalar_tensor),
    OP("arange.default", op_arange),
    OP("arange.start", op_arange),
    OP("arange.start_step", op_arange),
    OP("linspace.default", op_linspace),
    OP("one_hot.default", op_one_hot),
    OP("tril.default", op_tril),
    OP("triu.default", op_triu),
    OP("eye.default", op_eye),
    OP("eye.m", op_eye),
    OP("randn.default", op_randn),
    OP("randn_like.default", op_randn),
    OP("rand.default", op_rand),
    OP("rand_like.default", op_rand),
    OP("randint.default", op_randint),
    OP("randint.low", op_randint),
    OP("randint_like.default", op_randint),
    OP("randint_like.low_dtype", op_randint),
    OP("randperm.default", op_randperm),
    OP("normal.default", op_normal),
    OP("normal.float_float", op_normal),
    OP("uniform.default", op_uniform),
    OP("exponential.default", op_exponential),
    OP("bernoulli.default", op_bernoulli_of),
    OP("bernoulli.float", op_bernoulli),
    OP("bernoulli.p", op_bernoulli),
    {NULL, NULL, NULL, NULL, false},
};

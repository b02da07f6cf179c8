/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of complex numbers, and Fourier transforms: products with a matrix of cosines and one of
 * sines, n^2 of a transform of n elements.
 */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

/* ---- parts ----------------------------------------------------------------------------------- */

static struct tensor op_complex(struct call *c, int part)
{
    (void)part;
    return call_part(c, c->imaginary ? "imag" : "real", false);
}

static struct tensor op_real(struct call *c, int part)
{
    (void)part;
    return call_part(c, "self", false);
}

static struct tensor op_imag(struct call *c, int part)
{
    (void)part;
    return call_part(c, "self", true);
}

/* Of a real number itself. */
static struct tensor op_conj(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return c->imaginary ? math_affine(c->r, a, -1, 0) : a;
}

static struct tensor op_same(struct call *c, int part)
{
    (void)part;
    return call_tensor(c, "self");
}

static struct tensor op_negative(struct call *c, int part)
{
    (void)part;
    return math_affine(c->r, call_tensor(c, "self"), -1, 0);
}

/* (a + bi) / (c + di) = (a + bi)(c - di) / (c^2 + d^2) */
struct tensor divide_complex(struct call *c)
{
    const bool i = c->imaginary;
    struct tensor re = call_part(c, "other", false), im = call_part(c, "other", true);
    struct tensor square =
        math_binary(c->r, BINARY_ADD, math_binary(c->r, BINARY_MUL, re, re, c->dtype),
                    math_binary(c->r, BINARY_MUL, im, im, c->dtype), c->dtype);
    struct tensor first =
        math_binary(c->r, BINARY_MUL, call_part(c, "self", false), i ? im : re, c->dtype);
    struct tensor second =
        math_binary(c->r, BINARY_MUL, call_part(c, "self", true), i ? re : im, c->dtype);

    first = i ? math_binary(c->r, BINARY_SUB, second, first, c->dtype)
              : math_binary(c->r, BINARY_ADD, first, second, c->dtype);
    return math_binary(c->r, BINARY_DIV, first, square, c->dtype);
}

/* Of a complex number exp(real) (cos + i sin) of the imaginary part. */
static struct tensor op_exp(struct call *c, int part)
{
    static const struct unary power = {exp, ckpt_exp}, cosine = {cos, ckpt_cos},
                              sine = {sin, ckpt_sin};
    const struct variable *self = call_variable(c, "self");
    struct tensor y = math_unary(c->r, &power, call_part(c, "self", false), c->dtype);

    (void)part;
    if (!self || !pt2_is_complex(self->facts->dtype))
        return y;
    struct tensor turn =
        math_unary(c->r, c->imaginary ? &sine : &cosine, call_part(c, "self", true), c->dtype);
    return math_binary(c->r, BINARY_MUL, y, turn, c->dtype);
}

/* ---- Fourier transforms ---------------------------------------------------------------------- */

/* Numbers along one axis, and the sum of which of them times e^(sign i angle) a result is. */
struct transform {
    struct tensor part[2];
    bool complex;
    int64_t n, rows, columns; /* elements of the transform, of the operand and of the result */
    double scale;
    bool inverse, half; /* half: the operand is a half of numbers whose other half is conjugate */
};

/* Cosines or sines of 2 pi row column / n. */
static struct tensor waves(struct call *c, const struct transform *f, bool sine)
{
    struct tensor a = tensor_zeros(c->r, PT2_F32, 2, (int64_t[]){f->rows, f->columns});

    for (int64_t k = 0; k < f->rows * f->columns && !c->r->failed; k++) {
        const int64_t row = k / f->columns, at = row * (k % f->columns) % f->n;
        const bool twice = f->half && row && 2 * row != f->n;
        const double angle = 2 * M_PI * (double)at / (double)f->n;
        const double wave = !sine ? cos(angle) : 2 * at == f->n ? 0 : sin(angle);
        a.f[k] = f->scale * (twice ? 2 : 1) * (sine && !f->inverse ? -wave : wave);
    }
    return a;
}

static struct tensor times(struct call *c, struct tensor a, struct tensor b)
{
    return c->r->failed ? a : record_product(c, a, b);
}

/* (a + bi)(cos + i sin) of the axis, as the last one. */
static void transform_axis(struct call *c, struct transform *f, int axis)
{
    enum { MOST = 2048 };
    const int last = f->part[0].ndim - 1;
    struct tensor y[2];

    if (f->n < 1 || f->n > MOST)
        recording_fail(c->r, CKPT_EFORMAT, "a Fourier transform of %lld elements, not of 1 to %d",
                       (long long)f->n, MOST);
    for (int i = 0; i < 1 + f->complex && !c->r->failed; i++)
        f->part[i] = view_swap(c->r, view_slice(c->r, f->part[i], axis, 0, f->rows, 1), axis, last);
    if (c->r->failed)
        return;
    const struct tensor cosine = waves(c, f, false), sine = waves(c, f, true);
    y[0] = times(c, f->part[0], cosine);
    y[1] = times(c, f->part[0], sine);
    if (f->complex) {
        y[0] = math_binary(c->r, BINARY_SUB, y[0], times(c, f->part[1], sine), PT2_F32);
        y[1] = math_binary(c->r, BINARY_ADD, y[1], times(c, f->part[1], cosine), PT2_F32);
    }
    for (int i = 0; i < 2 && !c->r->failed; i++)
        f->part[i] = view_swap(c->r, y[i], axis, last);
    f->complex = true;
}

/* The axes of a transform of several, or its one, and the sizes that are given for them; else -1.
 */
static int read_axes(struct call *c, const struct tensor *a, int *axes, int64_t *size)
{
    const bool one = pt2_arg_find(c->node, "n") || strstr(c->op->name, "fft.");
    int64_t dim[TENSOR_AXES];
    int n = one ? 1 : strstr(c->op->name, "fft2") ? 2 : a->ndim;
    int given = 0;

    if (one && call_has(c, "n"))
        size[given++] = call_int(c, "n");
    else if (!one && pt2_arg_find(c->node, "s") && call_has(c, "s"))
        n = given = call_ints(c, "s", size, TENSOR_AXES);
    if (one)
        dim[0] = call_int(c, "dim");
    const bool named = !one && pt2_arg_find(c->node, "dim") && call_has(c, "dim");
    if (named)
        n = call_ints(c, "dim", dim, TENSOR_AXES);
    if (n > a->ndim || n < 1 || (given && given != n))
        recording_fail(c->r, CKPT_ESHAPE, "a transform of %d of %d axes", n, a->ndim);
    for (int i = 0; i < n && !c->r->failed; i++) {
        axes[i] = one || named ? tensor_axis(c->r, a, dim[i]) : a->ndim - n + i;
        size[i] = given ? size[i] : -1;
    }
    return c->r->failed ? 0 : n;
}

static double scale_of(struct call *c, bool inverse, int64_t n)
{
    const char *norm =
        pt2_arg_find(c->node, "norm") && call_has(c, "norm") ? call_text(c, "norm") : "backward";

    if (!strcmp(norm, "ortho"))
        return 1 / sqrt((double)n);
    return !strcmp(norm, "forward") == inverse ? 1 : 1 / (double)n;
}

/* Of real numbers half of the result is kept, along the last axis, which comes first; of a half, to
 * real numbers, it comes last. */
static struct tensor op_fft(struct call *c, int part)
{
    const char *name = strchr(c->op->name, '_') + 1; /* "rfft2.default" */
    const bool to_half = *name == 'r', from_half = !strncmp(name, "ir", 2);
    const struct variable *self = call_variable(c, "self");
    struct transform f = {.part = {call_part(c, "self", false), call_part(c, "self", true)},
                          .complex = self && pt2_is_complex(self->facts->dtype),
                          .inverse = *name == 'i'};
    int axes[TENSOR_AXES];
    int64_t size[TENSOR_AXES];
    const int n = read_axes(c, &f.part[0], axes, size);

    (void)part;
    for (int i = 0; i < n && !c->r->failed; i++) {
        const int k = to_half ? n - 1 - i : i;
        const int64_t have = f.part[0].shape[axes[k]];
        f.half = from_half && k == n - 1;
        f.n = size[k] >= 0 ? size[k] : f.half ? 2 * (have - 1) : have;
        f.columns = to_half && k == n - 1 ? f.n / 2 + 1 : f.n;
        const int64_t most = f.half ? f.n / 2 + 1 : f.n;
        f.rows = have < most ? have : most;
        f.scale = f.n > 0 ? scale_of(c, f.inverse, f.n) : 1;
        transform_axis(c, &f, axes[k]);
    }
    return f.part[c->imaginary];
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }
#define VIEW(name, record)                                                                         \
    {                                                                                              \
        "aten." name, record, put_nothing, NULL, false                                             \
    }

const struct op ops_complex[] = {
    OP("complex.default", op_complex),    VIEW("real.default", op_real),
    VIEW("imag.default", op_imag),        VIEW("_conj.default", op_conj),
    VIEW("conj.default", op_conj),        OP("_conj_physical.default", op_conj),
    OP("conj_physical.default", op_conj), VIEW("resolve_conj.default", op_same),
    VIEW("resolve_neg.default", op_same), VIEW("_neg_view.default", op_negative),
    OP("fft_fft.default", op_fft),        OP("fft_ifft.default", op_fft),
    OP("fft_rfft.default", op_fft),       OP("fft_irfft.default", op_fft),
    OP("fft_fft2.default", op_fft),       OP("fft_ifft2.default", op_fft),
    OP("fft_rfft2.default", op_fft),      OP("fft_irfft2.default", op_fft),
    OP("fft_fftn.default", op_fft),       OP("fft_ifftn.default", op_fft),
    OP("fft_rfftn.default", op_fft),      OP("fft_irfftn.default", op_fft),
    OP("exp.default", op_exp),
    {NULL, NULL, NULL, NULL, false},
};

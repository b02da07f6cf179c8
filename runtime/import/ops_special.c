/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the library has no op for: inverses of angles and of hyperbolic functions, the
 * tail of the error function, logarithms with a value at 0.  All are computed in fp32.  One that a
 * polynomial approximates has the gradient of the function, not that of the polynomial.
 */
#include <float.h>
#include <math.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

static ckpt_tensor number(ckpt_tape *t, double value)
{
    return ckpt_full(t, (float)value, CKPT_F32, 0, NULL);
}

/* Beside a value without a gradient: 0, with the derivative `slope` by x. */
static ckpt_tensor only_gradient(ckpt_tape *t, ckpt_tensor x, ckpt_tensor slope)
{
    x = ckpt_clamp(t, x, -FLT_MAX, FLT_MAX); /* infinite values have no difference */
    return ckpt_mul(t, ckpt_sub(t, x, ckpt_stop_gradient(t, x)), ckpt_stop_gradient(t, slope));
}

static ckpt_tensor with_gradient(ckpt_tape *t, ckpt_tensor y, ckpt_tensor x, ckpt_tensor slope)
{
    return ckpt_add(t, ckpt_stop_gradient(t, y), only_gradient(t, x, slope));
}

/* c[0] + c[1] x + ... */
static ckpt_tensor polynomial(ckpt_tape *t, ckpt_tensor x, int n, const double *c)
{
    ckpt_tensor y = ckpt_affine(t, x, (float)c[n - 1], (float)c[n - 2]);

    for (int k = n - 3; k >= 0; k--)
        y = ckpt_affine(t, ckpt_mul(t, y, x), 1.f, (float)c[k]);
    return y;
}

/* ---- angles ---------------------------------------------------------------------------------- */

/* atan(x) for x >= 0 as a value: in [-tan(pi/8), tan(pi/8)] a polynomial of x (Cephes), elsewhere
 * that of the angle from pi/4 or from pi/2. */
static ckpt_tensor arc_of(ckpt_tape *t, ckpt_tensor x)
{
    static const double c[] = {-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1,
                               8.05374449538e-2};
    ckpt_tensor one = number(t, 1), far = ckpt_gt(t, x, number(t, 2.414213562373095));
    ckpt_tensor middle = ckpt_gt(t, x, number(t, 0.4142135623730950));
    ckpt_tensor turned = ckpt_div(t, ckpt_sub(t, x, one), ckpt_add(t, x, one));
    ckpt_tensor u =
        ckpt_where(t, far, ckpt_neg(t, ckpt_div(t, one, x)), ckpt_where(t, middle, turned, x));
    ckpt_tensor from = ckpt_where(t, far, number(t, M_PI / 2),
                                  ckpt_where(t, middle, number(t, M_PI / 4), number(t, 0)));
    ckpt_tensor z = ckpt_mul(t, u, u);
    ckpt_tensor rest = ckpt_mul(t, ckpt_mul(t, polynomial(t, z, 4, c), z), u);

    return ckpt_add(t, from, ckpt_add(t, u, rest));
}

static ckpt_tensor record_atan(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor v = ckpt_stop_gradient(t, x);
    ckpt_tensor slope = ckpt_div(t, number(t, 1), ckpt_affine(t, ckpt_mul(t, v, v), 1.f, 1.f));

    return with_gradient(t, ckpt_mul(t, ckpt_sign(t, v), arc_of(t, ckpt_abs(t, v))), x, slope);
}

/* Twice the angle with the tangent x / (1 + sqrt((1 - x) (1 + x))). */
static ckpt_tensor record_asin(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor square = ckpt_mul(t, ckpt_affine(t, x, -1.f, 1.f), ckpt_affine(t, x, 1.f, 1.f));
    ckpt_tensor below = ckpt_affine(t, ckpt_sqrt(t, square), 1.f, 1.f);

    return ckpt_affine(t, record_atan(t, ckpt_div(t, x, below)), 2.f, 0.f);
}

/* Twice the angle with the tangent sqrt((1 - a) / (1 + a)), a = |x|; of x < 0 the rest of pi. */
static ckpt_tensor record_acos(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor under = ckpt_lt(t, x, number(t, 0)), a = ckpt_where(t, under, ckpt_neg(t, x), x);
    ckpt_tensor ratio = ckpt_div(t, ckpt_affine(t, a, -1.f, 1.f), ckpt_affine(t, a, 1.f, 1.f));
    ckpt_tensor y = ckpt_affine(t, record_atan(t, ckpt_sqrt(t, ratio)), 2.f, 0.f);

    return ckpt_where(t, under, ckpt_affine(t, y, -1.f, (float)M_PI), y);
}

/* Below 0, or -0. */
static ckpt_tensor has_sign(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor zero = number(t, 0);

    return ckpt_or(t, ckpt_lt(t, x, zero), ckpt_lt(t, ckpt_div(t, number(t, 1), x), zero));
}

/* The larger size of two, or 1 where both are 0: parts of it neither overflow nor vanish. */
static ckpt_tensor unit_of(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    ckpt_tensor most = ckpt_stop_gradient(t, ckpt_maximum(t, ckpt_abs(t, a), ckpt_abs(t, b)));

    most = ckpt_minimum(t, most, number(t, FLT_MAX));
    return ckpt_where(t, ckpt_eq(t, most, number(t, 0)), number(t, 1), most);
}

/* Infinite values count as the largest finite ones; what is no number stays. */
static ckpt_tensor bounded(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_maximum(t, ckpt_minimum(t, x, number(t, FLT_MAX)), number(t, -FLT_MAX));
}

static ckpt_tensor record_atan2(ckpt_tape *t, ckpt_tensor y, ckpt_tensor x)
{
    ckpt_tensor v = ckpt_stop_gradient(t, y), u = ckpt_stop_gradient(t, x), unit = unit_of(t, v, u);
    ckpt_tensor p = ckpt_div(t, bounded(t, u), unit), q = ckpt_div(t, bounded(t, v), unit);
    ckpt_tensor a = ckpt_abs(t, q), b = ckpt_abs(t, p);
    ckpt_tensor arc = arc_of(t, ckpt_minimum(t, a, b)); /* the larger one is 1 */

    arc = ckpt_where(t, ckpt_gt(t, a, b), ckpt_affine(t, arc, -1.f, (float)(M_PI / 2)), arc);
    arc = ckpt_where(t, has_sign(t, u), ckpt_affine(t, arc, -1.f, (float)M_PI), arc);
    arc = ckpt_where(t, has_sign(t, v), ckpt_neg(t, arc), arc);
    ckpt_tensor square = ckpt_add(t, ckpt_mul(t, p, p), ckpt_mul(t, q, q));
    square = ckpt_maximum(t, square, number(t, 1)); /* at 0, 0 there is no gradient */
    ckpt_tensor by_y = bounded(t, ckpt_div(t, ckpt_div(t, p, square), unit));
    ckpt_tensor by_x = bounded(t, ckpt_div(t, ckpt_div(t, q, square), unit));
    arc = with_gradient(t, arc, y, by_y);
    return ckpt_add(t, arc, only_gradient(t, x, ckpt_neg(t, by_x)));
}

/* ---- hyperbolic functions -------------------------------------------------------------------- */

/* With the sign of x log(a + sqrt(a^2 + 1)), a = |x|; of a beyond 1e9 log(2 a). */
static ckpt_tensor record_asinh(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor v = ckpt_stop_gradient(t, x), a = ckpt_abs(t, v);
    ckpt_tensor small = ckpt_clamp(t, a, 0.f, 1e9f), square = ckpt_mul(t, small, small);
    ckpt_tensor root = ckpt_sqrt(t, ckpt_affine(t, square, 1.f, 1.f));
    ckpt_tensor y = ckpt_add(t, small, ckpt_div(t, square, ckpt_affine(t, root, 1.f, 1.f)));

    y = ckpt_where(t, ckpt_gt(t, a, number(t, 1e9)),
                   ckpt_affine(t, ckpt_log(t, a), 1.f, (float)M_LN2), ckpt_log1p(t, y));
    ckpt_tensor slope = ckpt_rsqrt(t, ckpt_affine(t, ckpt_mul(t, v, v), 1.f, 1.f));
    return with_gradient(t, ckpt_mul(t, ckpt_sign(t, v), y), x, slope);
}

static ckpt_tensor record_acosh(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor above = ckpt_affine(t, x, 1.f, -1.f);
    ckpt_tensor root = ckpt_mul(t, ckpt_sqrt(t, above), ckpt_sqrt(t, ckpt_affine(t, x, 1.f, 1.f)));

    return ckpt_log1p(t, ckpt_add(t, above, root));
}

/* ---- others ---------------------------------------------------------------------------------- */

/* exp(-x^2) by a polynomial of 1 / (1 + |x| / 2) (Press et al.): 1 - erf(x) is 0 from 4 on. */
static ckpt_tensor record_erfc(ckpt_tape *t, ckpt_tensor x)
{
    static const double c[] = {-1.26551223, 1.00002368,  0.37409196, 0.09678418,  -0.18628806,
                               0.27886807,  -1.13520398, 1.48851587, -0.82215223, 0.17087277};
    ckpt_tensor v = ckpt_stop_gradient(t, x), a = ckpt_abs(t, v);
    ckpt_tensor u = ckpt_div(t, number(t, 1), ckpt_affine(t, a, 0.5f, 1.f));
    ckpt_tensor square = ckpt_mul(t, v, v);
    ckpt_tensor y = ckpt_mul(t, u, ckpt_exp(t, ckpt_sub(t, polynomial(t, u, 10, c), square)));
    ckpt_tensor slope = ckpt_affine(t, ckpt_exp(t, ckpt_neg(t, square)), (float)-M_2_SQRTPI, 0.f);

    y = ckpt_where(t, ckpt_lt(t, v, number(t, 1)), ckpt_affine(t, ckpt_erf(t, v), -1.f, 1.f), y);
    return with_gradient(t, y, x, slope);
}

static double normal_share(double x)
{
    return erfc(-x * M_SQRT1_2) / 2;
}

static ckpt_tensor record_normal_share(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_affine(t, record_erfc(t, ckpt_affine(t, x, (float)-M_SQRT1_2, 0.f)), 0.5f, 0.f);
}

/* x less the nearest whole number, 1 / 4 where the value is not used. */
static ckpt_tensor from_whole(ckpt_tape *t, ckpt_tensor x, ckpt_tensor used)
{
    ckpt_tensor rest = ckpt_sub(t, x, ckpt_floor(t, ckpt_affine(t, x, 1.f, 0.5f)));

    return ckpt_where(t, used, rest, number(t, 0.25));
}

/* The derivative of lgamma: at z = x + 6 a series of 1 / z, less what the steps to there add; below
 * 1 / 2 from the other side of it.  It has no value at whole numbers below 0. */
static ckpt_tensor record_digamma(ckpt_tape *t, ckpt_tensor x)
{
    static const double c[] = {-1.0 / 12, 1.0 / 120, -1.0 / 252};
    ckpt_tensor under = ckpt_lt(t, x, number(t, 0.5)), one = number(t, 1);
    ckpt_tensor v = ckpt_where(t, under, ckpt_affine(t, x, -1.f, 1.f), x);
    ckpt_tensor z = ckpt_affine(t, v, 1.f, 6.f), u = ckpt_div(t, one, z), w = ckpt_mul(t, u, u);
    ckpt_tensor y = ckpt_add(t, ckpt_log(t, z), ckpt_affine(t, u, -0.5f, 0.f));

    y = ckpt_add(t, y, ckpt_mul(t, w, polynomial(t, w, 3, c)));
    for (int k = 0; k < 6; k++)
        y = ckpt_sub(t, y, ckpt_div(t, one, ckpt_affine(t, v, 1.f, (float)k)));
    ckpt_tensor zero = number(t, 0), rest = from_whole(t, x, under);
    ckpt_tensor angle = ckpt_affine(t, rest, (float)M_PI, -0.f); /* of -0 it is -0 */
    ckpt_tensor cotangent = ckpt_div(t, ckpt_cos(t, angle), ckpt_sin(t, angle));
    ckpt_tensor pole = ckpt_and(t, ckpt_eq(t, rest, zero), ckpt_lt(t, x, zero));
    cotangent = ckpt_where(t, pole, number(t, NAN), cotangent);
    return ckpt_where(t, under, ckpt_sub(t, y, ckpt_affine(t, cotangent, (float)M_PI, 0.f)), y);
}

/* Lanczos' series; below 1 / 2 from the other side of it. */
static ckpt_tensor record_lgamma(ckpt_tape *t, ckpt_tensor x)
{
    static const double c[] = {76.18009172947146,  -86.50532032941677,    24.01409824083091,
                               -1.231739572450155, 0.1208650973866179e-2, -0.5395239384953e-5};
    ckpt_tensor at = ckpt_stop_gradient(t, x), under = ckpt_lt(t, at, number(t, 0.5));
    ckpt_tensor v = ckpt_where(t, under, ckpt_affine(t, at, -1.f, 1.f), at);
    ckpt_tensor sum = number(t, 1.000000000190015), far = ckpt_affine(t, v, 1.f, 5.5f);

    for (int k = 0; k < 6; k++)
        sum = ckpt_add(t, sum, ckpt_div(t, number(t, c[k]), ckpt_affine(t, v, 1.f, (float)k + 1)));
    ckpt_tensor y = ckpt_log(t, ckpt_div(t, ckpt_affine(t, sum, 2.5066282746310005f, 0.f), v));
    ckpt_tensor power = ckpt_mul(t, ckpt_affine(t, v, 1.f, 0.5f), ckpt_log(t, far));
    y = ckpt_add(t, y, ckpt_sub(t, power, far));
    ckpt_tensor rest = from_whole(t, at, under);
    ckpt_tensor sine = ckpt_abs(t, ckpt_sin(t, ckpt_affine(t, rest, (float)M_PI, 0.f)));
    ckpt_tensor other = ckpt_sub(t, ckpt_affine(t, ckpt_log(t, sine), -1.f, 1.1447298858f), y);
    /* From -2^23 down all floats are whole numbers. */
    ckpt_tensor zero = number(t, 0), low = ckpt_le(t, at, number(t, -8388608));
    ckpt_tensor pole = ckpt_or(t, ckpt_eq(t, rest, zero), low);
    other = ckpt_where(t, pole, number(t, INFINITY), other);
    y = ckpt_where(t, ckpt_gt(t, at, number(t, FLT_MAX)), at, y);
    ckpt_tensor slope = ckpt_where(t, pole, zero, bounded(t, record_digamma(t, at)));
    return with_gradient(t, ckpt_where(t, under, other, y), x, slope);
}

/* Two polynomials, of -log(1 - x^2) and of its root (Giles 2010). */
static ckpt_tensor record_erfinv(ckpt_tape *t, ckpt_tensor x)
{
    static const double near[] = {1.50140941,     0.246640727,    -0.00417768164,
                                  -0.00125372503, 0.00021858087,  -4.39150654e-06,
                                  -3.5233877e-06, 3.43273939e-07, 2.81022636e-08};
    static const double far[] = {2.83297682,    1.00167406,     0.00943887047,
                                 -0.0076224613, 0.00573950773,  -0.00367342844,
                                 0.00134934322, 0.000100950558, -0.000200214257};
    ckpt_tensor v = ckpt_stop_gradient(t, x), limit = number(t, 5);
    ckpt_tensor square = ckpt_mul(t, ckpt_affine(t, v, -1.f, 1.f), ckpt_affine(t, v, 1.f, 1.f));
    ckpt_tensor w = ckpt_neg(t, ckpt_log(t, square));
    ckpt_tensor a = ckpt_affine(t, ckpt_minimum(t, w, limit), 1.f, -2.5f);
    ckpt_tensor b = ckpt_affine(t, ckpt_sqrt(t, ckpt_maximum(t, w, limit)), 1.f, -3.f);
    ckpt_tensor factor =
        ckpt_where(t, ckpt_lt(t, w, limit), polynomial(t, a, 9, near), polynomial(t, b, 9, far));
    ckpt_tensor end = ckpt_eq(t, ckpt_abs(t, v), number(t, 1));
    ckpt_tensor y = ckpt_mul(t, ckpt_where(t, end, number(t, INFINITY), factor), v);
    ckpt_tensor slope = ckpt_affine(t, ckpt_exp(t, ckpt_mul(t, y, y)), 0.88622692545f, 0.f);

    return with_gradient(t, y, x, bounded(t, slope));
}

/* -x log(x): 0 at 0, -inf below. */
static ckpt_tensor record_entropy(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor zero = number(t, 0), none = ckpt_le(t, x, zero);
    ckpt_tensor y = ckpt_mul(t, x, ckpt_log(t, ckpt_where(t, none, number(t, 1), x)));

    return ckpt_where(t, ckpt_lt(t, x, zero), number(t, -INFINITY), ckpt_neg(t, y));
}

static double sine_ratio(double x)
{
    return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x);
}

static ckpt_tensor record_sinc(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor one = number(t, 1), none = ckpt_eq(t, x, number(t, 0));
    ckpt_tensor angle = ckpt_affine(t, ckpt_where(t, none, one, x), (float)M_PI, 0.f);

    return ckpt_where(t, none, one, ckpt_div(t, ckpt_sin(t, angle), angle));
}

static double radians(double x)
{
    return x * (M_PI / 180);
}

static ckpt_tensor record_radians(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_affine(t, x, (float)(M_PI / 180), 0.f);
}

static double degrees(double x)
{
    return x * (180 / M_PI);
}

static ckpt_tensor record_degrees(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_affine(t, x, (float)(180 / M_PI), 0.f);
}

#define UNARY_OPS(X)                                                                               \
    X(atan, atan, record_atan)                                                                     \
    X(asin, asin, record_asin)                                                                     \
    X(acos, acos, record_acos)                                                                     \
    X(asinh, asinh, record_asinh)                                                                  \
    X(acosh, acosh, record_acosh)                                                                  \
    X(erfc, erfc, record_erfc)                                                                     \
    X(special_ndtr, normal_share, record_normal_share)                                             \
    X(sinc, sine_ratio, record_sinc)                                                               \
    X(lgamma, lgamma, record_lgamma)                                                               \
    X(digamma, NULL, record_digamma)                                                               \
    X(erfinv, NULL, record_erfinv)                                                                 \
    X(special_entr, NULL, record_entropy)                                                          \
    X(deg2rad, radians, record_radians)                                                            \
    X(rad2deg, degrees, record_degrees)

#define DEFINE(name, value, record)                                                                \
    static struct tensor op_##name(struct call *c, int part)                                       \
    {                                                                                              \
        static const struct unary f = {value, record};                                             \
        struct tensor a = call_tensor(c, "self");                                                  \
        a = math_unary(c->r, &f, a.constant ? a : math_cast(c->r, a, PT2_F32), PT2_F32);           \
        (void)part;                                                                                \
        return math_cast(c->r, a, c->dtype);                                                       \
    }
UNARY_OPS(DEFINE)

/* ---- two operands ---------------------------------------------------------------------------- */

typedef ckpt_tensor (*pair_call)(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);

/* A function on the tape of two operands, which are broadcast. */
static struct tensor pair(struct call *c, struct tensor a, struct tensor b, pair_call f)
{
    ckpt_tensor x, y;

    a = math_cast(c->r, a, PT2_F32);
    b = math_cast(c->r, b, PT2_F32);
    struct tensor *small = a.ndim < b.ndim ? &a : &b;
    while (small->ndim && small->ndim < (small == &a ? b : a).ndim && !c->r->failed)
        *small = view_unsqueeze(c->r, *small, 0);
    x = tensor_record(c->r, &a);
    y = tensor_record(c->r, &b);
    return c->r->failed ? a : math_cast(c->r, tensor_of(c->r, PT2_F32, f(c->r->t, x, y)), c->dtype);
}

/* sqrt(a^2 + b^2), which has no gradient where it is 0. */
static ckpt_tensor record_hypot(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    ckpt_tensor unit = unit_of(t, a, b), zero = number(t, 0);
    ckpt_tensor p = ckpt_div(t, a, unit), q = ckpt_div(t, b, unit);
    ckpt_tensor square = ckpt_add(t, ckpt_mul(t, p, p), ckpt_mul(t, q, q));
    ckpt_tensor none = ckpt_eq(t, square, zero);
    ckpt_tensor root = ckpt_sqrt(t, ckpt_where(t, none, number(t, 1), square));

    return ckpt_where(t, none, zero, ckpt_mul(t, root, unit));
}

static ckpt_tensor record_copysign(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    ckpt_tensor size = ckpt_abs(t, a);

    return ckpt_where(t, has_sign(t, ckpt_stop_gradient(t, b)), ckpt_neg(t, size), size);
}

/* a log(b), which is 0 where a is and b is a number; there a gets no infinite gradient. */
static ckpt_tensor record_xlogy(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    ckpt_tensor zero = number(t, 0), end = number(t, FLT_MAX);
    ckpt_tensor far = ckpt_or(t, ckpt_le(t, b, zero), ckpt_gt(t, b, end));
    ckpt_tensor none = ckpt_and(t, ckpt_eq(t, a, zero), far);

    return ckpt_mul(t, a, ckpt_log(t, ckpt_where(t, none, number(t, 1), b)));
}

static ckpt_tensor record_xlog1py(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    ckpt_tensor zero = number(t, 0), end = number(t, FLT_MAX);
    ckpt_tensor far = ckpt_or(t, ckpt_le(t, b, number(t, -1)), ckpt_gt(t, b, end));
    ckpt_tensor none = ckpt_and(t, ckpt_eq(t, a, zero), far);

    return ckpt_mul(t, a, ckpt_log1p(t, ckpt_where(t, none, zero, b)));
}

/* The larger and the smaller of two, or the one that is a number; a of equal ones. */
static ckpt_tensor record_fmax(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return ckpt_where(t, ckpt_or(t, ckpt_ge(t, a, b), ckpt_ne(t, b, b)), a, b);
}

static ckpt_tensor record_fmin(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return ckpt_where(t, ckpt_or(t, ckpt_le(t, a, b), ckpt_ne(t, b, b)), a, b);
}

#define PAIR_OPS(X)                                                                                \
    X(atan2, record_atan2)                                                                         \
    X(hypot, record_hypot)                                                                         \
    X(copysign, record_copysign)                                                                   \
    X(xlogy, record_xlogy)                                                                         \
    X(special_xlog1py, record_xlog1py)                                                             \
    X(fmax, record_fmax)                                                                           \
    X(fmin, record_fmin)

#define DEFINE_PAIR(name, record)                                                                  \
    static struct tensor op_##name(struct call *c, int part)                                       \
    {                                                                                              \
        (void)part;                                                                                \
        return pair(c, call_tensor(c, "self"), call_tensor(c, "other"), record);                   \
    }
PAIR_OPS(DEFINE_PAIR)

/* log(x / (1 - x)), of x at least eps away from 0 and 1. */
static struct tensor op_logit(struct call *c, int part)
{
    const double eps = call_has(c, "eps") ? call_double(c, "eps") : -1;
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), PT2_F32);
    ckpt_tensor x = math_plain(c->r, &a);
    ckpt_tape *t = c->r->t;

    (void)part;
    if (c->r->failed)
        return a;
    if (eps >= 0)
        x = ckpt_clamp(t, x, (float)fmin(eps, 1 - eps), (float)(1 - eps));
    ckpt_tensor y = ckpt_log(t, ckpt_div(t, x, ckpt_affine(t, x, -1.f, 1.f)));
    return math_cast(c->r, math_back(c->r, &a, y), c->dtype);
}

/* The size and the angle of complex numbers; a real number has the angle 0 or pi. */
static struct tensor of_parts(struct call *c, const char *name, pair_call f, bool flipped)
{
    struct tensor real = call_part(c, name, false), imaginary = call_part(c, name, true);

    return pair(c, flipped ? imaginary : real, flipped ? real : imaginary, f);
}

static struct tensor op_abs(struct call *c, int part)
{
    static const struct unary f = {fabs, ckpt_abs};
    const struct variable *v = call_variable(c, "self");

    (void)part;
    if (v && pt2_is_complex(v->facts->dtype))
        return of_parts(c, "self", record_hypot, false);
    return math_unary(c->r, &f, call_tensor(c, "self"), c->dtype);
}

static struct tensor op_angle(struct call *c, int part)
{
    (void)part;
    return of_parts(c, "self", record_atan2, true);
}

#define ROW(name, value, record) {"aten." #name ".default", op_##name, NULL, NULL, false},
#define ROW_PAIR(name, record)                                                                     \
    {"aten." #name ".default", op_##name, NULL, NULL, false},                                      \
        {"aten." #name ".Tensor", op_##name, NULL, NULL, false},                                   \
        {"aten." #name ".Scalar", op_##name, NULL, NULL, false},

const struct op ops_special[] = {
    UNARY_OPS(ROW) PAIR_OPS(ROW_PAIR){"aten.logit.default", op_logit, NULL, NULL, false},
    {"aten.xlogy.Scalar_Self", op_xlogy, NULL, NULL, false},
    {"aten.xlogy.Scalar_Other", op_xlogy, NULL, NULL, false},
    {"aten.abs.default", op_abs, NULL, NULL, false},
    {"aten.angle.default", op_angle, NULL, NULL, false},
    {NULL, NULL, NULL, NULL, false},
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one operand: powers of e, roots, angles, rounding, activations. */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

/* ---- values on the host ---------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double sign(double x)
{
    return (x > 0) - (x < 0);
}

static double reciprocal(double x)
{
    return 1 / x;
}

static double inverse_root(double x)
{
    return 1 / sqrt(x);
}

static double positive(double x)
{
    return x > 0 ? x : 0;
}

static double negative(double x)
{
    return -x;
}

static double square(double x)
{
    return x * x;
}

static double fraction(double x)
{
    return x - trunc(x);
}

static double is_zero(double x)
{
    return x == 0;
}

static double is_nan(double x)
{
    return isnan(x);
}

static double is_infinite(double x)
{
    return isinf(x);
}

static double is_finite(double x)
{
    return isfinite(x);
}

/* ---- on the tape ----------------------------------------------------------------------------- */

/* A number in the dtype of x. */
static ckpt_tensor number_like(ckpt_tape *t, ckpt_tensor x, double value)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);

    return ckpt_full(t, (float)value, d.ndim < 0 ? CKPT_F32 : d.dtype, 0, NULL);
}

static ckpt_tensor record_reciprocal(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_div(t, number_like(t, x, 1), x);
}

static ckpt_tensor record_ceil(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_neg(t, ckpt_floor(t, ckpt_neg(t, x)));
}

static ckpt_tensor record_trunc(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_mul(t, ckpt_sign(t, x), ckpt_floor(t, ckpt_abs(t, ckpt_stop_gradient(t, x))));
}

static ckpt_tensor record_fraction(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_sub(t, x, record_trunc(t, x));
}

static ckpt_tensor record_exp2(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_pow(t, number_like(t, x, 2), x);
}

static ckpt_tensor record_log2(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_affine(t, ckpt_log(t, x), (float)(1 / log(2.)), 0.f);
}

static ckpt_tensor record_log10(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_affine(t, ckpt_log(t, x), (float)(1 / log(10.)), 0.f);
}

static ckpt_tensor record_tan(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_div(t, ckpt_sin(t, x), ckpt_cos(t, x));
}

static ckpt_tensor record_sinh(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor both = ckpt_sub(t, ckpt_expm1(t, x), ckpt_expm1(t, ckpt_neg(t, x)));

    return ckpt_affine(t, both, 0.5f, 0.f);
}

static ckpt_tensor record_cosh(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_affine(t, ckpt_add(t, ckpt_exp(t, x), ckpt_exp(t, ckpt_neg(t, x))), 0.5f, 0.f);
}

/* log((1 + x) / (1 - x)) / 2 */
static ckpt_tensor record_atanh(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor both = ckpt_sub(t, ckpt_log1p(t, x), ckpt_log1p(t, ckpt_neg(t, x)));

    return ckpt_affine(t, both, 0.5f, 0.f);
}

static ckpt_tensor record_is_nan(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_ne(t, x, x);
}

static ckpt_tensor record_is_infinite(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_eq(t, ckpt_abs(t, x), number_like(t, x, INFINITY));
}

static ckpt_tensor record_is_finite(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_lt(t, ckpt_abs(t, x), number_like(t, x, INFINITY));
}

/* x within bounds.  At them no gradient passes, other than with ckpt_clamp. */
static ckpt_tensor record_bounds(ckpt_tape *t, ckpt_tensor x, double low, double high)
{
    ckpt_tensor least = number_like(t, x, low), most = number_like(t, x, high);

    if (!isinf(high))
        x = ckpt_where(t, ckpt_ge(t, x, most), most, x);
    return isinf(low) ? x : ckpt_where(t, ckpt_le(t, x, least), least, x);
}

static ckpt_tensor record_relu6(ckpt_tape *t, ckpt_tensor x)
{
    return record_bounds(t, x, 0, 6);
}

static ckpt_tensor record_hardsigmoid(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_affine(t, record_bounds(t, ckpt_affine(t, x, 1.f, 3.f), 0, 6), 1.f / 6, 0.f);
}

static ckpt_tensor record_hardswish(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_mul(t, x, record_hardsigmoid(t, x));
}

static ckpt_tensor record_square(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_mul(t, x, x);
}

static ckpt_tensor record_log_sigmoid(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_neg(t, ckpt_softplus(t, ckpt_neg(t, x)));
}

#define UNARY_OPS(X)                                                                               \
    X(neg, negative, ckpt_neg)                                                                     \
    X(exp2, exp2, record_exp2)                                                                     \
    X(expm1, expm1, ckpt_expm1)                                                                    \
    X(log, log, ckpt_log)                                                                          \
    X(log2, log2, record_log2)                                                                     \
    X(log10, log10, record_log10)                                                                  \
    X(log1p, log1p, ckpt_log1p)                                                                    \
    X(sqrt, sqrt, ckpt_sqrt)                                                                       \
    X(rsqrt, inverse_root, ckpt_rsqrt)                                                             \
    X(reciprocal, reciprocal, record_reciprocal)                                                   \
    X(sin, sin, ckpt_sin)                                                                          \
    X(cos, cos, ckpt_cos)                                                                          \
    X(tan, tan, record_tan)                                                                        \
    X(sinh, sinh, record_sinh)                                                                     \
    X(cosh, cosh, record_cosh)                                                                     \
    X(tanh, tanh, ckpt_tanh)                                                                       \
    X(atanh, atanh, record_atanh)                                                                  \
    X(sigmoid, sigmoid, ckpt_sigmoid)                                                              \
    X(erf, erf, ckpt_erf)                                                                          \
    X(sign, sign, ckpt_sign)                                                                       \
    X(floor, floor, ckpt_floor)                                                                    \
    X(ceil, ceil, record_ceil)                                                                     \
    X(round, nearbyint, ckpt_round)                                                                \
    X(trunc, trunc, record_trunc)                                                                  \
    X(frac, fraction, record_fraction)                                                             \
    X(square, square, record_square)                                                               \
    X(relu, positive, ckpt_relu)                                                                   \
    X(relu6, NULL, record_relu6)                                                                   \
    X(mish, NULL, ckpt_mish)                                                                       \
    X(hardswish, NULL, record_hardswish)                                                           \
    X(hardsigmoid, NULL, record_hardsigmoid)                                                       \
    X(log_sigmoid, NULL, record_log_sigmoid)                                                       \
    X(isnan, is_nan, record_is_nan)                                                                \
    X(isinf, is_infinite, record_is_infinite)                                                      \
    X(isfinite, is_finite, record_is_finite)

/* The operand in the dtype of the result, which autocast may have widened. */
static struct tensor unary(struct call *c, const struct unary *f)
{
    struct tensor a = call_tensor(c, "self");

    if (pt2_is_float(c->dtype))
        a = math_cast(c->r, a, c->dtype);
    return math_unary(c->r, f, a, c->dtype);
}

#define DEFINE(name, value, record)                                                                \
    static struct tensor op_##name(struct call *c, int part)                                       \
    {                                                                                              \
        static const struct unary f = {value, record};                                             \
        (void)part;                                                                                \
        return unary(c, &f);                                                                       \
    }
UNARY_OPS(DEFINE)

static struct tensor op_logical_not(struct call *c, int part)
{
    static const struct unary f = {is_zero, ckpt_not};

    (void)part;
    return math_unary(c->r, &f, math_cast(c->r, call_tensor(c, "self"), PT2_BOOL), PT2_BOOL);
}

static struct tensor op_gelu(struct call *c, int part)
{
    static const struct unary erf_form = {NULL, ckpt_gelu_erf}, tanh_form = {NULL, ckpt_gelu_tanh};

    (void)part;
    return unary(c, strcmp(call_text(c, "approximate"), "tanh") ? &erf_form : &tanh_form);
}

/* Of whole numbers -1 - x, which the host alone computes. */
static struct tensor op_bitwise_not(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    if (c->dtype == PT2_BOOL)
        return op_logical_not(c, part);
    if (!a.constant)
        recording_fail(c->r, CKPT_EFORMAT, "bits of whole numbers cannot be recorded");
    return math_binary(c->r, BINARY_SUB, tensor_number(c->r, c->dtype, -1, -1), a, c->dtype);
}

/* ---- with parameters ------------------------------------------------------------------------- */

static struct tensor float_operand(struct call *c)
{
    return math_cast(c->r, call_tensor(c, "self"), c->dtype);
}

static struct tensor op_leaky_relu(struct call *c, int part)
{
    struct tensor a = float_operand(c);
    ckpt_tensor x = math_plain(c->r, &a);

    (void)part;
    return math_back(c->r, &a,
                     ckpt_leaky_relu(c->r->t, x, (float)call_double(c, "negative_slope")));
}

/* scale x above 0, else alpha scale (exp(input_scale x) - 1). */
static struct tensor elu(struct call *c, double alpha, double scale, double input_scale)
{
    struct tensor a = float_operand(c);
    ckpt_tensor x = math_plain(c->r, &a);
    ckpt_tape *t = c->r->t;

    if (c->r->failed)
        return a;
    if (scale == 1 && input_scale == 1)
        return math_back(c->r, &a, ckpt_elu(t, x, (float)alpha));
    ckpt_tensor below = ckpt_affine(t, ckpt_clamp(t, x, -INFINITY, 0.f), (float)input_scale, 0.f);
    below = ckpt_affine(t, ckpt_expm1(t, below), (float)(alpha * scale), 0.f);
    ckpt_tensor above = ckpt_gt(t, x, number_like(t, x, 0));
    return math_back(c->r, &a, ckpt_where(t, above, ckpt_affine(t, x, (float)scale, 0.f), below));
}

static struct tensor op_elu(struct call *c, int part)
{
    (void)part;
    return elu(c, call_double(c, "alpha"), call_double(c, "scale"), call_double(c, "input_scale"));
}

/* The numbers of Klambauer et al. 2017. */
static struct tensor op_selu(struct call *c, int part)
{
    (void)part;
    return elu(c, 1.6732632423543772, 1.0507009873554805, 1);
}

static struct tensor op_celu(struct call *c, int part)
{
    const double alpha = call_double(c, "alpha");

    (void)part;
    if (!(alpha > 0))
        recording_fail(c->r, CKPT_EFORMAT, "CELU with alpha %g", alpha);
    return elu(c, alpha, 1, 1 / alpha);
}

/* softplus(beta x) / beta, and x where beta x is above the threshold; above 20 both are the same.
 */
static struct tensor op_softplus(struct call *c, int part)
{
    static const struct unary f = {NULL, ckpt_softplus};
    const double beta = call_double(c, "beta"), threshold = call_double(c, "threshold");
    struct tensor a = float_operand(c);
    struct tensor x = beta == 1 ? a : math_affine(c->r, a, beta, 0);
    struct tensor y = math_unary(c->r, &f, x, c->dtype);

    (void)part;
    if (beta != 1)
        y = math_affine(c->r, y, 1 / beta, 0);
    if (threshold >= 20)
        return y;
    struct tensor limit = tensor_number(c->r, c->dtype, threshold, 0);
    return math_where(c->r, math_binary(c->r, BINARY_GT, x, limit, PT2_BOOL), a, y, c->dtype);
}

static struct tensor op_hardtanh(struct call *c, int part)
{
    struct tensor a = float_operand(c);
    ckpt_tensor x = math_plain(c->r, &a);

    (void)part;
    return math_back(
        c->r, &a, record_bounds(c->r->t, x, call_double(c, "min_val"), call_double(c, "max_val")));
}

/* ---- clamp ----------------------------------------------------------------------------------- */

static struct tensor bound(struct call *c, struct tensor a, const char *name, enum binary f)
{
    if (!pt2_arg_find(c->node, name) || !call_has(c, name))
        return a;
    return math_binary(c->r, f, a, call_tensor(c, name), c->dtype);
}

static double number_or(struct call *c, const char *name, double otherwise)
{
    return pt2_arg_find(c->node, name) && call_has(c, name) ? call_double(c, name) : otherwise;
}

static bool is_number(struct call *c, const char *name)
{
    const struct pt2_arg *a = pt2_arg_find(c->node, name);

    return !a || a->kind != ARG_VALUE;
}

/* By numbers, or as the larger and the smaller of tensors. */
static struct tensor op_clamp(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);

    (void)part;
    if (a.constant || !is_number(c, "min") || !is_number(c, "max"))
        return bound(c, bound(c, a, "min", BINARY_MAX), "max", BINARY_MIN);
    const double low = number_or(c, "min", -INFINITY), high = number_or(c, "max", INFINITY);
    if (!pt2_is_float(c->dtype) &&
        fmax(isinf(low) ? 0 : fabs(low), isinf(high) ? 0 : fabs(high)) > MOST_WHOLE)
        recording_fail(c->r, CKPT_EFORMAT, "whole numbers of the step are exact up to 2^24");
    if (low > high)
        return view_expand(c->r, tensor_number(c->r, c->dtype, high, (int64_t)high), a.ndim,
                           a.shape);
    ckpt_tensor x = math_plain(c->r, &a);
    return math_back(c->r, &a, record_bounds(c->r->t, x, low, high));
}

/* ---- switched -------------------------------------------------------------------------------- */

/* x where it is compared so with a number, else another number. */
static struct tensor keep(struct call *c, struct tensor x, enum binary f, double number,
                          double otherwise)
{
    struct tensor limit = tensor_number(c->r, c->dtype, number, 0);

    return math_where(c->r, math_binary(c->r, f, x, limit, PT2_BOOL), x,
                      tensor_number(c->r, c->dtype, otherwise, 0), c->dtype);
}

static struct tensor op_threshold(struct call *c, int part)
{
    (void)part;
    return keep(c, float_operand(c), BINARY_GT, call_double(c, "threshold"),
                call_double(c, "value"));
}

static struct tensor op_hardshrink(struct call *c, int part)
{
    static const struct unary magnitude = {fabs, ckpt_abs};
    struct tensor a = float_operand(c), limit = call_tensor(c, "lambd");
    struct tensor outside =
        math_binary(c->r, BINARY_GT, math_unary(c->r, &magnitude, a, c->dtype), limit, PT2_BOOL);

    (void)part;
    return math_where(c->r, outside, a, tensor_number(c->r, c->dtype, 0, 0), c->dtype);
}

/* x nearer to 0 by a number, as far as 0. */
static struct tensor op_softshrink(struct call *c, int part)
{
    struct tensor a = float_operand(c);
    const double by = call_double(c, "lambd");
    struct tensor above = keep(c, math_affine(c->r, a, 1, -by), BINARY_GT, 0, 0);

    (void)part;
    return math_binary(c->r, BINARY_ADD, above,
                       keep(c, math_affine(c->r, a, 1, by), BINARY_LT, 0, 0), c->dtype);
}

/* The first half of an axis by the sigmoid of the second. */
static struct tensor op_glu(struct call *c, int part)
{
    static const struct unary gate = {sigmoid, ckpt_sigmoid};
    struct tensor a = float_operand(c);
    const int axis = call_axis(c, "dim", &a);
    const int64_t half = a.shape[axis] / 2;
    struct tensor x = view_slice(c->r, a, axis, 0, half, 1);
    struct tensor y = view_slice(c->r, a, axis, half, 2 * half, 1);

    (void)part;
    return math_binary(c->r, BINARY_MUL, x, math_unary(c->r, &gate, y, c->dtype), c->dtype);
}

/* One weight, or one for each channel of axis 1. */
static struct tensor op_prelu(struct call *c, int part)
{
    struct tensor a = float_operand(c), w = math_cast(c->r, call_tensor(c, "weight"), c->dtype);
    struct tensor zero = tensor_number(c->r, c->dtype, 0, 0);
    int64_t shape[TENSOR_AXES];

    (void)part;
    for (int i = 0; i < a.ndim; i++)
        shape[i] = i == 1 ? tensor_numel(&w) : 1;
    if (a.ndim > 1)
        w = view_reshape(c->r, w, a.ndim, shape);
    struct tensor above = math_binary(c->r, BINARY_GT, a, zero, PT2_BOOL);
    return math_where(c->r, above, a, math_binary(c->r, BINARY_MUL, a, w, c->dtype), c->dtype);
}

/* Other numbers for NaN and the infinities; what is not given is 0 or the largest of the dtype. */
static struct tensor op_nan_to_num(struct call *c, int part)
{
    static const struct unary nan = {is_nan, record_is_nan};
    struct tensor a = float_operand(c);
    const double most = c->dtype == PT2_BF16 ? 0x1.fep127 : 0x1.fffffep127;
    const char *const names[] = {"neginf", "posinf", "nan"};
    const double otherwise[] = {-most, most, 0};

    (void)part;
    for (int k = 0; k < 3 && pt2_is_float(c->dtype); k++) {
        struct tensor inf = tensor_number(c->r, c->dtype, k ? INFINITY : -INFINITY, 0);
        struct tensor is = k < 2 ? math_binary(c->r, BINARY_EQ, a, inf, PT2_BOOL)
                                 : math_unary(c->r, &nan, a, PT2_BOOL);
        const double to = call_has(c, names[k]) ? call_double(c, names[k]) : otherwise[k];
        a = math_where(c->r, is, tensor_number(c->r, c->dtype, to, 0), a, c->dtype);
    }
    return a;
}

#define ROW(name, value, record) {"aten." #name ".default", op_##name, NULL, NULL, false},
#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_unary[] = {
    UNARY_OPS(ROW) OP("gelu.default", op_gelu),
    OP("logical_not.default", op_logical_not),
    OP("special_expit.default", op_sigmoid),
    OP("bitwise_not.default", op_bitwise_not),
    OP("leaky_relu.default", op_leaky_relu),
    OP("elu.default", op_elu),
    OP("selu.default", op_selu),
    OP("celu.default", op_celu),
    OP("softplus.default", op_softplus),
    OP("hardtanh.default", op_hardtanh),
    OP("clamp.default", op_clamp),
    OP("clamp.Tensor", op_clamp),
    OP("clip.default", op_clamp),
    OP("clamp_min.default", op_clamp),
    OP("clamp_max.default", op_clamp),
    OP("clamp_min.Tensor", op_clamp),
    OP("clamp_max.Tensor", op_clamp),
    OP("threshold.default", op_threshold),
    OP("hardshrink.default", op_hardshrink),
    OP("softshrink.default", op_softshrink),
    OP("glu.default", op_glu),
    OP("prelu.default", op_prelu),
    OP("nan_to_num.default", op_nan_to_num),
    {NULL, NULL, NULL, NULL, false},
};

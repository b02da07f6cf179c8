/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of elements: arithmetic, comparisons, activations, casts. */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"
#include "import/views.h"

/* ---- one operand ----------------------------------------------------------------------------- */

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

static double is_zero(double x)
{
    return x == 0;
}

static ckpt_tensor record_reciprocal(ckpt_tape *t, ckpt_tensor x)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);

    return ckpt_div(t, ckpt_full(t, 1.f, d.ndim < 0 ? CKPT_F32 : d.dtype, 0, NULL), x);
}

static ckpt_tensor record_ceil(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_neg(t, ckpt_floor(t, ckpt_neg(t, x)));
}

static ckpt_tensor record_relu6(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_clamp(t, x, 0.f, 6.f);
}

static ckpt_tensor record_hardsigmoid(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_affine(t, ckpt_clamp(t, ckpt_affine(t, x, 1.f, 3.f), 0.f, 6.f), 1.f / 6, 0.f);
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
    X(exp, exp, ckpt_exp)                                                                          \
    X(expm1, expm1, ckpt_expm1)                                                                    \
    X(log, log, ckpt_log)                                                                          \
    X(log1p, log1p, ckpt_log1p)                                                                    \
    X(sqrt, sqrt, ckpt_sqrt)                                                                       \
    X(rsqrt, inverse_root, ckpt_rsqrt)                                                             \
    X(reciprocal, reciprocal, record_reciprocal)                                                   \
    X(sin, sin, ckpt_sin)                                                                          \
    X(cos, cos, ckpt_cos)                                                                          \
    X(tanh, tanh, ckpt_tanh)                                                                       \
    X(sigmoid, sigmoid, ckpt_sigmoid)                                                              \
    X(erf, erf, ckpt_erf)                                                                          \
    X(abs, fabs, ckpt_abs)                                                                         \
    X(sign, sign, ckpt_sign)                                                                       \
    X(floor, floor, ckpt_floor)                                                                    \
    X(ceil, ceil, record_ceil)                                                                     \
    X(round, nearbyint, ckpt_round)                                                                \
    X(square, square, record_square)                                                               \
    X(relu, positive, ckpt_relu)                                                                   \
    X(relu6, NULL, record_relu6)                                                                   \
    X(mish, NULL, ckpt_mish)                                                                       \
    X(hardswish, NULL, record_hardswish)                                                           \
    X(hardsigmoid, NULL, record_hardsigmoid)                                                       \
    X(log_sigmoid, NULL, record_log_sigmoid)                                                       \
    X(logical_not, is_zero, ckpt_not)

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

static struct tensor op_gelu(struct call *c, int part)
{
    static const struct unary erf_form = {NULL, ckpt_gelu_erf}, tanh_form = {NULL, ckpt_gelu_tanh};

    (void)part;
    return unary(c, strcmp(call_text(c, "approximate"), "tanh") ? &erf_form : &tanh_form);
}

static struct tensor op_bitwise_not(struct call *c, int part)
{
    if (c->dtype != PT2_BOOL)
        recording_fail(c->r, CKPT_EFORMAT, "bits of whole numbers cannot be recorded");
    return op_logical_not(c, part);
}

/* Functions with parameters take the operand in its order in memory as it is. */
static ckpt_tensor plain(struct recording *r, struct tensor *a)
{
    tensor_record(r, a);
    return a->plain.id ? a->plain : a->x;
}

static struct tensor back(struct call *c, const struct tensor *a, ckpt_tensor y)
{
    struct tensor out = c->r->failed ? *a : tensor_of(c->r, c->dtype, y);

    return a->plain.id && !c->r->failed ? view_permute(c->r, out, a->order) : out;
}

static struct tensor float_operand(struct call *c)
{
    return math_cast(c->r, call_tensor(c, "self"), c->dtype);
}

static struct tensor op_leaky_relu(struct call *c, int part)
{
    struct tensor a = float_operand(c);

    (void)part;
    return back(c, &a,
                ckpt_leaky_relu(c->r->t, plain(c->r, &a), (float)call_double(c, "negative_slope")));
}

static struct tensor op_elu(struct call *c, int part)
{
    struct tensor a = float_operand(c);

    (void)part;
    if (call_double(c, "scale") != 1 || call_double(c, "input_scale") != 1)
        recording_fail(c->r, CKPT_EFORMAT, "ELU with a scale cannot be recorded");
    return back(c, &a, ckpt_elu(c->r->t, plain(c->r, &a), (float)call_double(c, "alpha")));
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

/* ---- clamp ----------------------------------------------------------------------------------- */

static struct tensor bound(struct call *c, struct tensor a, const char *name, enum binary f)
{
    return call_has(c, name) ? math_binary(c->r, f, a, call_tensor(c, name), c->dtype) : a;
}

static struct tensor op_clamp(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);
    const struct pt2_arg *low = pt2_arg_find(c->node, "min"), *high = pt2_arg_find(c->node, "max");
    const bool has_low = low && low->kind != ARG_NONE, has_high = high && high->kind != ARG_NONE;
    const bool numbers =
        !(has_low && low->kind == ARG_VALUE) && !(has_high && high->kind == ARG_VALUE);

    (void)part;
    if (a.constant || !numbers)
        return bound(c, bound(c, a, "min", BINARY_MAX), "max", BINARY_MIN);
    const float from = has_low ? (float)call_double(c, "min") : -INFINITY;
    const float to = has_high ? (float)call_double(c, "max") : INFINITY;
    return back(c, &a, ckpt_clamp(c->r->t, plain(c->r, &a), from, to));
}

static struct tensor op_clamp_min(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);

    (void)part;
    if (a.constant)
        return bound(c, a, "min", BINARY_MAX);
    return back(c, &a,
                ckpt_clamp(c->r->t, plain(c->r, &a), (float)call_double(c, "min"), INFINITY));
}

static struct tensor op_clamp_max(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);

    (void)part;
    if (a.constant)
        return bound(c, a, "max", BINARY_MIN);
    return back(c, &a,
                ckpt_clamp(c->r->t, plain(c->r, &a), -INFINITY, (float)call_double(c, "max")));
}

static struct tensor op_hardtanh(struct call *c, int part)
{
    struct tensor a = float_operand(c);

    (void)part;
    return back(c, &a,
                ckpt_clamp(c->r->t, plain(c->r, &a), (float)call_double(c, "min_val"),
                           (float)call_double(c, "max_val")));
}

/* ---- two operands ---------------------------------------------------------------------------- */

static struct tensor binary(struct call *c, enum binary f)
{
    if (pt2_is_complex(c->facts->dtype))
        recording_fail(c->r, CKPT_EFORMAT, "complex numbers are only added and multiplied");
    return math_binary(c->r, f, call_tensor(c, "self"), call_tensor(c, "other"), c->dtype);
}

#define BINARY_OPS(X)                                                                              \
    X(div, BINARY_DIV)                                                                             \
    X(floor_divide, BINARY_FLOOR_DIV)                                                              \
    X(remainder, BINARY_REMAINDER)                                                                 \
    X(minimum, BINARY_MIN)                                                                         \
    X(maximum, BINARY_MAX)                                                                         \
    X(eq, BINARY_EQ)                                                                               \
    X(ne, BINARY_NE)                                                                               \
    X(lt, BINARY_LT)                                                                               \
    X(le, BINARY_LE)                                                                               \
    X(gt, BINARY_GT)                                                                               \
    X(ge, BINARY_GE)                                                                               \
    X(logical_and, BINARY_AND)                                                                     \
    X(logical_or, BINARY_OR)                                                                       \
    X(logical_xor, BINARY_XOR)

#define DEFINE_BINARY(name, f)                                                                     \
    static struct tensor op_##name(struct call *c, int part)                                       \
    {                                                                                              \
        (void)part;                                                                                \
        return binary(c, f);                                                                       \
    }
BINARY_OPS(DEFINE_BINARY)

/* Of whole numbers bits, which the host alone computes. */
static struct tensor bitwise(struct call *c, enum binary f)
{
    struct tensor a = call_tensor(c, "self"), b = call_tensor(c, "other");

    if (c->dtype != PT2_BOOL && !(a.constant && b.constant))
        recording_fail(c->r, CKPT_EFORMAT, "bits of whole numbers cannot be recorded");
    return math_binary(c->r, f, a, b, c->dtype);
}

static struct tensor op_bitwise_and(struct call *c, int part)
{
    (void)part;
    return bitwise(c, BINARY_AND);
}

static struct tensor op_bitwise_or(struct call *c, int part)
{
    (void)part;
    return bitwise(c, BINARY_OR);
}

static struct tensor op_bitwise_xor(struct call *c, int part)
{
    (void)part;
    return bitwise(c, BINARY_XOR);
}

/* self + alpha other. */
static struct tensor sum(struct call *c, const char *first, const char *second, enum binary f)
{
    const double alpha = call_double(c, "alpha");
    struct tensor b = call_tensor(c, second);

    if (alpha != 1)
        b = math_binary(c->r, BINARY_MUL, b, tensor_number(c->r, c->dtype, alpha, (int64_t)alpha),
                        c->dtype);
    return math_binary(c->r, f, call_tensor(c, first), b, c->dtype);
}

static ckpt_tensor record_variable(struct call *c, struct variable *v)
{
    struct tensor a = *variable_read(c->r, v);

    return tensor_record(c->r, &a);
}

/* A linear layer that starts from the residual. */
static struct tensor add_layer(struct call *c, const struct layer_sum *s)
{
    ckpt_tensor y = record_layer(s->layer, record_variable(c, s->rest));

    return c->r->failed ? tensor_number(c->r, c->dtype, 0, 0) : tensor_of(c->r, c->dtype, y);
}

static struct tensor modulate(struct call *c, const struct modulation *m)
{
    struct call of = *m->norm;
    ckpt_tensor x = call_operand(&of, "input", c->dtype);
    ckpt_tensor shift = record_variable(c, m->shift), scale = record_variable(c, m->scale);

    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    return tensor_of(
        c->r, c->dtype,
        ckpt_layer_norm_modulate(c->r->t, x, shift, scale, (float)call_double(&of, "eps")));
}

static struct tensor op_add(struct call *c, int part)
{
    struct layer_sum s;
    struct modulation m;

    (void)part;
    if (pt2_is_float(c->dtype) && pattern_layer_sum(c, &s))
        return add_layer(c, &s);
    if (pt2_is_float(c->dtype) && pattern_modulation(c, &m))
        return modulate(c, &m);
    struct tensor block;
    if (pt2_is_float(c->dtype) && record_block(c, &block))
        return block;
    return sum(c, "self", "other", BINARY_ADD);
}

static struct tensor op_sub(struct call *c, int part)
{
    (void)part;
    return sum(c, "self", "other", BINARY_SUB);
}

static struct tensor op_rsub(struct call *c, int part)
{
    (void)part;
    return sum(c, "other", "self", BINARY_SUB);
}

static struct tensor op_div_mode(struct call *c, int part)
{
    static const struct unary to_zero = {trunc, NULL};
    struct tensor a = call_tensor(c, "self"), b = call_tensor(c, "other");

    (void)part;
    if (!call_has(c, "rounding_mode"))
        return math_binary(c->r, BINARY_DIV, a, b, c->dtype);
    if (!strcmp(call_text(c, "rounding_mode"), "floor"))
        return math_binary(c->r, BINARY_FLOOR_DIV, a, b, c->dtype);
    struct tensor q = math_binary(c->r, BINARY_DIV, a, b, PT2_F64);
    if (q.constant)
        return math_cast(c->r, math_unary(c->r, &to_zero, q, PT2_F64), c->dtype);
    return math_cast(c->r, math_cast(c->r, q, PT2_I64), c->dtype);
}

static struct tensor power_of_tensor(struct call *c, struct tensor a, double p)
{
    static const struct unary squared = {square, record_square}, root = {NULL, ckpt_sqrt},
                              inverse = {NULL, ckpt_rsqrt}, one_over = {NULL, record_reciprocal};

    if (p == 1)
        return a;
    const struct unary *f = p == 2      ? &squared
                            : p == 0.5  ? &root
                            : p == -0.5 ? &inverse
                            : p == -1   ? &one_over
                                        : NULL;
    if (f)
        return math_unary(c->r, f, a, c->dtype);
    if (p == 3)
        return math_binary(c->r, BINARY_MUL, math_unary(c->r, &squared, a, c->dtype), a, c->dtype);
    return back(c, &a, ckpt_pow_scalar(c->r->t, plain(c->r, &a), (float)p));
}

static struct tensor op_pow(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self"), p = call_tensor(c, "exponent");

    (void)part;
    if (p.constant && !p.ndim && !a.constant)
        return power_of_tensor(c, math_cast(c->r, a, c->dtype), tensor_f(&p, 0));
    return math_binary(c->r, BINARY_POW, a, p, c->dtype);
}

/* self + value tensor1 tensor2, and with a quotient. */
static struct tensor add_of(struct call *c, enum binary f)
{
    struct tensor x =
        math_binary(c->r, f, call_tensor(c, "tensor1"), call_tensor(c, "tensor2"), c->dtype);

    x = math_binary(c->r, BINARY_MUL, x, call_tensor(c, "value"), c->dtype);
    return math_binary(c->r, BINARY_ADD, call_tensor(c, "self"), x, c->dtype);
}

static struct tensor op_addcmul(struct call *c, int part)
{
    (void)part;
    return add_of(c, BINARY_MUL);
}

static struct tensor op_addcdiv(struct call *c, int part)
{
    (void)part;
    return add_of(c, BINARY_DIV);
}

static struct tensor op_lerp(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    struct tensor d = math_binary(c->r, BINARY_SUB, call_tensor(c, "end"), a, c->dtype);

    (void)part;
    d = math_binary(c->r, BINARY_MUL, d, call_tensor(c, "weight"), c->dtype);
    return math_binary(c->r, BINARY_ADD, a, d, c->dtype);
}

/* ---- complex numbers ------------------------------------------------------------------------- */

/* Pairs along the last axis are complex numbers, and back. */
static struct tensor op_view_as_complex(struct call *c, int part)
{
    struct tensor a = call_part(c, "self", false);
    const int last = a.ndim - 1, at = c->imaginary;

    (void)part;
    a = view_slice(c->r, a, last, at, at + 1, 1);
    return c->r->failed ? a : view_squeeze(c->r, a, last);
}

static struct tensor op_view_as_real(struct call *c, int part)
{
    struct tensor pair[2] = {call_part(c, "self", false), call_part(c, "self", true)};
    const int axis = pair[0].ndim;

    (void)part;
    for (int i = 0; i < 2 && !c->r->failed; i++)
        pair[i] = view_unsqueeze(c->r, pair[i], axis);
    return c->r->failed ? pair[0] : join_tensors(c->r, axis, 2, pair);
}

static struct tensor op_polar(struct call *c, int part)
{
    static const struct unary sine = {sin, ckpt_sin}, cosine = {cos, ckpt_cos};
    struct tensor angle = call_part(c, "angle", false);

    (void)part;
    return math_binary(c->r, BINARY_MUL, call_part(c, "abs", false),
                       math_unary(c->r, c->imaginary ? &sine : &cosine, angle, c->dtype), c->dtype);
}

/* ---- choices --------------------------------------------------------------------------------- */

static struct tensor op_where(struct call *c, int part)
{
    (void)part;
    return math_where(c->r, call_tensor(c, "condition"), call_tensor(c, "self"),
                      call_tensor(c, "other"), c->dtype);
}

static struct tensor op_masked_fill(struct call *c, int part)
{
    (void)part;
    return math_where(c->r, call_tensor(c, "mask"), call_tensor(c, "value"), call_tensor(c, "self"),
                      c->dtype);
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

static struct tensor op_fill(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return view_expand(c->r, math_cast(c->r, call_tensor(c, "value"), c->dtype), a.ndim, a.shape);
}

static struct tensor op_copy(struct call *c, int part)
{
    (void)part;
    return math_cast(c->r, call_tensor(c, "src"), c->dtype);
}

static struct tensor op_zero(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return view_expand(c->r, tensor_number(c->r, c->dtype, 0, 0), a.ndim, a.shape);
}

#define ROW(name, value, record) {"aten." #name ".default", op_##name, NULL, NULL, false},
#define ROW_BOTH(name, f)                                                                          \
    {"aten." #name ".Tensor", op_##name, NULL, NULL, false},                                       \
        {"aten." #name ".Scalar", op_##name, NULL, NULL, false},                                   \
        {"aten." #name ".default", op_##name, NULL, NULL, false},

const struct op ops_math[] = {
    {"aten.min.other", op_minimum, NULL, NULL, false},
    {"aten.max.other", op_maximum, NULL, NULL, false},
    UNARY_OPS(ROW) BINARY_OPS(ROW_BOTH){"aten.add.Tensor", op_add, NULL, NULL, false},
    {"aten.add.Scalar", op_add, NULL, NULL, false},
    {"aten.sub.Tensor", op_sub, NULL, NULL, false},
    {"aten.sub.Scalar", op_sub, NULL, NULL, false},
    {"aten.rsub.Scalar", op_rsub, NULL, NULL, false},
    {"aten.rsub.Tensor", op_rsub, NULL, NULL, false},
    {"aten.div.Tensor_mode", op_div_mode, NULL, NULL, false},
    {"aten.div.Scalar_mode", op_div_mode, NULL, NULL, false},
    {"aten.__and__.Tensor", op_bitwise_and, NULL, NULL, false},
    {"aten.__or__.Tensor", op_bitwise_or, NULL, NULL, false},
    {"aten.__xor__.Tensor", op_bitwise_xor, NULL, NULL, false},
    {"aten.bitwise_and.Tensor", op_bitwise_and, NULL, NULL, false},
    {"aten.bitwise_or.Tensor", op_bitwise_or, NULL, NULL, false},
    {"aten.bitwise_xor.Tensor", op_bitwise_xor, NULL, NULL, false},
    {"aten.bitwise_not.default", op_bitwise_not, NULL, NULL, false},
    {"aten.pow.Tensor_Scalar", op_pow, NULL, NULL, false},
    {"aten.pow.Tensor_Tensor", op_pow, NULL, NULL, false},
    {"aten.pow.Scalar", op_pow, NULL, NULL, false},
    {"aten.gelu.default", op_gelu, NULL, NULL, false},
    {"aten.leaky_relu.default", op_leaky_relu, NULL, NULL, false},
    {"aten.elu.default", op_elu, NULL, NULL, false},
    {"aten.softplus.default", op_softplus, NULL, NULL, false},
    {"aten.hardtanh.default", op_hardtanh, NULL, NULL, false},
    {"aten.prelu.default", op_prelu, NULL, NULL, false},
    {"aten.clamp.default", op_clamp, NULL, NULL, false},
    {"aten.clamp.Tensor", op_clamp, NULL, NULL, false},
    {"aten.clip.default", op_clamp, NULL, NULL, false},
    {"aten.clamp_min.default", op_clamp_min, NULL, NULL, false},
    {"aten.clamp_max.default", op_clamp_max, NULL, NULL, false},
    {"aten.addcmul.default", op_addcmul, NULL, NULL, false},
    {"aten.addcdiv.default", op_addcdiv, NULL, NULL, false},
    {"aten.lerp.Scalar", op_lerp, NULL, NULL, false},
    {"aten.lerp.Tensor", op_lerp, NULL, NULL, false},
    {"aten.view_as_complex.default", op_view_as_complex, NULL, NULL, false},
    {"aten.view_as_real.default", op_view_as_real, NULL, NULL, false},
    {"aten.polar.default", op_polar, NULL, NULL, false},
    {"aten.where.self", op_where, NULL, NULL, false},
    {"aten.where.ScalarOther", op_where, NULL, NULL, false},
    {"aten.where.ScalarSelf", op_where, NULL, NULL, false},
    {"aten.where.Scalar", op_where, NULL, NULL, false},
    {"aten.masked_fill.Scalar", op_masked_fill, NULL, NULL, false},
    {"aten.masked_fill.Tensor", op_masked_fill, NULL, NULL, false},
    {"aten.fill.Scalar", op_fill, NULL, NULL, false},
    {"aten.fill.Tensor", op_fill, NULL, NULL, false},
    {"aten.copy.default", op_copy, NULL, NULL, false},
    {"aten.zero.default", op_zero, NULL, NULL, false},
    {NULL, NULL, NULL, NULL, false},
};

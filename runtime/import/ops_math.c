/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of two operands or more: arithmetic, comparisons, powers, choices; complex numbers. */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"
#include "import/views.h"

/* ---- two operands ---------------------------------------------------------------------------- */

static struct tensor binary(struct call *c, enum binary f)
{
    if (pt2_is_complex(c->facts->dtype) && f == BINARY_DIV)
        return divide_complex(c);
    if (pt2_is_complex(c->facts->dtype))
        recording_fail(c->r, CKPT_EFORMAT, "complex numbers are only added, multiplied, divided");
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

static struct tensor op_add(struct call *c, int part)
{
    struct layer_sum s;

    (void)part;
    if (pt2_is_float(c->dtype) && pattern_layer_sum(c, &s))
        return add_layer(c, &s);
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

/* The quotient, rounded towards 0; it has no gradient. */
static struct tensor quotient_to_zero(struct call *c, struct tensor a, struct tensor b)
{
    static const struct unary to_zero = {trunc, NULL};
    struct tensor q = math_binary(c->r, BINARY_DIV, a, b, PT2_F64);

    if (q.constant)
        return math_cast(c->r, math_unary(c->r, &to_zero, q, PT2_F64), c->dtype);
    return math_cast(c->r, math_cast(c->r, q, PT2_I64), c->dtype);
}

/* a - trunc(a / b) b: what remains has the sign of a. */
static struct tensor op_fmod(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);
    struct tensor b = math_cast(c->r, call_tensor(c, "other"), c->dtype);
    struct tensor q = quotient_to_zero(c, a, b);

    (void)part;
    return math_binary(c->r, BINARY_SUB, a, math_binary(c->r, BINARY_MUL, q, b, c->dtype),
                       c->dtype);
}

struct tensor record_log_sum(struct call *c, struct tensor a, struct tensor b)
{
    static const struct unary magnitude = {fabs, ckpt_abs}, above = {log1p, ckpt_log1p},
                              power = {exp, ckpt_exp};
    struct tensor same = math_binary(c->r, BINARY_EQ, a, b, PT2_BOOL); /* or infinite */
    struct tensor d = math_binary(c->r, BINARY_SUB, a, b, c->dtype);

    d = math_where(c->r, same, tensor_number(c->r, c->dtype, 0, 0), d, c->dtype);
    d = math_affine(c->r, math_unary(c->r, &magnitude, d, c->dtype), -1, 0);
    d = math_unary(c->r, &above, math_unary(c->r, &power, d, c->dtype), c->dtype);
    return math_binary(c->r, BINARY_ADD, math_binary(c->r, BINARY_MAX, a, b, c->dtype), d,
                       c->dtype);
}

static struct tensor op_logaddexp(struct call *c, int part)
{
    (void)part;
    return record_log_sum(c, call_tensor(c, "self"), call_tensor(c, "other"));
}

static struct tensor op_div_mode(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self"), b = call_tensor(c, "other");

    (void)part;
    if (!call_has(c, "rounding_mode"))
        return math_binary(c->r, BINARY_DIV, a, b, c->dtype);
    if (!strcmp(call_text(c, "rounding_mode"), "floor"))
        return math_binary(c->r, BINARY_FLOOR_DIV, a, b, c->dtype);
    return quotient_to_zero(c, a, b);
}

static struct tensor power_of_tensor(struct call *c, struct tensor a, double p)
{
    static const struct unary root = {NULL, ckpt_sqrt}, inverse = {NULL, ckpt_rsqrt};
    struct tensor one = tensor_number(c->r, c->dtype, 1, 1);

    if (p == 1)
        return a;
    if (p == 0)
        return view_expand(c->r, one, a.ndim, a.shape);
    if (p == 0.5 || p == -0.5)
        return math_unary(c->r, p > 0 ? &root : &inverse, a, c->dtype);
    if (p == -1)
        return math_binary(c->r, BINARY_DIV, one, a, c->dtype);
    if (p != 2 && p != 3)
        return math_back(c->r, &a, ckpt_pow_scalar(c->r->t, math_plain(c->r, &a), (float)p));
    struct tensor square = math_binary(c->r, BINARY_MUL, a, a, c->dtype);
    return p == 2 ? square : math_binary(c->r, BINARY_MUL, square, a, c->dtype);
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

static struct tensor op_fill(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return view_expand(c->r, math_cast(c->r, call_tensor(c, "value"), c->dtype), a.ndim, a.shape);
}

static struct tensor op_copy(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return view_expand(c->r, math_cast(c->r, call_tensor(c, "src"), c->dtype), a.ndim, a.shape);
}

static struct tensor op_zero(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return view_expand(c->r, tensor_number(c->r, c->dtype, 0, 0), a.ndim, a.shape);
}

#define ROW_BOTH(name, f)                                                                          \
    {"aten." #name ".Tensor", op_##name, NULL, NULL, false},                                       \
        {"aten." #name ".Scalar", op_##name, NULL, NULL, false},                                   \
        {"aten." #name ".default", op_##name, NULL, NULL, false},

const struct op ops_math[] = {
    {"aten.min.other", op_minimum, NULL, NULL, false},
    {"aten.max.other", op_maximum, NULL, NULL, false},
    BINARY_OPS(ROW_BOTH){"aten.add.Tensor", op_add, NULL, NULL, false},
    {"aten.add.Scalar", op_add, NULL, NULL, false},
    {"aten.sub.Tensor", op_sub, NULL, NULL, false},
    {"aten.sub.Scalar", op_sub, NULL, NULL, false},
    {"aten.rsub.Scalar", op_rsub, NULL, NULL, false},
    {"aten.rsub.Tensor", op_rsub, NULL, NULL, false},
    {"aten.fmod.Tensor", op_fmod, NULL, NULL, false},
    {"aten.fmod.Scalar", op_fmod, NULL, NULL, false},
    {"aten.logaddexp.default", op_logaddexp, NULL, NULL, false},
    {"aten.div.Tensor_mode", op_div_mode, NULL, NULL, false},
    {"aten.div.Scalar_mode", op_div_mode, NULL, NULL, false},
    {"aten.bitwise_and.Tensor", op_bitwise_and, NULL, NULL, false},
    {"aten.bitwise_and.Scalar", op_bitwise_and, NULL, NULL, false},
    {"aten.bitwise_or.Tensor", op_bitwise_or, NULL, NULL, false},
    {"aten.bitwise_or.Scalar", op_bitwise_or, NULL, NULL, false},
    {"aten.bitwise_xor.Tensor", op_bitwise_xor, NULL, NULL, false},
    {"aten.bitwise_xor.Scalar", op_bitwise_xor, NULL, NULL, false},
    {"aten.pow.Tensor_Scalar", op_pow, NULL, NULL, false},
    {"aten.pow.Tensor_Tensor", op_pow, NULL, NULL, false},
    {"aten.pow.Scalar", op_pow, NULL, NULL, false},
    {"aten.addcmul.default", op_addcmul, NULL, NULL, false},
    {"aten.addcdiv.default", op_addcdiv, NULL, NULL, false},
    {"aten.lerp.Scalar", op_lerp, NULL, NULL, false},
    {"aten.lerp.Tensor", op_lerp, NULL, NULL, false},
    {"aten.view_as_complex.default", op_view_as_complex, put_nothing, NULL, false},
    {"aten.view_as_real.default", op_view_as_real, put_nothing, NULL, false},
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

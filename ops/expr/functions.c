/* SPDX-License-Identifier: Apache-2.0 */
/* The element-wise functions of ckpt_ops.h as expressions. */
#include <math.h>
#include "expr/expr.h"
#include "ops.h"
#include "tape/tape.h"

/* One node, with constants p and q. */
static ckpt_tensor unary(ckpt_tape *t, const char *name, enum expr_code code, ckpt_tensor x,
                         float p, float q)
{
    struct expr e;
    expr_init(&e, name, 1);
    expr_finish(&e, expr_node(&e, code, 0, 0, 0, p, q), NULL);
    return expr_record(t, &e, &x);
}

static ckpt_tensor binary(ckpt_tape *t, const char *name, enum expr_code code, ckpt_tensor a,
                          ckpt_tensor b)
{
    struct expr e;
    expr_init(&e, name, 2);
    expr_finish(&e, expr_binary(&e, code, 0, 1), NULL);
    return expr_record(t, &e, (ckpt_tensor[]){a, b});
}

/* ---- integers ---------------------------------------------------------------------------------*/

bool expr_are_integers(ckpt_tape *t, int n, const ckpt_tensor *x)
{
    for (int i = 0; i < n; i++) {
        struct ckpt_desc d = ckpt_desc_of(t, x[i]);
        if (d.ndim < 0 || d.dtype != CKPT_I32)
            return false;
    }
    return true;
}

static bool is_whole(float x)
{
    return isinf(x) || x == truncf(x);
}

ckpt_tensor expr_integers(ckpt_tape *t, const char *name, enum expr_code code, int n,
                          const ckpt_tensor *x, float p, float q)
{
    struct expr e;
    if (!is_whole(p) || !is_whole(q)) {
        ckpt_tape_fail(t, CKPT_EINVAL, "%s: of i32 with %g and %g, which must be whole numbers",
                       name, (double)p, (double)q);
        return CKPT_NONE;
    }
    expr_init(&e, name, n);
    e.dtype = CKPT_I32;
    for (int k = 0; k < n; k++)
        e.operand[k] = EXPR_I32;
    int result = expr_node(&e, code, 0, n > 1 ? 1 : 0, n > 2 ? 2 : 0, p, q);
    expr_finish(&e, expr_unary(&e, EXPR_INTEGER, result), NULL);
    return expr_record(t, &e, x);
}

/* Like unary() and binary(), but integers are accepted, too. */
static ckpt_tensor unary_any(ckpt_tape *t, const char *name, enum expr_code code, ckpt_tensor x,
                             float p, float q)
{
    return expr_are_integers(t, 1, &x) ? expr_integers(t, name, code, 1, &x, p, q)
                                       : unary(t, name, code, x, p, q);
}

static ckpt_tensor binary_any(ckpt_tape *t, const char *name, enum expr_code code, ckpt_tensor a,
                              ckpt_tensor b)
{
    const ckpt_tensor in[] = {a, b};
    return expr_are_integers(t, 2, in) ? expr_integers(t, name, code, 2, in, 0.f, 0.f)
                                       : binary(t, name, code, a, b);
}

/* ---- one node ---------------------------------------------------------------------------------*/

/* Define the call: of floats by unary and binary, of integers, too, by unary_any and binary_any. */
#define UNARY(name, code, record)                                                                  \
    ckpt_tensor ckpt_##name(ckpt_tape *t, ckpt_tensor x)                                           \
    {                                                                                              \
        return record(t, #name, EXPR_##code, x, 0.f, 0.f);                                         \
    }
#define BINARY(name, code, record)                                                                 \
    ckpt_tensor ckpt_##name(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)                            \
    {                                                                                              \
        return record(t, #name, EXPR_##code, a, b);                                                \
    }
UNARY(exp, EXP, unary)
UNARY(expm1, EXPM1, unary)
UNARY(log, LOG, unary)
UNARY(log1p, LOG1P, unary)
UNARY(sqrt, SQRT, unary)
UNARY(rsqrt, RSQRT, unary)
UNARY(tanh, TANH, unary)
UNARY(sigmoid, SIGMOID, unary)
UNARY(softplus, SOFTPLUS, unary)
UNARY(erf, ERF, unary)
UNARY(sin, SIN, unary)
UNARY(cos, COS, unary)
UNARY(floor, FLOOR, unary)
UNARY(round, ROUND, unary)
UNARY(abs, ABS, unary_any)
UNARY(sign, SIGN, unary_any)
BINARY(div, DIV, binary)
BINARY(pow, POW, binary)
BINARY(minimum, MINIMUM, binary_any)
BINARY(maximum, MAXIMUM, binary_any)

ckpt_tensor ckpt_neg(ckpt_tape *t, ckpt_tensor x)
{
    return unary_any(t, "neg", EXPR_SCALE, x, -1.f, 0.f);
}

ckpt_tensor ckpt_pow_scalar(ckpt_tape *t, ckpt_tensor x, float p)
{
    struct expr e;
    expr_init(&e, "pow", 1);
    expr_finish(&e, expr_power(&e, 0, p), NULL);
    return expr_record(t, &e, &x);
}

ckpt_tensor ckpt_clamp(ckpt_tape *t, ckpt_tensor x, float low, float high)
{
    if (!(low <= high)) {
        ckpt_tape_fail(t, CKPT_EINVAL, "clamp: the range is from %g to %g", (double)low,
                       (double)high);
        return CKPT_NONE;
    }
    return unary_any(t, "clamp", EXPR_CLAMP, x, low, high);
}

/* ---- activations ------------------------------------------------------------------------------*/

ckpt_tensor ckpt_gelu_erf(ckpt_tape *t, ckpt_tensor x)
{
    struct expr e;
    expr_init(&e, "gelu_erf", 1);
    int inner = expr_unary(&e, EXPR_ERF, expr_node(&e, EXPR_SCALE, 0, 0, 0, 0.70710678f, 0.f));
    int share = expr_node(&e, EXPR_AFFINE, inner, 0, 0, 0.5f, 0.5f);
    expr_finish(&e, expr_binary(&e, EXPR_MUL, 0, share), NULL);
    return expr_record(t, &e, &x);
}

ckpt_tensor ckpt_leaky_relu(ckpt_tape *t, ckpt_tensor x, float slope)
{
    return unary(t, "leaky_relu", EXPR_LEAKY, x, slope, 0.f);
}

/* The exponential gets no positive argument: where it is infinite the gradient would be NaN. */
ckpt_tensor ckpt_elu(ckpt_tape *t, ckpt_tensor x, float alpha)
{
    struct expr e;
    expr_init(&e, "elu", 1);
    int zero = expr_constant(&e, 0.f), positive = expr_binary(&e, EXPR_LT, zero, 0);
    int below = expr_unary(&e, EXPR_EXPM1, expr_where(&e, positive, zero, 0));
    below = expr_node(&e, EXPR_SCALE, below, 0, 0, alpha, 0.f);
    expr_finish(&e, expr_where(&e, positive, 0, below), NULL);
    return expr_record(t, &e, &x);
}

ckpt_tensor ckpt_mish(ckpt_tape *t, ckpt_tensor x)
{
    struct expr e;
    expr_init(&e, "mish", 1);
    int gate = expr_unary(&e, EXPR_TANH, expr_unary(&e, EXPR_SOFTPLUS, 0));
    expr_finish(&e, expr_binary(&e, EXPR_MUL, 0, gate), NULL);
    return expr_record(t, &e, &x);
}

ckpt_tensor ops_soft_cap(ckpt_tape *t, ckpt_tensor x, float cap)
{
    struct expr e;
    if (cap == 0.f)
        return x;
    expr_init(&e, "soft_cap", 1);
    int share = expr_unary(&e, EXPR_TANH, expr_node(&e, EXPR_SCALE, 0, 0, 0, 1.f / cap, 0.f));
    expr_finish(&e, expr_node(&e, EXPR_SCALE, share, 0, 0, cap, 0.f), NULL);
    return expr_record(t, &e, &x);
}

/* ---- comparisons, logic, casts ----------------------------------------------------------------*/

static ckpt_tensor compare(ckpt_tape *t, const char *name, enum expr_code code, ckpt_tensor a,
                           ckpt_tensor b, bool swapped)
{
    struct expr e;
    expr_init(&e, name, 2);
    e.dtype = CKPT_I32;
    e.operand[0] = e.operand[1] = EXPR_ANY;
    expr_finish(&e, expr_binary(&e, code, swapped, !swapped), NULL);
    return expr_record(t, &e, (ckpt_tensor[]){a, b});
}

#define COMPARE(name, code, swapped)                                                               \
    ckpt_tensor ckpt_##name(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)                            \
    {                                                                                              \
        return compare(t, #name, EXPR_##code, a, b, swapped);                                      \
    }
COMPARE(eq, EQ, false)
COMPARE(ne, NE, false)
COMPARE(lt, LT, false)
COMPARE(le, LE, false)
COMPARE(gt, LT, true)
COMPARE(ge, LE, true)

static ckpt_tensor logic(ckpt_tape *t, const char *name, enum expr_code code, int n,
                         const ckpt_tensor *x)
{
    struct expr e;
    expr_init(&e, name, n);
    e.dtype = CKPT_I32;
    for (int k = 0; k < n; k++)
        e.operand[k] = EXPR_I32;
    expr_finish(&e, expr_node(&e, code, 0, n - 1, 0, 0.f, 0.f), NULL);
    return expr_record(t, &e, x);
}

static ckpt_tensor logic_of_two(ckpt_tape *t, const char *name, enum expr_code code, ckpt_tensor a,
                                ckpt_tensor b)
{
    return logic(t, name, code, 2, (ckpt_tensor[]){a, b});
}
BINARY(and, AND, logic_of_two)
BINARY(or, OR, logic_of_two)

ckpt_tensor ckpt_not(ckpt_tape *t, ckpt_tensor a)
{
    return logic(t, "not", EXPR_NOT, 1, &a);
}

ckpt_tensor expr_cast(ckpt_tape *t, ckpt_tensor x, enum ckpt_dtype dtype)
{
    struct expr e;
    expr_init(&e, "cast", 1);
    e.dtype = (int32_t)dtype;
    e.operand[0] = EXPR_ANY;
    expr_finish(&e, dtype == CKPT_I32 ? expr_unary(&e, EXPR_INTEGER, 0) : 0, NULL);
    return expr_record(t, &e, &x);
}

/* ---- generated values ------------------------------------------------------------------------ */

/* Initialises a program without operands, with a dtype and shape.  Returns 0 or the error of the
 * tape. */
static int init_made(ckpt_tape *t, struct expr *e, const char *name, enum ckpt_dtype dtype,
                     int ndim, const int64_t *shape)
{
    expr_init(e, name, 0);
    if (ndim < 0 || ndim > CKPT_MAX_DIMS || (ndim > 0 && !shape) || !dtype_is_known(dtype)) {
        ckpt_tape_fail(t, CKPT_EINVAL, "%s: it needs a dtype of ckpt.h and a shape of 0 to %d axes",
                       name, CKPT_MAX_DIMS);
        return CKPT_EINVAL;
    }
    e->dtype = (int32_t)dtype;
    e->ndim = ndim;
    for (int i = 0; i < ndim; i++)
        e->shape[i] = shape[i];
    return 0;
}

ckpt_tensor ckpt_full(ckpt_tape *t, float value, enum ckpt_dtype dtype, int ndim,
                      const int64_t *shape)
{
    struct expr e;
    if (init_made(t, &e, "full", dtype, ndim, shape))
        return CKPT_NONE;
    int made = expr_constant(&e, value);
    expr_finish(&e, dtype == CKPT_I32 ? expr_unary(&e, EXPR_INTEGER, made) : made, NULL);
    return expr_record(t, &e, NULL);
}

ckpt_tensor ckpt_iota(ckpt_tape *t, enum ckpt_dtype dtype, int ndim, const int64_t *shape, int axis)
{
    struct expr e;
    if (init_made(t, &e, "iota", dtype, ndim, shape))
        return CKPT_NONE;
    if (axis < 0 || axis >= ndim || shape[axis] > 1 << 24) {
        ckpt_tape_fail(t, CKPT_EINVAL, "iota: axis %d of %d axes is not there, or longer than 2^24",
                       axis, ndim);
        return CKPT_NONE;
    }
    expr_finish(&e, expr_node(&e, EXPR_INDEX, axis, 0, 0, 0.f, 0.f), NULL);
    return expr_record(t, &e, NULL);
}

/* A node of uniform values for the next op that is recorded; the streams of the library have the
 * highest bit set.  Feeds may be recorded before that op, but no other op that draws random
 * values. */
static int uniform_node(const ckpt_tape *t, struct expr *e)
{
    int i = expr_node(e, EXPR_UNIFORM, 0, 0, 0, 0.f, 0.f);
    e->node[i].stream = (uint32_t)(t ? tape_number(t) : 0) | 1u << 31;
    return i;
}

ckpt_tensor ckpt_bernoulli(ckpt_tape *t, float p, enum ckpt_dtype dtype, int ndim,
                           const int64_t *shape)
{
    struct expr e;
    if (init_made(t, &e, "bernoulli", dtype, ndim, shape))
        return CKPT_NONE;
    if (!(p >= 0.f && p <= 1.f)) {
        ckpt_tape_fail(t, CKPT_EINVAL, "bernoulli: a probability of %g", (double)p);
        return CKPT_NONE;
    }
    int drawn = uniform_node(t, &e);
    expr_finish(&e, expr_binary(&e, EXPR_LT, drawn, expr_constant(&e, p)), NULL);
    return expr_record(t, &e, NULL);
}

ckpt_tensor ckpt_dropout(ckpt_tape *t, ckpt_tensor x, float p)
{
    struct expr e;
    if (!(p >= 0.f && p < 1.f)) {
        ckpt_tape_fail(t, CKPT_EINVAL, "dropout: a probability of %g; it is below 1", (double)p);
        return CKPT_NONE;
    }
    expr_init(&e, "dropout", 1);
    int kept = expr_binary(&e, EXPR_LT, uniform_node(t, &e), expr_constant(&e, 1.f - p));
    int value = expr_node(&e, EXPR_SCALE, 0, 0, 0, 1.f / (1.f - p), 0.f);
    expr_finish(&e, expr_where(&e, kept, value, expr_constant(&e, 0.f)), NULL);
    return expr_record(t, &e, &x);
}

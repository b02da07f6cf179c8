/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise functions (ops/expr/) on random shapes, broadcast and strided, against fp64 and its
 * central differences.  As test_gradients.
 */
#include "harness.h"

#include <math.h>
#include <string.h>

/* ---- operands: one or two, in the range of a function -----------------------------------------*/

static void draw_plain(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 4, shape);
    struct operand *o = case_add(c, r, ROLE_PARAM, ndim, shape);
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] *= trial % 3 == 2 ? 5 : 1.5;
}

/* One value is not in the tail, where results are near 0. */
static void draw_gelu(struct op_case *c, struct rng *r, int trial)
{
    draw_plain(c, r, trial);
    c->in[0].value.x[0] = 1.5;
}

static void draw_softmax(struct op_case *c, struct rng *r, int trial)
{
    draw_plain(c, r, trial);
    c->in[0].keep_f32 = true; /* its gradient is a difference of numbers that bf16 rounds alike */
}

static void map_values(struct op_case *c, double (*f)(double))
{
    for (int k = 0; k < c->n_in; k++)
        for (int64_t i = 0; i < c->in[k].value.n; i++)
            c->in[k].value.x[i] = f(c->in[k].value.x[i]);
}

static double away_from_zero(double x)
{
    return x < 0 ? x - 0.4 : x + 0.4;
}

static double positive(double x)
{
    return fabs(x) + 0.4;
}

static double above_minus_one(double x)
{
    return fabs(x) - 0.7;
}

/* Far from whole numbers and halves, also in bf16. */
static double between(double x)
{
    return floor(2 * x) / 2 + 0.25;
}

/* Plain values, each moved to where the function is smooth. */
#define DRAW(name, change)                                                                         \
    static void draw_##name(struct op_case *c, struct rng *r, int trial)                           \
    {                                                                                              \
        draw_plain(c, r, trial);                                                                   \
        map_values(c, change);                                                                     \
    }
DRAW(nonzero, away_from_zero)
DRAW(positive, positive)
DRAW(log1p, above_minus_one)
DRAW(between, between)

/* Two operands, broadcast in two trials of three, the second fp32 in one of four. */
static void draw_two(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 4, shape);
    for (int k = 0; k < 2; k++)
        if (trial % 3 == 1)
            case_add(c, r, ROLE_PARAM, ndim, shape);
        else
            draw_broadcast(c, r, ROLE_PARAM, ndim, shape);
    c->in[1].keep_f32 = trial % 4 == 2;
}

static void draw_div(struct op_case *c, struct rng *r, int trial)
{
    draw_two(c, r, trial);
    for (int64_t i = 0; i < c->in[1].value.n; i++)
        c->in[1].value.x[i] = away_from_zero(c->in[1].value.x[i]);
}

static void draw_pow(struct op_case *c, struct rng *r, int trial)
{
    draw_two(c, r, trial);
    for (int64_t i = 0; i < c->in[0].value.n; i++)
        c->in[0].value.x[i] = positive(c->in[0].value.x[i]);
}

/* Many exact ties, and no near ties. */
static void draw_extreme(struct op_case *c, struct rng *r, int trial)
{
    draw_two(c, r, trial);
    map_values(c, between);
}

/* No gradient: a difference across a step is not a slope. */
static void draw_compare(struct op_case *c, struct rng *r, int trial)
{
    draw_extreme(c, r, trial);
    for (int64_t i = 0; i < c->in[1].value.n; i++)
        c->in[1].value.x[i] += 0.125;
}

/* ---- rows: what is recorded, and the same in fp64 ---------------------------------------------*/

#define ONE(name, call, value)                                                                     \
    static ckpt_tensor record_##name(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c) \
    {                                                                                              \
        (void)c;                                                                                   \
        return call;                                                                               \
    }                                                                                              \
    static void ref_##name(const struct array *in, struct array *out, const struct op_attr *a)     \
    {                                                                                              \
        (void)a;                                                                                   \
        array_init(out, in[0].ndim, in[0].shape);                                                  \
        for (int64_t i = 0; i < out->n; i++) {                                                     \
            double x = in[0].x[i];                                                                 \
            out->x[i] = (value);                                                                   \
        }                                                                                          \
    }
#define TWO(name, call, value)                                                                     \
    static ckpt_tensor record_##name(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c) \
    {                                                                                              \
        (void)c;                                                                                   \
        return call;                                                                               \
    }                                                                                              \
    static void ref_##name(const struct array *in, struct array *out, const struct op_attr *a)     \
    {                                                                                              \
        ref_add(in, out, a); /* for its shape */                                                   \
        for (int64_t i = 0; i < out->n; i++) {                                                     \
            double x = in[0].x[array_broadcast(out, &in[0], i)];                                   \
            double y = in[1].x[array_broadcast(out, &in[1], i)];                                   \
            out->x[i] = (value);                                                                   \
        }                                                                                          \
    }

static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static ckpt_tensor as_float(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_cast(t, x, CKPT_F32);
}

ONE(exp, ckpt_exp(t, in[0]), exp(x))
ONE(expm1, ckpt_expm1(t, in[0]), expm1(x))
ONE(log, ckpt_log(t, in[0]), log(x))
ONE(log1p, ckpt_log1p(t, in[0]), log1p(x))
ONE(sqrt, ckpt_sqrt(t, in[0]), sqrt(x))
ONE(rsqrt, ckpt_rsqrt(t, in[0]), 1 / sqrt(x))
ONE(neg, ckpt_neg(t, in[0]), -x)
ONE(abs, ckpt_abs(t, in[0]), fabs(x))
ONE(sign, ckpt_mul(t, in[0], ckpt_sign(t, in[0])), fabs(x))
ONE(floor, ckpt_floor(t, in[0]), floor(x))
ONE(round, ckpt_round(t, in[0]), rint(x))
ONE(sin, ckpt_sin(t, in[0]), sin(x))
ONE(cos, ckpt_cos(t, in[0]), cos(x))
ONE(tanh, ckpt_tanh(t, in[0]), tanh(x))
ONE(sigmoid, ckpt_sigmoid(t, in[0]), 1 / (1 + exp(-x)))
ONE(erf, ckpt_erf(t, in[0]), erf(x))
ONE(clamp, ckpt_clamp(t, in[0], -1.f, 2.f), x<-1 ? -1 : x> 2 ? 2 : x)
ONE(gelu_erf, ckpt_gelu_erf(t, in[0]), 0.5 * x * (1 + erf(x / sqrt(2))))
ONE(leaky_relu, ckpt_leaky_relu(t, in[0], 0.125f), x > 0 ? x : 0.125 * x)
ONE(elu, ckpt_elu(t, in[0], 1.5f), x > 0 ? x : 1.5 * expm1(x))
ONE(softplus, ckpt_softplus(t, in[0]), softplus(x))
ONE(mish, ckpt_mish(t, in[0]), x *tanh(softplus(x)))
ONE(pow_2, ckpt_pow_scalar(t, in[0], 2.f), x *x)
ONE(pow_3, ckpt_pow_scalar(t, in[0], 3.f), x *x *x)
ONE(pow_half, ckpt_pow_scalar(t, in[0], 0.5f), sqrt(x))
ONE(pow_minus, ckpt_pow_scalar(t, in[0], -1.f), 1 / x)
ONE(pow_some, ckpt_pow_scalar(t, in[0], 1.75f), pow(x, 1.75))
ONE(pow_0, ckpt_add(t, in[0], ckpt_pow_scalar(t, in[0], 0.f)), x + 1)
ONE(to_integer, ckpt_mul(t, in[0], as_float(t, ckpt_cast(t, in[0], CKPT_I32))), x *trunc(x))
ONE(not, ckpt_mul(t, in[0], as_float(t, ckpt_not(t, ckpt_cast(t, in[0], CKPT_I32)))),
    trunc(x) == 0 ? x : 0)
TWO(div, ckpt_div(t, in[0], in[1]), x / y)
TWO(pow, ckpt_pow(t, in[0], in[1]), pow(x, y))
TWO(minimum, ckpt_minimum(t, in[0], in[1]), x < y ? x : y)
TWO(maximum, ckpt_maximum(t, in[0], in[1]), x > y ? x : y)
TWO(eq, ckpt_mul(t, in[0], as_float(t, ckpt_eq(t, in[0], in[1]))), x == y ? x : 0)
TWO(ne, ckpt_mul(t, in[0], as_float(t, ckpt_ne(t, in[0], in[1]))), x != y ? x : 0)
TWO(lt, ckpt_mul(t, in[0], as_float(t, ckpt_lt(t, in[0], in[1]))), x < y ? x : 0)
TWO(le, ckpt_mul(t, in[0], as_float(t, ckpt_le(t, in[0], in[1]))), x <= y ? x : 0)
TWO(gt, ckpt_mul(t, in[0], as_float(t, ckpt_gt(t, in[0], in[1]))), x > y ? x : 0)
TWO(ge, ckpt_mul(t, in[0], as_float(t, ckpt_ge(t, in[0], in[1]))), x >= y ? x : 0)
TWO(logic,
    ckpt_mul(t, in[1],
             as_float(t, ckpt_or(t, ckpt_and(t, ckpt_lt(t, in[0], in[1]), ckpt_lt(t, in[1], in[1])),
                                 ckpt_not(t, ckpt_gt(t, in[0], in[1]))))),
    x <= y ? y : 0)

/* Fused, with broadcasting in the middle of the chain. */
TWO(chain,
    ckpt_mul(t, ckpt_tanh(t, ckpt_add(t, ckpt_mul(t, in[0], in[1]), in[0])),
             ckpt_sigmoid(t, ckpt_exp(t, ckpt_neg(t, in[1])))),
    tanh(x *y + x) / (1 + exp(-exp(-y))))

/* The gradient ends in a reduction, the chain begins with one. */
static ckpt_tensor record_softmax(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    int last = ckpt_desc_of(t, in[0]).ndim - 1;
    ckpt_tensor e = ckpt_exp(t, in[0]);
    (void)c;
    return ckpt_div(t, e, ckpt_sum(t, e, 1u << last));
}

static void ref_softmax(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t n = in[0].shape[in[0].ndim - 1];
    (void)a;
    array_init(out, in[0].ndim, in[0].shape);
    for (int64_t i = 0; i < out->n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += exp(in[0].x[i / n * n + k]);
        out->x[i] = exp(in[0].x[i]) / sum;
    }
}

#define ROW(name, draw)                                                                            \
    {                                                                                              \
#name, draw, record_##name, ref_##name                                                     \
    }
static const struct op_row functions[] = {
    ROW(exp, draw_plain),
    ROW(expm1, draw_plain),
    ROW(log, draw_positive),
    ROW(log1p, draw_log1p),
    ROW(sqrt, draw_positive),
    ROW(rsqrt, draw_positive),
    ROW(neg, draw_plain),
    ROW(abs, draw_nonzero),
    ROW(sign, draw_nonzero),
    ROW(floor, draw_between),
    ROW(round, draw_between),
    ROW(sin, draw_plain),
    ROW(cos, draw_plain),
    ROW(tanh, draw_plain),
    ROW(sigmoid, draw_plain),
    ROW(erf, draw_plain),
    ROW(clamp, draw_between),
    ROW(gelu_erf, draw_gelu),
    ROW(leaky_relu, draw_nonzero),
    ROW(elu, draw_nonzero),
    ROW(softplus, draw_plain),
    ROW(mish, draw_plain),
    ROW(pow_2, draw_plain),
    ROW(pow_3, draw_plain),
    ROW(pow_half, draw_positive),
    ROW(pow_minus, draw_nonzero),
    ROW(pow_some, draw_positive),
    ROW(pow_0, draw_plain),
    ROW(to_integer, draw_between),
    ROW(not, draw_between),
    ROW(div, draw_div),
    ROW(pow, draw_pow),
    ROW(minimum, draw_extreme),
    ROW(maximum, draw_extreme),
    ROW(eq, draw_compare),
    ROW(ne, draw_compare),
    ROW(lt, draw_compare),
    ROW(le, draw_compare),
    ROW(gt, draw_compare),
    ROW(ge, draw_compare),
    ROW(logic, draw_compare),
    {0},
};

/* One kernel runs them all, so only chains need operands of several tiles and threads. */
static const struct op_row chains[] = {ROW(chain, draw_two), ROW(softmax, draw_softmax), {0}};

int main(int argc, char **argv)
{
    int functions_failed = harness_run(argc, argv, functions, 6);
    int chains_failed = harness_main(argc, argv, chains);
    return argc > 1 ? functions_failed && chains_failed : functions_failed || chains_failed;
}

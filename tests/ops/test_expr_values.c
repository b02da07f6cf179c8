/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise functions at values where a formula is easily wrong: NaN, infinite values, zeros of
 * either sign, ties, the ends of i32; random choices and their gradient; second derivatives.
 */
#include "expr/expr.h"
#include "harness.h"
#include "tape/tape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 12, MANY = 1 << 16 };

static int failures;

/* ---- values of functions of two constants -----------------------------------------------------*/

struct pair {
    const char *name;
    ckpt_tensor (*record)(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
    const float *a, *b;
    float expected[N];
};

static const float left[N] = {NAN, 1.f, -INFINITY, INFINITY, 0.f,   -0.f,
                              2.f, 2.f, -2.5f,     3e9f,     -3e9f, 0.5f};
static const float right[N] = {1.f, NAN, 1.f, 1.f, -0.f, 0.f, 2.f, 3.f, 2.5f, 1.5f, 2.f, -1.5f};

static ckpt_tensor as_float(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_cast(t, x, CKPT_F32);
}

static ckpt_tensor do_clamp(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    (void)b;
    return ckpt_clamp(t, a, -1.f, 2.f);
}

static ckpt_tensor do_integer(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    (void)b;
    return as_float(t, ckpt_cast(t, a, CKPT_I32));
}

/* An i32 that is not stored, because it joins its reader, also holds whole numbers. */
static ckpt_tensor do_full(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    (void)a;
    (void)b;
    return as_float(t, ckpt_full(t, -1.5f, CKPT_I32, 1, (int64_t[]){N}));
}

static ckpt_tensor do_sign(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    (void)b;
    return ckpt_sign(t, a);
}

static ckpt_tensor do_round(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    (void)b;
    return ckpt_round(t, a);
}

static ckpt_tensor do_where(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return ckpt_where(t, ckpt_le(t, a, b), a, b);
}

#define COMPARE(name)                                                                              \
    static ckpt_tensor do_##name(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)                       \
    {                                                                                              \
        return as_float(t, ckpt_##name(t, a, b));                                                  \
    }
COMPARE(eq)
COMPARE(ne)
COMPARE(lt)
COMPARE(le)
COMPARE(gt)
COMPARE(ge)

static ckpt_tensor do_minimum(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return ckpt_minimum(t, a, b);
}

static ckpt_tensor do_maximum(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return ckpt_maximum(t, a, b);
}

#define INF INFINITY
static const struct pair pairs[] = {
    {"minimum",
     do_minimum,
     left,
     right,
     {NAN, NAN, -INF, 1, 0, 0, 2, 2, -2.5f, 1.5f, -3e9f, -1.5f}},
    {"maximum", do_maximum, left, right, {NAN, NAN, 1, INF, 0, 0, 2, 3, 2.5f, 3e9f, 2, 0.5f}},
    {"clamp", do_clamp, left, right, {NAN, 1, -1, 2, 0, -0.f, 2, 2, -1, 2, -1, 0.5f}},
    {"eq", do_eq, left, right, {0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0}},
    {"ne", do_ne, left, right, {1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1}},
    {"lt", do_lt, left, right, {0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 1, 0}},
    {"le", do_le, left, right, {0, 0, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0}},
    {"gt", do_gt, left, right, {0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1}},
    {"ge", do_ge, left, right, {0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 0, 1}},
    {"sign", do_sign, left, right, {NAN, 1, -1, 1, 0, -0.f, 1, 1, -1, 1, -1, 1}},
    {"round", do_round, left, right, {NAN, 1, -INF, INF, 0, -0.f, 2, 2, -2, 3e9f, -3e9f, 0}},
    {"cast to i32",
     do_integer,
     left,
     right,
     {0, 1, -2147483648.f, 2147483648.f, 0, 0, 2, 2, -2, 2147483648.f, -2147483648.f, 0}},
    {"full as i32", do_full, left, right, {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}},
    {"where", do_where, left, right, {1, NAN, -INF, 1, 0, -0.f, 2, 2, -2.5f, 1.5f, -3e9f, -1.5f}},
};

/* A step with outputs that are not finite fails, so they are encoded as numbers. */
static const float told_nan = 5555.f, told_infinite = 1e30f;

static ckpt_tensor make_finite(ckpt_tape *t, ckpt_tensor y)
{
    ckpt_tensor told = ckpt_constant(t, "told", CKPT_F32, 0, NULL, &told_nan);
    y = ckpt_where(t, ckpt_ne(t, y, y), told, y);
    return ckpt_clamp(t, y, -told_infinite, told_infinite);
}

static int same(float y, float expected)
{
    if (isnan(expected))
        return y == told_nan;
    return isinf(expected) ? y == copysignf(told_infinite, expected) : y == expected;
}

static ckpt_tensor record_pair(ckpt_tape *t, int64_t batch, void *user)
{
    const struct pair *p = user;
    const int64_t n = N;
    (void)batch;
    ckpt_tensor a = ckpt_constant(t, "a", CKPT_F32, 1, &n, p->a);
    ckpt_tensor b = ckpt_constant(t, "b", CKPT_F32, 1, &n, p->b);
    ckpt_output(t, "y", make_finite(t, p->record(t, a, b)));
    return CKPT_NONE;
}

/* Runs a program without an optimizer once; 0, or 1 with a sentence printed. */
static int run(ckpt *c, ckpt_recorder record, void *user, const char *name, float *y, int64_t n)
{
    ckpt_program *p;
    int rc = ckpt_compile(c, record, user, NULL, 1, &p);
    if (!rc) {
        rc = ckpt_step(p, NULL);
        rc = rc ? rc : ckpt_fetch(p, "y", y, n * (int64_t)sizeof *y);
        ckpt_program_free(p);
    }
    if (rc)
        printf("FAIL %s: %s\n", name, ckpt_error(c));
    return rc != 0;
}

static void check_pairs(void)
{
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct ckpt_options o = {.size = sizeof o, .device = "cpu", .threads = 1};
        float y[N];
        ckpt *c;
        if (ckpt_open(&c, &o) || run(c, record_pair, (void *)&pairs[i], pairs[i].name, y, N)) {
            failures++;
            continue;
        }
        for (int k = 0; k < N; k++)
            if (!same(y[k], pairs[i].expected[k]))
                failures += printf("FAIL %s of %g, %g is %g, not %g\n", pairs[i].name, left[k],
                                   right[k], y[k], pairs[i].expected[k]) > 0;
        ckpt_close(c);
    }
}

/* ---- random choices ---------------------------------------------------------------------------*/

struct drop {
    ckpt_tensor w;
};

/* The gradient of sum(dropout(w)) is the mask; w is all ones, so the result equals it. */
static ckpt_tensor record_drop(ckpt_tape *t, int64_t batch, void *user)
{
    const struct drop *d = user;
    (void)batch;
    ckpt_tensor y = ckpt_dropout(t, d->w, 0.25f);
    ckpt_tensor z = ckpt_bernoulli(t, 0.125f, CKPT_I32, 2, (int64_t[]){64, MANY / 64});
    ckpt_output(t, "y", y);
    ckpt_output(t, "z", z);
    ckpt_output_gradient(t, "mask", d->w);
    return ckpt_reshape(t, ckpt_sum(t, y, 3), 0, NULL);
}

static void check_drop(void)
{
    const struct ckpt_options o = {.size = sizeof o, .device = "cpu", .threads = 2, .seed = 5};
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    static float ones[MANY], y[MANY], mask[MANY];
    static int32_t z[MANY];
    struct drop d;
    ckpt_program *p;
    ckpt *c;
    int kept = 0, drawn = 0, other = 0;
    for (int i = 0; i < MANY; i++)
        ones[i] = 1.f;
    adamw.lr = 0;
    int rc = ckpt_open(&c, &o);
    d.w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){64, MANY / 64}, CKPT_ZEROS, true);
    rc = rc || ckpt_param_set(c, d.w, CKPT_VALUE, ones, MANY) ||
         ckpt_compile(c, record_drop, &d, ckpt_adamw(c, &adamw), 1, &p) || ckpt_step(p, NULL) ||
         ckpt_fetch(p, "y", y, sizeof y) || ckpt_fetch(p, "mask", mask, sizeof mask) ||
         ckpt_fetch(p, "z", z, sizeof z);
    if (rc) {
        failures += printf("FAIL dropout: %s\n", ckpt_error(c)) > 0;
        return;
    }
    for (int i = 0; i < MANY; i++) {
        kept += y[i] != 0.f;
        drawn += z[i] == 1;
        other +=
            (y[i] != 0.f && y[i] != 1.f / 0.75f) || y[i] != mask[i] || (z[i] != 0 && z[i] != 1);
    }
    if (other || abs(kept - MANY * 3 / 4) > 600 || abs(drawn - MANY / 8) > 500)
        failures += printf("FAIL dropout: %d of %d kept, %d drawn, %d wrong\n", kept, MANY, drawn,
                           other) > 0;
    ckpt_program_free(p);
    ckpt_close(c);
}

static ckpt_tensor record_iota(ckpt_tape *t, int64_t batch, void *user)
{
    const int64_t shape[] = {2, 3, 4};
    (void)batch;
    (void)user;
    ckpt_tensor row = ckpt_iota(t, CKPT_F32, 3, shape, 1),
                col = ckpt_iota(t, CKPT_I32, 3, shape, 2);
    ckpt_tensor y = ckpt_add(t, ckpt_affine(t, row, 10.f, 0.f), as_float(t, col));
    ckpt_output(t, "y", ckpt_contiguous(t, ckpt_permute(t, y, (int[]){2, 0, 1})));
    return CKPT_NONE;
}

static void check_iota(void)
{
    const struct ckpt_options o = {.size = sizeof o, .device = "cpu", .threads = 1};
    float y[24];
    ckpt *c;
    if (ckpt_open(&c, &o) || run(c, record_iota, NULL, "iota", y, 24)) {
        failures++;
        return;
    }
    for (int i = 0; i < 24; i++)
        if (y[i] != (float)(10 * (i % 3) + i / 6))
            failures += printf("FAIL iota: element %d is %g\n", i, y[i]) > 0;
    ckpt_close(c);
}

/* ---- integers ---------------------------------------------------------------------------------*/

enum { ROWS = 3, COLUMNS = 4, KINDS = 12 };
static const int32_t rows_of[ROWS] = {-7, 0, 16777215};
static const int32_t columns_of[COLUMNS] = {3, -2, 0, 16777216};

static int32_t integer_of(int kind, int32_t a, int32_t b)
{
    const int32_t values[KINDS] = {a + b,
                                   a - b,
                                   a < b ? a : b,
                                   a > b ? a : b,
                                   a < b ? a : b, /* where */
                                   b == 0 ? -9 : a,
                                   2 * a - 3,
                                   -a,
                                   abs(a),
                                   (a > 0) - (a < 0),
                                   a < -5  ? -5
                                   : a > 4 ? 4
                                           : a,
                                   3 * a};
    return values[kind];
}

/* All kinds for a [ROWS, 1] and b [COLUMNS] in sequence; in a chain they become one op. */
static ckpt_tensor record_integers(ckpt_tape *t, int64_t batch, void *user)
{
    const int64_t shape[] = {1, ROWS, COLUMNS}, column[] = {ROWS, 1}, row = COLUMNS, none = 0;
    ckpt_tensor a = ckpt_constant(t, "a", CKPT_I32, 2, column, rows_of);
    ckpt_tensor b = ckpt_constant(t, "b", CKPT_I32, 1, &row, columns_of);
    ckpt_tensor zero = ckpt_full(t, 0, CKPT_I32, 0, &none), three = ckpt_full(t, 3, CKPT_I32, 0, 0);
    const ckpt_tensor y[KINDS] = {ckpt_add(t, a, b),
                                  ckpt_sub(t, a, b),
                                  ckpt_minimum(t, a, b),
                                  ckpt_maximum(t, a, b),
                                  ckpt_where(t, ckpt_lt(t, a, b), a, b),
                                  ckpt_masked_fill(t, a, ckpt_eq(t, b, zero), -9),
                                  ckpt_affine(t, a, 2, -3),
                                  ckpt_neg(t, a),
                                  ckpt_abs(t, a),
                                  ckpt_sign(t, a),
                                  ckpt_clamp(t, a, -5, 4),
                                  ckpt_mul(t, three, a)};
    ckpt_tensor part[KINDS];
    (void)batch;
    (void)user;
    for (int i = 0; i < KINDS; i++)
        part[i] = ckpt_expand(t, y[i], 3, shape);
    ckpt_output(t, "y", ckpt_concat(t, 0, KINDS, part));
    return CKPT_NONE;
}

static void check_integers(void)
{
    const struct ckpt_options o = {.size = sizeof o, .device = "cpu", .threads = 1};
    int32_t y[KINDS][ROWS][COLUMNS];
    ckpt *c;
    if (ckpt_open(&c, &o) ||
        run(c, record_integers, NULL, "integers", (float *)y, KINDS * ROWS * COLUMNS)) {
        failures++;
        return;
    }
    for (int i = 0; i < KINDS * ROWS * COLUMNS; i++) {
        int kind = i / (ROWS * COLUMNS), r = i / COLUMNS % ROWS, k = i % COLUMNS;
        int32_t expected = integer_of(kind, rows_of[r], columns_of[k]);
        bool exact = abs(expected) <= 1 << 24;
        if (exact && y[kind][r][k] != expected)
            failures += printf("FAIL integers %d of %d and %d: %d, not %d\n", kind, rows_of[r],
                               columns_of[k], y[kind][r][k], expected) > 0;
    }
    ckpt_close(c);
}

/* ---- second derivatives -----------------------------------------------------------------------*/

/* Values and derivatives of f(w): the rule of the recorded op is called again in the forward pass,
 * so that the ops it records are differentiated with the loss. */
struct twice {
    const char *name;
    ckpt_tensor (*record)(ckpt_tape *t, ckpt_tensor x);
    double (*second)(double x);
    ckpt_tensor w;
};

static ckpt_tensor gradient_of(ckpt_tape *t, ckpt_tensor y, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, y);
    const struct op *o = &t->ops.data[t->tensors.data[y.id].op];
    static float ones[N] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const bool need[] = {true}, narrow[] = {false};
    ckpt_tensor dx = CKPT_NONE, dy = ckpt_constant(t, "ones", CKPT_F32, 1, d.shape, ones);
    struct ckpt_grad g = {.tape = t,
                          .n_in = 1,
                          .n_out = 1,
                          .in = &x,
                          .out = &y,
                          .dout = &dy,
                          .need = need,
                          .din = &dx,
                          .want_bf16 = narrow};
    o = &t->ops.data[t->tensors.data[y.id].op];
    struct expr e;
    memcpy(&e, o->attr, o->attr_size);
    g.attr = &e;
    o->def->grad(&g);
    return dx;
}

static ckpt_tensor record_twice(ckpt_tape *t, int64_t batch, void *user)
{
    const struct twice *k = user;
    (void)batch;
    ckpt_tensor y = k->record(t, k->w);
    ckpt_tensor dx = gradient_of(t, y, k->w);
    ckpt_output_gradient(t, "second", k->w);
    return ckpt_reshape(t, ckpt_sum(t, dx, 1), 0, NULL);
}

static double second_exp(double x)
{
    return exp(x);
}

static double second_tanh(double x)
{
    double y = tanh(x);
    return -2 * y * (1 - y * y);
}

static double second_sigmoid(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 - s) * (1 - 2 * s);
}

static double second_softplus(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 - s);
}

static double second_gelu_erf(double x)
{
    return exp(-x * x / 2) / sqrt(2 * M_PI) * (2 - x * x);
}

static double second_sin(double x)
{
    return -sin(x);
}

static double second_cube(double x)
{
    return 6 * x;
}

static double second_log1p(double x)
{
    return -1 / ((1 + x) * (1 + x));
}

static ckpt_tensor do_cube(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_pow_scalar(t, x, 3.f);
}

#define FUNCTION(name)                                                                             \
    static ckpt_tensor do_##name(ckpt_tape *t, ckpt_tensor x)                                      \
    {                                                                                              \
        return ckpt_##name(t, x);                                                                  \
    }
FUNCTION(exp)
FUNCTION(tanh)
FUNCTION(sigmoid)
FUNCTION(softplus)
FUNCTION(gelu_erf)
FUNCTION(sin)
FUNCTION(log1p)

static void check_twice(struct twice *k)
{
    const struct ckpt_options o = {.size = sizeof o, .device = "cpu", .threads = 1};
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    const int64_t n = N;
    float x[N], second[N];
    ckpt_program *p;
    ckpt *c;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.125f + 0.0625f;
    adamw.lr = 0;
    int rc = ckpt_open(&c, &o);
    k->w = ckpt_param(c, "w", CKPT_F32, 1, &n, CKPT_ZEROS, true);
    rc = rc || ckpt_param_set(c, k->w, CKPT_VALUE, x, N) ||
         ckpt_compile(c, record_twice, k, ckpt_adamw(c, &adamw), 1, &p) || ckpt_step(p, NULL) ||
         ckpt_fetch(p, "second", second, sizeof second);
    if (rc) {
        failures += printf("FAIL second derivative of %s: %s\n", k->name, ckpt_error(c)) > 0;
        return;
    }
    for (int i = 0; i < N; i++)
        if (fabs(second[i] - k->second(x[i])) > 3e-6 * (1 + fabs(k->second(x[i]))))
            failures += printf("FAIL second derivative of %s at %g is %.9g, not %.9g\n", k->name,
                               x[i], second[i], k->second(x[i])) > 0;
    ckpt_program_free(p);
    ckpt_close(c);
}

/* ---- the two forms of GELU, as PyTorch 2.15 has them in float64 -------------------------------*/

struct gelu {
    const char *name;
    ckpt_tensor (*record)(ckpt_tape *t, ckpt_tensor x);
    const float *y, *slope;
    ckpt_tensor w;
};

FUNCTION(gelu_tanh)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static ckpt_tensor do_gelu(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_gelu(t, x);
}
#pragma GCC diagnostic pop

static const float gelu_x[N] = {-6, -3, -1.5f, -0.75f, -0.5f, 0, 0.25f, 0.5f, 1, 2, 3, 6};
static const float gelu_tanh_y[N] = {
    -8.43964898e-11f, -0.00363739208f, -0.100428423f, -0.170039445f, -0.15428599f, 0,
    0.149675351f,     0.34571401f,     0.841191991f,  1.95459769f,   2.99636261f,  6};
static const float gelu_tanh_slope[N] = {
    -7.70997601e-10f, -0.0115841666f, -0.127710793f, 0.00106174386f, 0.132630096f, 0.5f,
    0.695354095f,     0.867369904f,   1.08296408f,   1.08609926f,    1.01158417f,  1};
static const float gelu_erf_y[N] = {
    -5.91952587e-09f, -0.00404969409f, -0.100210802f, -0.169970514f, -0.154268769f, 0,
    0.149676581f,     0.345731231f,    0.841344746f,  1.95449974f,   2.99595031f,   6};
static const float gelu_erf_slope[N] = {
    -3.54687095e-08f, -0.0119456472f, -0.127469192f, 0.000774278261f, 0.132504875f, 0.5f,
    0.695373355f,     0.867495125f,   1.08331547f,   1.0852318f,      1.01194565f,  1};

static ckpt_tensor record_gelu(ckpt_tape *t, int64_t batch, void *user)
{
    const struct gelu *g = user;
    (void)batch;
    ckpt_tensor y = g->record(t, g->w);
    ckpt_output(t, "y", y);
    ckpt_output_gradient(t, "slope", g->w);
    return ckpt_reshape(t, ckpt_sum(t, y, 1), 0, NULL);
}

static void check_gelu(struct gelu *g)
{
    const struct ckpt_options o = {.size = sizeof o, .device = "cpu", .threads = 1};
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    const int64_t n = N;
    float y[N], slope[N];
    ckpt_program *p;
    ckpt *c;
    adamw.lr = 0;
    int rc = ckpt_open(&c, &o);
    g->w = ckpt_param(c, "w", CKPT_F32, 1, &n, CKPT_ZEROS, true);
    rc = rc || ckpt_param_set(c, g->w, CKPT_VALUE, gelu_x, N) ||
         ckpt_compile(c, record_gelu, g, ckpt_adamw(c, &adamw), 1, &p) || ckpt_step(p, NULL) ||
         ckpt_fetch(p, "y", y, sizeof y) || ckpt_fetch(p, "slope", slope, sizeof slope);
    if (rc) {
        failures += printf("FAIL %s: %s\n", g->name, ckpt_error(c)) > 0;
        return;
    }
    for (int i = 0; i < N; i++)
        if (fabs(y[i] - g->y[i]) > 1e-6 || fabs(slope[i] - g->slope[i]) > 1e-6)
            failures += printf("FAIL %s at %g is %.9g, not %.9g, its slope %.9g, not %.9g\n",
                               g->name, gelu_x[i], y[i], g->y[i], slope[i], g->slope[i]) > 0;
    ckpt_program_free(p);
    ckpt_close(c);
}

static void check_gelus(void)
{
    struct gelu gelus[] = {{"gelu_tanh", do_gelu_tanh, gelu_tanh_y, gelu_tanh_slope, {0}},
                           {"gelu", do_gelu, gelu_tanh_y, gelu_tanh_slope, {0}},
                           {"gelu_erf", do_gelu_erf, gelu_erf_y, gelu_erf_slope, {0}}};
    for (size_t i = 0; i < sizeof gelus / sizeof *gelus; i++)
        check_gelu(&gelus[i]);
}

int main(void)
{
    static struct twice twice[] = {{"exp", do_exp, second_exp, {0}},
                                   {"tanh", do_tanh, second_tanh, {0}},
                                   {"sigmoid", do_sigmoid, second_sigmoid, {0}},
                                   {"softplus", do_softplus, second_softplus, {0}},
                                   {"gelu_erf", do_gelu_erf, second_gelu_erf, {0}},
                                   {"sin", do_sin, second_sin, {0}},
                                   {"cube", do_cube, second_cube, {0}},
                                   {"log1p", do_log1p, second_log1p, {0}}};
    check_pairs();
    check_drop();
    check_iota();
    check_integers();
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++)
        check_twice(&twice[i]);
    check_gelus();
    return failures != 0;
}

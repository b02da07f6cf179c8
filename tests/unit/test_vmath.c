/* SPDX-License-Identifier: Apache-2.0 */
/* The vector maths of the CPU kernels against the C library in double precision. */
#include <stdio.h>
#include <stdlib.h>
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vmath.h"

#define N 4096

typedef void (*array_function)(float *restrict y, const float *restrict x, int64_t n);

/* Through the loop form of kernels, so that the vector code is tested. */
#define ARRAY_FUNCTION(name)                                                                       \
    CKPT_CLONES static void array_##name(float *restrict y, const float *restrict x, int64_t n)    \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = name(x[i]);                     \
    }
ARRAY_FUNCTION(vexp)
ARRAY_FUNCTION(vlog)
ARRAY_FUNCTION(vtanh)
ARRAY_FUNCTION(vsigmoid)
ARRAY_FUNCTION(vexpm1)
ARRAY_FUNCTION(vlog1p)
ARRAY_FUNCTION(vsoftplus)
ARRAY_FUNCTION(verf)
ARRAY_FUNCTION(vsin)
ARRAY_FUNCTION(vcos)

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static const struct {
    const char *name;
    array_function ours;
    double (*reference)(double);
    float low, high;
    double ulp;
} functions[] = {
    {"vexp", array_vexp, exp, -110.f, 90.f, 2},
    {"vexp", array_vexp, exp, -1.f, 1.f, 2},
    {"vlog", array_vlog, log, 0.f, 3.f, 2},
    {"vlog", array_vlog, log, 0.9f, 1.1f, 2},
    {"vlog", array_vlog, log, 0.f, 0x1p-120f, 2},
    {"vlog", array_vlog, log, 1.f, 3e38f, 2},
    {"vtanh", array_vtanh, tanh, -12.f, 12.f, 2},
    {"vtanh", array_vtanh, tanh, -0.5f, 0.5f, 2},
    {"vtanh", array_vtanh, tanh, -1e-6f, 1e-6f, 2},
    {"vsigmoid", array_vsigmoid, sigmoid, -110.f, 40.f, 2},
    {"vsigmoid", array_vsigmoid, sigmoid, -1.f, 1.f, 2},
    {"vexpm1", array_vexpm1, expm1, -20.f, 90.f, 3},
    {"vexpm1", array_vexpm1, expm1, -1.f, 1.f, 3},
    {"vexpm1", array_vexpm1, expm1, -1e-5f, 1e-5f, 3},
    {"vlog1p", array_vlog1p, log1p, -1.f, 4.f, 4},
    {"vlog1p", array_vlog1p, log1p, -1e-4f, 1e-4f, 4},
    {"vlog1p", array_vlog1p, log1p, 0.f, 3e38f, 4},
    {"vsoftplus", array_vsoftplus, softplus, -110.f, 110.f, 4},
    {"vsoftplus", array_vsoftplus, softplus, -2.f, 2.f, 4},
    {"verf", array_verf, erf, -5.f, 5.f, 3},
    {"verf", array_verf, erf, -1e-3f, 1e-3f, 3},
};

/* Distance of y from exact in units of the last place of exact. */
static double ulp_error(float y, double exact)
{
    float rounded = (float)exact;
    if (isnan(exact) || isinf(rounded) || exact == 0)
        return isnan(exact) ? (isnan(y) ? 0 : INFINITY) : (y == rounded ? 0 : INFINITY);
    int exponent = ilogb(exact);
    double unit = ldexp(1, (exponent < -126 ? -126 : exponent) - 23);
    return fabs(y - exact) / unit;
}

static double limit_of(int f)
{
    return functions[f].ulp;
}

static int check_range(int f)
{
    static float x[N], y[N], one;
    double worst = 0;
    float at = 0;
    for (int round = 0; round < 64; round++) {
        for (int i = 0; i < N; i++)
            x[i] = functions[f].low +
                   (functions[f].high - functions[f].low) * ((float)(round + 64 * i) / (64.f * N));
        functions[f].ours(y, x, N);
        for (int i = 0; i < N; i++) {
            double e = ulp_error(y[i], functions[f].reference(x[i]));
            if (!(e <= worst)) {
                worst = e;
                at = x[i];
            }
        }
        functions[f].ours(&one, &x[round], 1); /* the scalar tail must agree with the lanes */
        if (memcmp(&one, &y[round], sizeof one))
            return printf("%s(%.9g): the lane gives %a, alone %a\n", functions[f].name, x[round],
                          y[round], one);
    }
    printf("%-8s [%g, %g]: worst %.3f ulp at %.9g\n", functions[f].name, functions[f].low,
           functions[f].high, worst, at);
    return !(worst <= limit_of(f));
}

/* Values where a formula without branches is easily wrong. */
static int check_special(int f)
{
    static const float x[] = {0.f,      -0.f,    INFINITY, -INFINITY, NAN,    -NAN,
                              1e-45f,   -1e-45f, 1e-38f,   3e38f,     -3e38f, 88.722f,
                              88.7229f, 88.73f,  -87.336f, -103.97f,  -104.f, 1.f,
                              -1.f,     0.35f,   1.414214f};
    enum { COUNT = sizeof x / sizeof *x };
    float y[COUNT];
    int bad = 0;
    functions[f].ours(y, x, COUNT);
    for (int i = 0; i < COUNT; i++) {
        double exact = functions[f].reference(x[i]);
        if (ulp_error(y[i], exact) <= limit_of(f))
            continue;
        printf("%s(%.9g) is %.9g, should be %.9g\n", functions[f].name, x[i], y[i], exact);
        bad = 1;
    }
    return bad;
}

/* Absolute error: near a zero of the function only the remainder of the division is left. */
static int check_turns(void)
{
    static float x[N], s[N], c[N];
    static const float ranges[] = {1.f, 100.f, 1e6f, 1e9f};
    int bad = 0;
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        double worst = 0;
        for (int i = 0; i < N; i++)
            x[i] = ranges[k] * (2.f * (float)i / N - 1.f);
        array_vsin(s, x, N);
        array_vcos(c, x, N);
        for (int i = 0; i < N; i++)
            worst = fmax(worst, fmax(fabs(s[i] - sin(x[i])), fabs(c[i] - cos(x[i]))));
        printf("vsin, vcos to %g: worst %.3g\n", ranges[k], worst);
        bad |= !(worst <= (ranges[k] > 1e6f ? 1e-6 : 1.2e-7));
    }
    const float edge[] = {INFINITY, -INFINITY, NAN, -0.f};
    array_vsin(s, edge, 4);
    array_vcos(c, edge, 4);
    if (!isnan(s[0]) || !isnan(s[1]) || !isnan(s[2]) || !signbit(s[3]) || !isnan(c[0]) ||
        !isnan(c[2]) || c[3] != 1.f)
        bad = printf("vsin or vcos of infinity, NaN or -0 is wrong\n");
    return bad;
}

CKPT_CLONES static void array_vpow(float *restrict z, const float *restrict x,
                                   const float *restrict y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        z[i] = vpow(x[i], y[i]);
}

/* Every pair of these, as pow() of the C library has it. */
static int check_pow(void)
{
    static const float v[] = {0.f,    -0.f,  1.f,   -1.f,   2.f,       -2.f,      3.f,
                              -3.f,   0.5f,  -0.5f, 1.5f,   INFINITY,  -INFINITY, NAN,
                              1e-40f, 3e38f, 7.f,   -7.25f, 0.999999f, 1.000001f, 123.456f};
    enum { COUNT = sizeof v / sizeof *v };
    float x[COUNT * COUNT], y[COUNT * COUNT], z[COUNT * COUNT];
    int bad = 0;
    for (int i = 0; i < COUNT * COUNT; i++) {
        x[i] = v[i / COUNT];
        y[i] = v[i % COUNT];
    }
    array_vpow(z, x, y, COUNT * COUNT);
    for (int i = 0; i < COUNT * COUNT; i++) {
        double exact = pow(x[i], y[i]);
        if (!(ulp_error(z[i], exact) <= 2.0))
            bad = printf("vpow(%.9g, %.9g) is %.9g, should be %.9g\n", x[i], y[i], z[i], exact);
    }
    return bad;
}

static int check_bf16(void)
{
    static const struct {
        float x;
        uint16_t h;
    } cases[] = {{1.f, 0x3f80},           {0x1.01p0f, 0x3f80}, {0x1.03p0f, 0x3f82},
                 {0x1.010002p0f, 0x3f81}, {-0.f, 0x8000},      {INFINITY, 0x7f80},
                 {3.4e38f, 0x7f80},       {-INFINITY, 0xff80}, {1e-45f, 0x0000}};
    int bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t h;
        cpu_store(&h, &cases[i].x, CKPT_BF16, 1);
        if (h != cases[i].h)
            bad = printf("bf16 of %a is %#x, should be %#x\n", cases[i].x, h, cases[i].h);
    }
    float nan = vmath_float(0x7f800001), back; /* its payload lies below the bits kept */
    uint16_t h;
    cpu_store(&h, &nan, CKPT_BF16, 1);
    cpu_load(&back, &h, CKPT_BF16, 1);
    if (!isnan(back))
        bad = printf("bf16 of a NaN is %g\n", back);
    return bad;
}

int main(void)
{
    int bad = check_bf16() | check_turns() | check_pow();
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        bad |= check_range((int)f) | check_special((int)f);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The vector maths of the CPU kernels against the C library in double precision. */
#include <stdio.h>
#include <stdlib.h>
#include "cpu.h"
#include "vmath.h"

#define N 4096

typedef void (*array_function)(float *restrict y, const float *restrict x, int64_t n);

/* Through the loop form kernels use, so the vector code is what is tested. */
#define ARRAY_FUNCTION(name)                                                                       \
    CKPT_CLONES static void array_##name(float *restrict y, const float *restrict x, int64_t n)    \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = name(x[i]);                     \
    }
ARRAY_FUNCTION(vexp)
ARRAY_FUNCTION(vlog)
ARRAY_FUNCTION(vtanh)
ARRAY_FUNCTION(vsigmoid)

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static const struct {
    const char *name;
    array_function ours;
    double (*reference)(double);
    float low, high;
} functions[] = {
    {"vexp", array_vexp, exp, -110.f, 90.f},
    {"vexp", array_vexp, exp, -1.f, 1.f},
    {"vlog", array_vlog, log, 0.f, 3.f},
    {"vlog", array_vlog, log, 0.9f, 1.1f},
    {"vlog", array_vlog, log, 0.f, 0x1p-120f},
    {"vlog", array_vlog, log, 1.f, 3e38f},
    {"vtanh", array_vtanh, tanh, -12.f, 12.f},
    {"vtanh", array_vtanh, tanh, -0.5f, 0.5f},
    {"vtanh", array_vtanh, tanh, -1e-6f, 1e-6f},
    {"vsigmoid", array_vsigmoid, sigmoid, -110.f, 40.f},
    {"vsigmoid", array_vsigmoid, sigmoid, -1.f, 1.f},
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
    return !(worst <= 2.0);
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
        if (ulp_error(y[i], exact) <= 2.0)
            continue;
        printf("%s(%.9g) is %.9g, should be %.9g\n", functions[f].name, x[i], y[i], exact);
        bad = 1;
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
    int bad = check_bf16();
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        bad |= check_range((int)f) | check_special((int)f);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp, log, tanh, sigmoid and others without branches or calls, so that loops over them vectorise
 * under `#pragma omp simd` and give the same bits in every lane and in the scalar tail.  Errors are
 * below 2 units in the last place, 2.5 for expm1, log1p, softplus and erf.  Infinities, NaN,
 * overflow and underflow behave as in the C library.  Must not be compiled with -ffast-math: the
 * code relies on rounding by adding and subtracting a constant, and on comparisons with NaN.
 */
#ifndef CKPT_VMATH_H
#define CKPT_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include "core/bits.h"

/* 1.5 * 2^23: adding it to a small float leaves the nearest integer in the low mantissa bits. */
#define VMATH_ROUND      12582912.f
#define VMATH_ROUND_BITS 0x4b400000

/* ln 2 in two parts; the first has 10 bits, so its product with an exponent is exact. */
#define VMATH_LN2_HIGH 0.693359375f
#define VMATH_LN2_LOW  -2.1219444005469057e-4f
#define VMATH_LOG2E    1.4426950408889634f

static inline int32_t vmath_bits(float x)
{
    return (int32_t)float_bits(x);
}

static inline float vmath_float(int32_t i)
{
    return float_of_bits((uint32_t)i);
}

/*
 * condition ? yes : no, by masks: compilers turn ?: into branches because of floating-point traps,
 * and then do not vectorise.
 */
static inline float vmath_select(int condition, float yes, float no)
{
    int32_t mask = -(int32_t)condition;
    return vmath_float((vmath_bits(yes) & mask) | (vmath_bits(no) & ~mask));
}

/* Splits x = n ln 2 + r with |r| <= ln(2)/2 and returns exp(r) - 1. */
static inline float vmath_expm1_reduced(float x, int32_t *n)
{
    float shifted = x * VMATH_LOG2E + VMATH_ROUND;
    float whole = shifted - VMATH_ROUND;
    float high = x - whole * VMATH_LN2_HIGH, low = whole * VMATH_LN2_LOW, r = high - low;
    /* (exp(r) - 1 - r) / r^2, interpolated at Chebyshev nodes; relative error of exp 1e-8 */
    float p = 0.0013926203361634f;
    p = p * r + 0.0083631948824190f;
    p = p * r + 0.0416665544984137f;
    p = p * r + 0.1666657689460660f;
    p = p * r + 0.5f;
    *n = vmath_bits(shifted) - VMATH_ROUND_BITS;
    return high + (p * r * r - low);
}

static inline float vmath_exp_reduced(float x, int32_t *n)
{
    return 1.f + vmath_expm1_reduced(x, n);
}

/* 2^n where the result is a normal number. */
static inline float vmath_pow2(int32_t n)
{
    return vmath_float((int32_t)((uint32_t)(n + 127) << 23));
}

static inline float vexp(float x)
{
    int32_t n;
    x = vmath_select(x > 89.f, 89.f, x); /* above it infinity; NaN passes through */
    x = vmath_select(x < -105.f, -105.f, x);
    float e = vmath_exp_reduced(x, &n);
    /* Two factors: 2^n itself may be out of range where the result is not. */
    return e * vmath_pow2(n >> 1) * vmath_pow2(n - (n >> 1));
}

static inline float vsigmoid(float x)
{
    float z = vexp(-fabsf(x));             /* at most 1, so no overflow */
    float below = z - z * (z / (1.f + z)); /* sigmoid(-|x|) = z / (1 + z), with fewer roundings */
    return vmath_select(x > 0.f, 1.f - below, below);
}

static inline float vtanh(float x)
{
    int32_t n;
    float a = fabsf(x), a2 = a * a;
    /* (tanh(a) / a - 1) / a^2 for a < 0.625, interpolated at Chebyshev nodes */
    float p = -0.0060960230532307f;
    p = p * a2 + 0.0209967040026263f;
    p = p * a2 - 0.0538508094619993f;
    p = p * a2 + 0.1333276907855168f;
    p = p * a2 - 0.3333332893760432f;
    float low = a + a * a2 * p;
    float b = vmath_select(a > 10.f, 10.f, a); /* tanh(10) rounds to 1 */
    float e = vmath_exp_reduced(2.f * b, &n) * vmath_pow2(n);
    float high = 1.f - 2.f / (e + 1.f);
    return copysignf(vmath_select(a < 0.625f, low, high), x);
}

static inline float vlog(float x)
{
    /* A subnormal is scaled up to a normal number first. */
    int tiny = x < 0x1p-126f;
    float lifted = x * vmath_select(tiny, 0x1p23f, 1.f);
    /* lifted = 2^n m with sqrt(1/2) <= m < sqrt(2) */
    int32_t above = (int32_t)((uint32_t)vmath_bits(lifted) - 0x3f3504f3u);
    float k = (float)((above >> 23) - 23 * tiny);
    float f = vmath_float((above & 0x7fffff) + 0x3f3504f3) - 1.f;
    /* log(1+f) = 2 atanh(s) = 2s + s tail, written so that f enters exactly */
    float s = f / (2.f + f), s2 = s * s, half = 0.5f * f * f;
    float tail = s2 * (2.f / 3 + s2 * (2.f / 5 + s2 * (2.f / 7 + s2 * (2.f / 9))));
    float y = f - (half - (s * (half + tail) + k * VMATH_LN2_LOW)) + k * VMATH_LN2_HIGH;
    y = vmath_select(x == INFINITY, x, y);
    y = vmath_select(x == 0.f, -INFINITY, y);
    return vmath_select(x >= 0.f, y, NAN); /* also NaN for NaN */
}

/* exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1); from 2^24 on the 1 is below the precision. */
static inline float vexpm1(float x)
{
    int32_t n;
    float large = vexp(x);
    float a = vmath_select(x > 17.f, 17.f, x);
    a = vmath_select(a < -18.f, -18.f, a);
    float e = vmath_expm1_reduced(a, &n);
    float scale = vmath_pow2(n), y = scale * e + (scale - 1.f);
    y = vmath_select(fabsf(x) < 1e-7f, x, y); /* also keeps the sign of zero */
    return vmath_select(x > 17.f, large, y);
}

/* log(u) x / (u - 1) with u = 1 + x rounded: the rounding error of u cancels (Kahan). */
static inline float vlog1p(float x)
{
    float u = 1.f + x, d = u - 1.f;
    float y = vlog(u) * (x / d);
    y = vmath_select(d == 0.f, x, y);
    return vmath_select(u == INFINITY, u, y);
}

/* log(1 + exp(x)) */
static inline float vsoftplus(float x)
{
    float tail = vlog1p(vexp(-fabsf(x)));
    return vmath_select(x > 0.f, x, 0.f) + tail;
}

static inline float verf(float x)
{
    float a = fabsf(x), t = a * a;
    /* erf(x) / x for |x| < 1 in x^2; relative error 1e-9 */
    float p = 7.875875063e-5f;
    p = p * t - 8.016864287e-4f;
    p = p * t + 5.189087423e-3f;
    p = p * t - 0.02685421201f;
    p = p * t + 0.1128359472f;
    p = p * t - 0.3761262667f;
    p = p * t + 1.128379166f;
    /* -log(erfc(a)) for 1 <= a <= 4 in a - 5/2; above 4 erf rounds to 1 */
    float s = vmath_select(a > 4.f, 4.f, a) - 2.5f;
    float q = -1.637151415e-6f;
    q = q * s + 1.33150144e-5f;
    q = q * s - 7.729137615e-5f;
    q = q * s + 4.201225235e-4f;
    q = q * s - 2.165303549e-3f;
    q = q * s + 0.01085854164f;
    q = q * s + 0.9438937036f;
    q = q * s + 5.352680674f;
    q = q * s + 7.806815273f;
    float far = copysignf(1.f - vexp(-q), x);
    return vmath_select(a < 1.f, x * p, vmath_select(x == x, far, x));
}

/* Range reduction of sine and cosine by quarter turns, in double: the remainder is accurate to
 * 2^-45 up to |x| = 2^20, and to 2^-20 up to 2^30.  *quarter is modulo 4. */
static inline float vmath_quarter(float x, int32_t *quarter)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */
    double a = (double)x, shifted = a * 0.63661977236758138 + round, whole = shifted - round;
    double r = a - whole * 1.57079632673412561417; /* 33 bits of pi/2 */
    r -= whole * 6.07710050650619224932e-11;
    int64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    *quarter = (int32_t)bits & 3;
    return (float)r;
}

static inline float vmath_turn(float r, int32_t quarter)
{
    float t = r * r;
    float s = 2.724992580e-6f;
    s = s * t - 1.984008674e-4f;
    s = s * t + 8.333331875e-3f;
    s = s * t - 0.1666666666f;
    float c = 2.454794168e-5f;
    c = c * t - 1.388830303e-3f;
    c = c * t + 4.166666466e-2f;
    float sine = r + r * t * s, cosine = 1.f - (0.5f * t - t * t * c);
    float y = vmath_select(quarter & 1, cosine, sine);
    return vmath_select((quarter & 2) != 0, -y, y);
}

/* For |x| up to 2^30. */
static inline float vsin(float x)
{
    int32_t quarter;
    float r = vmath_quarter(x, &quarter);
    return vmath_select(x == 0.f, x, vmath_turn(r, quarter));
}

static inline float vcos(float x)
{
    int32_t quarter;
    float r = vmath_quarter(x, &quarter);
    return vmath_turn(r, (quarter + 1) & 3);
}

static inline double vmath_choose(int condition, double yes, double no)
{
    int64_t a, b, mask = -(int64_t)condition;
    memcpy(&a, &yes, sizeof a);
    memcpy(&b, &no, sizeof b);
    a = (a & mask) | (b & ~mask);
    memcpy(&yes, &a, sizeof yes);
    return yes;
}

/* log2 of a positive finite number; relative error 1e-12. */
static inline double vmath_log2(double x)
{
    uint64_t bits, low = 0x3fe6a09e667f3bcdu;
    double m;
    memcpy(&bits, &x, sizeof bits);
    uint64_t above = bits - low;
    double k = (double)(int32_t)((int64_t)above >> 52);
    bits = (above & 0xfffffffffffffu) + low;
    memcpy(&m, &bits, sizeof m);
    /* x = 2^k m with sqrt(1/2) <= m < sqrt(2); log m = 2 atanh(s) */
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, p = 1.0 / 13;
    p = p * s2 + 1.0 / 11;
    p = p * s2 + 1.0 / 9;
    p = p * s2 + 1.0 / 7;
    p = p * s2 + 1.0 / 5;
    p = p * s2 + 1.0 / 3;
    p = p * s2 + 1.0;
    return k + 2.8853900817779268 * s * p; /* 2 / ln 2 */
}

/* 2^x for -160 <= x <= 160; relative error 1e-9. */
static inline double vmath_exp2(double x)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */
    double shifted = x + round, f = (x - (shifted - round)) * 0.69314718055994531;
    double p = 1.0 / 40320;
    int64_t n;
    p = p * f + 1.0 / 5040;
    p = p * f + 1.0 / 720;
    p = p * f + 1.0 / 120;
    p = p * f + 1.0 / 24;
    p = p * f + 1.0 / 6;
    p = p * f + 0.5;
    p = p * f + 1.0;
    p = p * f + 1.0;
    memcpy(&n, &shifted, sizeof n);
    n = (int64_t)((uint64_t)(n + 1023) << 52);
    double scale;
    memcpy(&scale, &n, sizeof scale);
    return p * scale;
}

/* Computed in double, so that the error of log(x) times y is below fp32 precision. */
static inline float vpow(float x, float y)
{
    float a = fabsf(x), whole = floorf(y), half = 0.5f * y;
    int integer = whole == y, odd = integer & (floorf(half) != half);
    double l = vmath_log2((double)a);
    l = vmath_choose(a == 0.f, (double)-INFINITY, l);
    l = vmath_choose(a == INFINITY, (double)INFINITY, l);
    double t = l * (double)y;
    t = vmath_choose(t > 160, 160, t);
    t = vmath_choose(t < -160, -160, t);
    float r = (float)vmath_exp2(t);
    r = vmath_select(odd & (vmath_bits(x) < 0), -r, r);
    r = vmath_select((x < 0.f) & !integer & (a != INFINITY), NAN, r);
    r = vmath_select((x != x) | (y != y), NAN, r);
    return vmath_select((y == 0.f) | (x == 1.f) | ((a == 1.f) & (fabsf(y) == INFINITY)), 1.f, r);
}

#endif

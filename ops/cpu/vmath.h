/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp, log, tanh and sigmoid without branches or calls, so that a loop over them vectorises under
 * `#pragma omp simd` and gives the same bits in every lane and in the scalar tail.
 *
 * Errors stay below 2 units in the last place; infinities, NaN, overflow and underflow come out as
 * the C library's do.  Must not be compiled with -ffast-math: rounding by adding and subtracting a
 * constant, and NaN passing through comparisons, are relied on.
 */
#ifndef CKPT_VMATH_H
#define CKPT_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* 1.5 * 2^23: added to a small float it leaves the nearest integer in the low mantissa bits. */
#define VMATH_ROUND      12582912.f
#define VMATH_ROUND_BITS 0x4b400000

/* ln 2 in two parts; the first has 10 bits, so its product with an exponent is exact. */
#define VMATH_LN2_HIGH 0.693359375f
#define VMATH_LN2_LOW  -2.1219444005469057e-4f
#define VMATH_LOG2E    1.4426950408889634f

static inline int32_t vmath_bits(float x)
{
    int32_t i;
    memcpy(&i, &x, sizeof i);
    return i;
}

static inline float vmath_float(int32_t i)
{
    float x;
    memcpy(&x, &i, sizeof x);
    return x;
}

/*
 * condition ? yes : no, by masks: written with ?: the compiler makes branches of it, for fear of
 * floating-point traps, and then does not vectorise.
 */
static inline float vmath_select(int condition, float yes, float no)
{
    int32_t mask = -(int32_t)condition;
    return vmath_float((vmath_bits(yes) & mask) | (vmath_bits(no) & ~mask));
}

/* Splits x = n ln 2 + r with |r| <= ln(2)/2 and returns exp(r). */
static inline float vmath_exp_reduced(float x, int32_t *n)
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
    return 1.f + (high + (p * r * r - low));
}

/* 2^n for n of a normal number. */
static inline float vmath_pow2(int32_t n)
{
    return vmath_float((int32_t)((uint32_t)(n + 127) << 23));
}

static inline float vexp(float x)
{
    int32_t n;
    x = vmath_select(x > 89.f, 89.f, x); /* beyond it infinity; NaN stays */
    x = vmath_select(x < -105.f, -105.f, x);
    float e = vmath_exp_reduced(x, &n);
    /* Two factors: 2^n itself may be out of range where the result is not. */
    return e * vmath_pow2(n >> 1) * vmath_pow2(n - (n >> 1));
}

static inline float vsigmoid(float x)
{
    float z = vexp(-fabsf(x));             /* at most 1: no overflow */
    float below = z - z * (z / (1.f + z)); /* of -|x|: z / (1 + z), but rounded less often */
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
    return vmath_select(x >= 0.f, y, NAN); /* also for NaN */
}

#endif

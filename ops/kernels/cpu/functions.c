/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of expressions: GELU, SiLU and their derivatives, and those without a kernel of their
 * own. */
#include "functions.h"
#include "vmath.h"

/* Rounds toward zero to an i32 value, as a float; clamped to its range; NaN becomes 0. */
static inline float integer_of(float x)
{
    float a = vmath_select(x < -2147483648.f, -2147483648.f, x);
    a = vmath_select(a > 2147483648.f, 2147483648.f, a);
    return vmath_select(x == x, truncf(a), 0.f);
}

static inline float sign_of(float x)
{
    return vmath_select((x > 0.f) | (x < 0.f), copysignf(1.f, x), x); /* zeros and NaN unchanged */
}

/* bf16_load(bf16_round(x)) */
static inline float rounded(float x)
{
    uint32_t u = (uint32_t)vmath_bits(x), kept = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
    uint32_t nan = (u & 0xffff0000u) | 0x400000;
    return vmath_float((int32_t)((u & 0x7fffffff) > 0x7f800000 ? nan : kept));
}

CPU_MAP(map_clamp)
{
    const float *u = x[0], p = ((const float *)ctx)[0], q = ((const float *)ctx)[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = vmath_select(u[i] < p, p, vmath_select(u[i] > q, q, u[i]));
}
CPU_MAP_CALL(map_clamp)

CPU_MAP(map_leaky)
{
    const float *u = x[0], p = ((const float *)ctx)[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = vmath_select(u[i] > 0.f, u[i], p * u[i]);
}
CPU_MAP_CALL(map_leaky)

CPU_UNARY(map_bf16, rounded(u))
CPU_UNARY(map_integer, integer_of(u))
CPU_UNARY(map_exp, vexp(u))
CPU_UNARY(map_expm1, vexpm1(u))
CPU_UNARY(map_log, vlog(u))
CPU_UNARY(map_log1p, vlog1p(u))
CPU_UNARY(map_sqrt, sqrtf(u))
CPU_UNARY(map_rsqrt, 1.f / sqrtf(u))
CPU_UNARY(map_abs, fabsf(u))
CPU_UNARY(map_sign, sign_of(u))
CPU_UNARY(map_tanh, vtanh(u))
CPU_UNARY(map_sigmoid, vsigmoid(u))
CPU_UNARY(map_softplus, vsoftplus(u))
CPU_UNARY(map_erf, verf(u))
CPU_UNARY(map_sin, vsin(u))
CPU_UNARY(map_cos, vcos(u))
CPU_UNARY(map_floor, floorf(u))
CPU_UNARY(map_round, rintf(u))
CPU_UNARY(map_not, vmath_select(u == 0.f, 1.f, 0.f))
CPU_BINARY(map_div, u / v)
CPU_BINARY(map_pow, vpow(u, v))
/* NaN on either side gives NaN: every comparison with NaN is false. */
CPU_BINARY(map_minimum, vmath_select((u < v) | (u != u), u, v))
CPU_BINARY(map_maximum, vmath_select((u > v) | (u != u), u, v))
CPU_BINARY(map_eq, vmath_select(u == v, 1.f, 0.f))
CPU_BINARY(map_ne, vmath_select(u != v, 1.f, 0.f))
CPU_BINARY(map_lt, vmath_select(u < v, 1.f, 0.f))
CPU_BINARY(map_le, vmath_select(u <= v, 1.f, 0.f))
CPU_BINARY(map_and, vmath_select((u != 0.f) & (v != 0.f), 1.f, 0.f))
CPU_BINARY(map_or, vmath_select((u != 0.f) | (v != 0.f), 1.f, 0.f))

/* ---- activations ----------------------------------------------------------------------------- */

/* tanh(u) = 2 sigmoid(2u) - 1, so x/2 (1 + tanh(u)) = x sigmoid(2u), which is accurate where the
 * tanh is close to -1.  2u = x (C1 + C3 x^2). */
#define GELU_C1 1.5957691216057308f  /* 2 sqrt(2/pi) */
#define GELU_C3 0.07135481627159595f /* C1 * 0.044715 */

CPU_UNARY(map_gelu, u *vsigmoid(u *(GELU_C1 + GELU_C3 * (u * u))))

/*
 * With s = sigmoid(v): d(x s)/dx = s + x s (1 - s) v'.  For |x| > 100, s is 0 or 1, and x^2 is
 * clamped to stay finite.
 */
CPU_MAP(map_gelu_dx)
{
    const float *dy = x[0], *u = x[1];
    (void)ctx;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float square = u[i] * u[i], u2 = vmath_select(square > 1e4f, 1e4f, square);
        float v = u[i] * (GELU_C1 + GELU_C3 * u2);
        float s = vsigmoid(v), rest = vsigmoid(-v);
        float slope = GELU_C1 + 3.f * GELU_C3 * u2;
        y[i] = dy[i] * (s + u[i] * (s * rest) * slope);
    }
}
CPU_MAP_CALL(map_gelu_dx)

CPU_UNARY(map_silu, u *vsigmoid(u))

CPU_MAP(map_silu_dx)
{
    const float *dy = x[0], *u = x[1];
    (void)ctx;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float s = vsigmoid(u[i]), rest = vsigmoid(-u[i]);
        y[i] = dy[i] * s * (1.f + u[i] * rest);
    }
}
CPU_MAP_CALL(map_silu_dx)

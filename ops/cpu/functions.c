/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of expressions without a kernel of their own. */
#include "functions.h"
#include "vmath.h"

/* Define map_<name>: y[i] = value, an expression in u, or in u and v; p and q are the constants of
 * the node. */
#define UNARY(name, value)                                                                         \
    CPU_MAP(map_##name)                                                                            \
    {                                                                                              \
        const float *in = x[0], p = ((const float *)ctx)[0], q = ((const float *)ctx)[1];          \
        (void)p;                                                                                   \
        (void)q;                                                                                   \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            float u = in[i];                                                                       \
            y[i] = (value);                                                                        \
        }                                                                                          \
    }                                                                                              \
    CPU_MAP_CALL(map_##name)
#define BINARY(name, value)                                                                        \
    CPU_MAP(map_##name)                                                                            \
    {                                                                                              \
        const float *left = x[0], *right = x[1];                                                   \
        (void)ctx;                                                                                 \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            float u = left[i], v = right[i];                                                       \
            y[i] = (value);                                                                        \
        }                                                                                          \
    }                                                                                              \
    CPU_MAP_CALL(map_##name)

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

UNARY(clamp, vmath_select(u < p, p, vmath_select(u > q, q, u)))
UNARY(leaky, vmath_select(u > 0.f, u, p *u))
UNARY(bf16, rounded(u))
UNARY(integer, integer_of(u))
UNARY(exp, vexp(u))
UNARY(expm1, vexpm1(u))
UNARY(log, vlog(u))
UNARY(log1p, vlog1p(u))
UNARY(sqrt, sqrtf(u))
UNARY(rsqrt, 1.f / sqrtf(u))
UNARY(abs, fabsf(u))
UNARY(sign, sign_of(u))
UNARY(tanh, vtanh(u))
UNARY(sigmoid, vsigmoid(u))
UNARY(softplus, vsoftplus(u))
UNARY(erf, verf(u))
UNARY(sin, vsin(u))
UNARY(cos, vcos(u))
UNARY(floor, floorf(u))
UNARY(round, rintf(u))
UNARY(not, vmath_select(u == 0.f, 1.f, 0.f))
BINARY(div, u / v)
BINARY(pow, vpow(u, v))
/* NaN on either side gives NaN: every comparison with NaN is false. */
BINARY(minimum, vmath_select((u < v) | (u != u), u, v))
BINARY(maximum, vmath_select((u > v) | (u != u), u, v))
BINARY(eq, vmath_select(u == v, 1.f, 0.f))
BINARY(ne, vmath_select(u != v, 1.f, 0.f))
BINARY(lt, vmath_select(u < v, 1.f, 0.f))
BINARY(le, vmath_select(u <= v, 1.f, 0.f))
BINARY(and, vmath_select((u != 0.f) & (v != 0.f), 1.f, 0.f))
BINARY(or, vmath_select((u != 0.f) | (v != 0.f), 1.f, 0.f))

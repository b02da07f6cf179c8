/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit floating-point values (OCP FP8): e4m3 has 4 bits of exponent, 3 of mantissa, values up to
 * 448 and no infinity; e5m2 has 5, 2, values up to 57344, and infinity.  Before a tensor is rounded
 * to one of them it is multiplied by a power of two, computed here.
 *
 * Conversion rounds to nearest even.  Values beyond the largest one, infinity too, become the
 * largest; NaN stays NaN.  There are no branches, so that compilers vectorize loops over these.
 */
#ifndef CKPT_FP8_H
#define CKPT_FP8_H

#include "ckpt.h"

/* --matmul: dtype of the operands of linear layers.  matmul_dtype_of: NULL and "" are bf16; returns
 * -1 for an unknown name. */
enum matmul_dtype { MATMUL_BF16, MATMUL_FP8 };
int matmul_dtype_of(const char *name);
const char *matmul_dtype_name(enum matmul_dtype dtype);

/* The exponent of each dtype's largest value, which is 1.75 times this power of two. */
enum { FP8_E4M3_TOP = 8, FP8_E5M2_TOP = 15 };

#ifdef __CUDACC__
#define FP8_FUNCTION static __device__ __forceinline__
#else
#define FP8_FUNCTION static inline
#endif

/*
 * The k of the largest 2^k that keeps the largest magnitude of a tensor, given by its bits, within
 * the dtype's range; 0 for a tensor of zeros.  Powers of two only: multiplying by them, and back,
 * is exact, so that rounding to 8 bits is the only error, on any device.  They cost at most one bit
 * of the range, and no precision.  2^k and 2^-k are normal numbers.
 */
FP8_FUNCTION int fp8_exponent(uint32_t bits, int top)
{
    if (!bits)
        return 0;
    int k = top - ((int)(bits >> 23) - 127) - ((bits & 0x7fffff) > 0x600000);
    return k > 126 ? 126 : k;
}

/* Whether the bits, without the sign, are infinity or NaN. */
FP8_FUNCTION int fp8_is_odd(uint32_t bits)
{
    return bits >= 0x7f800000;
}

/* 2^k as bits, for k from -126 to 127. */
FP8_FUNCTION uint32_t fp8_power_bits(int k)
{
    return (uint32_t)(k + 127) << 23;
}

#ifndef __CUDACC__
#include "core/bits.h"

static inline bool dtype_is_fp8(enum ckpt_dtype dtype)
{
    return dtype == CKPT_F8E4M3 || dtype == CKPT_F8E5M2;
}

static inline int fp8_top(enum ckpt_dtype dtype)
{
    return dtype == CKPT_F8E4M3 ? FP8_E4M3_TOP : FP8_E5M2_TOP;
}

/* largest: bits of the largest value; unit: bits of a power of two with the same spacing between
 * neighbours as values below the smallest normal one. */
static inline uint8_t fp8_round(float x, int mantissa, int bias, uint32_t largest, uint32_t unit)
{
    const int drop = 23 - mantissa;
    const uint32_t bits = float_bits(x), all = bits & 0x7fffffff, a = all < largest ? all : largest;
    const uint32_t even = (a + (1u << (drop - 1)) - 1 + (a >> drop & 1)) >> drop;
    const uint32_t normal = even - ((uint32_t)(127 - bias) << mantissa);
    const uint32_t small = float_bits(float_of_bits(a) + float_of_bits(unit)) - unit;
    const uint32_t code = a < (uint32_t)(128 - bias) << 23 ? small : normal;
    return (uint8_t)(all > 0x7f800000 ? 0x7f : (bits >> 24 & 0x80) | code);
}

static inline uint8_t e4m3_round(float x)
{
    return fp8_round(x, 3, 7, 0x43e00000, 0x46800000); /* 448, 2^14 */
}

static inline uint8_t e5m2_round(float x)
{
    return fp8_round(x, 2, 15, 0x47600000, 0x43000000); /* 57344, 2^7 */
}

/* Shifted, the code's bits are those of a small fp32, also for subnormal values; multiplying by the
 * power of two corrects the exponent. */
static inline float fp8_value(uint8_t code, int drop, float power, uint32_t odd, uint32_t nan)
{
    const uint32_t a = code & 0x7f, sign = (uint32_t)(code & 0x80) << 24;
    const uint32_t bits = float_bits(float_of_bits(a << drop) * power);
    return float_of_bits(sign | (a < odd ? bits : a < nan ? 0x7f800000 : 0x7fc00000));
}

static inline float e4m3_value(uint8_t code)
{
    return fp8_value(code, 20, 0x1p120f, 0x7f, 0x7f);
}

static inline float e5m2_value(uint8_t code)
{
    return fp8_value(code, 21, 0x1p112f, 0x7c, 0x7d);
}

#endif
#endif

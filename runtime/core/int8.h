/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16 values as 8-bit integers in blocks (--activations 8bit): their layout in memory and their
 * arithmetic, written once for the CPU and for CUDA.
 *
 * A block of 128 consecutive values has a scale: its largest magnitude divided by 127, rounded to
 * bf16.  Each value has a code from -127 to 127: its quotient by the scale, rounded to nearest
 * even. A decoded value is code times scale, rounded to bf16; its error is at most half a scale,
 * 1/254 of the largest magnitude of its block.  For normally distributed values the error is 0.66 %
 * of their deviation; e4m3 with a scale would have 2.6 %.
 *
 * - A block with a NaN or a magnitude of 2^127 or more decodes to NaN in all elements: 127 scales
 *   would not be a finite bf16.
 * - A block of magnitudes below 2^-111 decodes to zeros, so that the quotient stays finite.
 * - No code exceeds 127: rounding the scale changes a quotient by a factor of 1 + 2^-9 at most.
 *
 * In memory the codes of all blocks come first, then the scales as bf16.  The last block is padded
 * with zeros.  So n values take 1.016 n bytes.
 */
#ifndef CKPT_INT8_H
#define CKPT_INT8_H

#include "core/base.h"
#include "core/bits.h"

enum {
    INT8_BLOCK = 128,
    INT8_SMALLEST = 0x0800, /* bits of 2^-111 as bf16 */
    INT8_LARGEST = 0x7f00,  /* 2^127 */
    INT8_NAN = 0x7fc0
};

static inline int64_t int8_blocks(int64_t n)
{
    return (n + INT8_BLOCK - 1) / INT8_BLOCK;
}

/* Size of n values in words of 4 bytes, the unit in which they are planned. */
static inline int64_t int8_words(int64_t n)
{
    return (int8_blocks(n) * (INT8_BLOCK + 2) + 3) / 4;
}

#ifdef __CUDACC__
#define INT8_FUNCTION static __device__ __forceinline__
#define INT8_BITS(x)  __float_as_uint(x)
#define INT8_FLOAT(b) __uint_as_float(b)
#else
#define INT8_FUNCTION static inline __attribute__((always_inline))
#define INT8_BITS(x)  float_bits(x)
#define INT8_FLOAT(b) float_of_bits(b)
#endif

/* Rounds a finite fp32 number x to nearest even; returns the bits of the bf16. */
INT8_FUNCTION uint32_t int8_to_bf16(float x)
{
    const uint32_t bits = INT8_BITS(x);
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

/* The scale of a block, as the bits of a bf16, from the bits of its largest magnitude. */
INT8_FUNCTION uint32_t int8_scale(uint32_t largest)
{
    const uint32_t scale = int8_to_bf16(INT8_FLOAT(largest << 16) * 0x1.020408p-7f);
    return largest >= INT8_LARGEST ? INT8_NAN : largest < INT8_SMALLEST ? 0u : scale;
}

/* Whether a block has codes other than zeros. */
INT8_FUNCTION bool int8_has_codes(uint32_t scale)
{
    return scale != 0u && scale != INT8_NAN;
}

#endif

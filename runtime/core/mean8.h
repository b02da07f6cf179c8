/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A running mean with 8 bits per element (--state 8bit): its layout in memory and its arithmetic,
 * one element at a time, written once for the CPU and for CUDA.
 *
 * Every value is an fp32 number with only the first 3 bits of the fraction: a number of a grid with
 * index bits >> 20.  A block of 64 elements has a top, the index of the smallest number of the grid
 * that is not exceeded by any of its elements, and a code counts from `base` below the top:
 *
 *   code 0        0
 *   code c        the number of index base + c, with base = max(0, top - most)
 *   a mean        most = 127, and the sign in bit 7: 15.9 octaves below the top
 *   of squares    most = 255: 31.9 octaves, in whose square root the same reach
 *
 * Why floating point inside a block: an update divides the mean by the root of the mean of squares,
 * element by element, so the error relative to the element counts, not relative to the largest one
 * of the block.  And an index is a bit field of an fp32: it needs no table, division or search, and
 * all processors agree.  The grid does not depend on the block: a stored value is a bf16 number and
 * is stored unchanged in any block that holds it.  So values pass through fp32 or bf16 and back
 * without a change (ranks, states, other dtypes).
 *
 * A code is rounded stochastically, with 16 random bits, because a mean that changes by a
 * thousandth of itself per step would otherwise not change at all.  Below the smallest number of
 * the block a mean becomes that number or 0, with its expectation kept.  A mean of squares becomes
 * the smallest number, never 0, because it is a divisor: its limited range makes steps smaller, not
 * larger.
 *
 * In memory the codes of all blocks come first, then the tops as bf16 numbers (index << 4).
 */
#ifndef CKPT_MEAN8_H
#define CKPT_MEAN8_H

#include "core/base.h"
#include "core/bits.h"

enum {
    MEAN8_BLOCK = 64,      /* elements; ranks cut at multiples of it (LAYOUT_ALIGN) */
    MEAN8_SHIFT = 20,      /* bits of an fp32 below the grid */
    MEAN8_TOP = 4,         /* bits of a bf16 below the grid */
    MEAN8_NEAREST = 0x7fff /* the noise that rounds to nearest */
};

static inline int64_t mean8_blocks(int64_t n)
{
    return (n + MEAN8_BLOCK - 1) / MEAN8_BLOCK;
}

/* Size of n elements in words of 4 bytes, the unit in which they are planned and saved. */
static inline int64_t mean8_words(int64_t n)
{
    return (mean8_blocks(n) * (MEAN8_BLOCK + 2) + 3) / 4;
}

/* Pointers to an element's code and to its block's top, in the memory of n elements. */
struct mean8 {
    uint8_t *code;
    uint16_t *top; /* of its block, as bf16 */
};

static inline struct mean8 mean8_at(void *memory, int64_t n, int64_t first)
{
    uint8_t *code = (uint8_t *)memory;
    uint16_t *top = (uint16_t *)(void *)(code + mean8_blocks(n) * MEAN8_BLOCK);
    struct mean8 s = {code + first, top + first / MEAN8_BLOCK};
    return s;
}

/* Encode all n elements, rounding to nearest; decode them.  square: they are means of squares. */
void mean8_to(const float *src, int64_t n, bool square, void *memory);
void mean8_from(void *memory, int64_t n, bool square, float *dst);

/* ---- one element ----------------------------------------------------------------------------- */

#ifdef __CUDACC__
#define MEAN8_FUNCTION static __device__ __forceinline__
#define MEAN8_BITS(x)  __float_as_uint(x)
#define MEAN8_FLOAT(b) __uint_as_float(b)
#else
#define MEAN8_FUNCTION static inline __attribute__((always_inline))
#define MEAN8_BITS(x)  float_bits(x)
#define MEAN8_FLOAT(b) float_of_bits(b)
#endif

/* The bits of |x|; for NaN those of infinity. */
MEAN8_FUNCTION uint32_t mean8_bits(float x)
{
    const uint32_t bits = MEAN8_BITS(x) & 0x7fffffffu;
    return bits < 0x7f800000u ? bits : 0x7f800000u;
}

/* The index of the smallest number of the grid that is at least |x|; a block's largest is its top.
 */
MEAN8_FUNCTION uint32_t mean8_ceil(float x)
{
    return (mean8_bits(x) + (1u << MEAN8_SHIFT) - 1u) >> MEAN8_SHIFT;
}

MEAN8_FUNCTION uint32_t mean8_base(uint32_t top, bool square)
{
    const uint32_t range = square ? 255u : 127u;
    return top > range ? top - range : 0u;
}

MEAN8_FUNCTION float mean8_decode(uint32_t code, uint32_t base, bool square)
{
    const uint32_t c = square ? code : code & 127u, sign = square ? 0u : (code & 128u) << 24;
    return MEAN8_FLOAT((c ? (c + base) << MEAN8_SHIFT : 0u) | sign);
}

/* noise: 16 random bits.  NaN gets no sign, because processors differ in it.  All products are
 * exact except among the smallest floats. */
MEAN8_FUNCTION uint32_t mean8_encode(float x, uint32_t base, uint32_t noise, bool square)
{
    const uint32_t bits = mean8_bits(x), sign = square || x != x ? 0u : MEAN8_BITS(x) >> 24 & 128u;
    const uint32_t smallest = (base + 1u) << MEAN8_SHIFT;
    /* (noise + 1/2) / 2^16, by way of the float of [1, 2) that has these bits. */
    const float part = MEAN8_FLOAT(0x3f800040u | noise << 7) - 1.f;
    const uint32_t up = square ? bits != 0u : part * MEAN8_FLOAT(smallest) < MEAN8_FLOAT(bits);
    const uint32_t c = ((bits + (noise << 4) + 8u) >> MEAN8_SHIFT) - base;
    return (bits < smallest ? up : c) | sign;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights that are not trained, in codes of 8 or 4 bits: their layout in memory, the values of the
 * codes, and how codes are chosen.
 *
 * A block of 64 elements, in the order of memory, has a scale s: its largest magnitude, as bf16.
 *
 *   int8   q in -127 .. 127, a byte each             w = q (s / 127)
 *   nf4    q in 0 .. 15, two in a byte, first high   w = nf4_values[q] s
 *
 * nf4_values are the quantiles of a normal distribution by which QLoRA defines NF4 (Dettmers et
 * al. 2023): 8 equal parts of the probabilities 1/2 .. 0.9677083 above zero and 7 below, and zero,
 * divided by the largest (tests/unit/make_frozen_reference.py computes them).  q is the index of
 * the value nearest to w / s.
 *
 * Why a scale in bf16: the largest magnitude of bf16 weights is a bf16 number, so it is as exact as
 * fp32, and a weight takes 4.25 bits; with fp32 scales it takes 4.5, and with 8-bit scales, which
 * have scales of their own, 4.13.  Encoding decoded values gives the same codes: the largest
 * element of a block decodes to s itself, and every other is rounded by less than half of the
 * distance between two codes, also to bf16.  So values pass through fp32 and bf16 and back without
 * a change (states, merged files, a copy into another context).
 *
 * In memory the codes of all blocks come first, then their scales.
 */
#ifndef CKPT_FROZEN_H
#define CKPT_FROZEN_H

#include "core/base.h"

enum {
    FROZEN_BLOCK = 64, /* elements per scale; a weight has a multiple of it */
    FROZEN_MIN = 4096  /* elements; for smaller weights decoding by an op costs too much */
};

enum frozen_format { FROZEN_PLAIN, FROZEN_INT8, FROZEN_NF4 };

/* Converts "int8", "nf4" and "bf16" (FROZEN_PLAIN) to a format, and back.  Below 0: unknown. */
int frozen_format_of(const char *name);
const char *frozen_name(int format);

/* Whether a weight of n elements can be kept in codes. */
static inline bool frozen_takes(int64_t n)
{
    return n >= FROZEN_MIN && n % FROZEN_BLOCK == 0;
}

static inline int64_t frozen_code_bytes(int format, int64_t n)
{
    return format == FROZEN_NF4 ? n / 2 : n;
}

/* Size of n elements in words of 4 bytes, the unit in which they are planned and saved. */
static inline int64_t frozen_words(int format, int64_t n)
{
    return (frozen_code_bytes(format, n) + n / FROZEN_BLOCK * 2 + 3) / 4;
}

/* The format in which n elements take this many words, or FROZEN_PLAIN. */
static inline int frozen_format_of_words(int64_t n, int64_t words)
{
    return !frozen_takes(n)                        ? FROZEN_PLAIN
           : words == frozen_words(FROZEN_INT8, n) ? FROZEN_INT8
           : words == frozen_words(FROZEN_NF4, n)  ? FROZEN_NF4
                                                   : FROZEN_PLAIN;
}

/* Encodes all n elements.  A block with a value that is infinite or NaN becomes NaN; a block whose
 * largest magnitude is below 2^-100 becomes 0. */
void frozen_encode(const float *src, int64_t n, int format, void *memory);

/* Decodes elements [first, first + count) of n; both are multiples of a block. */
void frozen_decode(const void *memory, int64_t n, int format, int64_t first, int64_t count,
                   float *dst);

/* Decodes all elements, rounded to a dtype that is fp32 or bf16. */
void frozen_decode_as(const void *memory, int64_t n, int format, enum ckpt_dtype dtype, float *dst);

/* An int8 code of a block is decoded as the code times FROZEN_INT8_FACTOR times the scale. */
#define FROZEN_INT8_FACTOR (1.f / 127.f) /* of s */

#define NF4_VALUES                                                                                 \
    {                                                                                              \
        -1.f, -0.696192920f, -0.525073051f, -0.394917488f, -0.284441352f, -0.184773430f,           \
            -0.0910499915f, 0.f, 0.0795803294f, 0.160930172f, 0.246112287f, 0.337915182f,          \
            0.440709800f, 0.562616944f, 0.722956717f, 1.f                                          \
    }

#endif

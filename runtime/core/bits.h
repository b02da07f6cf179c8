/* SPDX-License-Identifier: Apache-2.0 */
/* Converts between an fp32 value and its bits. */
#ifndef CKPT_BITS_H
#define CKPT_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif

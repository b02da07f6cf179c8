/* SPDX-License-Identifier: Apache-2.0 */
/* The brain float: the upper half of an fp32 value. */
#ifndef CKPT_BF16_H
#define CKPT_BF16_H

#include "core/bits.h"

/* bf16 to fp32, and back with rounding to nearest even; NaN stays NaN. */
static inline float bf16_load(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_round(float f)
{
    uint32_t u = float_bits(f);
    uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    uint32_t nan = (u >> 16) | 0x40;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

#endif

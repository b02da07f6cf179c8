/* SPDX-License-Identifier: Apache-2.0 */
/* What CPU kernels share: typed element access, loops over views, vector maths, workspaces. */
#ifndef CKPT_CPU_H
#define CKPT_CPU_H

#include <math.h>
#include <string.h>
#include "core/bits.h"
#include "core/clones.h"
#include "ops.h"

/* fp32 of a bf16, and back to nearest even (NaN stays NaN). */
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

/* Rows of n values between a float buffer and memory of a floating dtype. */
void cpu_load(float *dst, const void *src, enum ckpt_dtype dtype, int64_t n);
void cpu_store(void *dst, const float *src, enum ckpt_dtype dtype, int64_t n);

/*
 * Work is cut into chunks whose number and size depend on the shape alone, never on the number of
 * threads, and partial sums are added in chunk order: results do not depend on the machine's cores.
 */

/*
 * Slots of scratch for n units of work of so many multiply-adds in all; a slot walks its share of
 * the units in order.  Little work gets few slots: its scratch should not shape a plan.
 */
static inline int64_t cpu_slots(int64_t n, double macs)
{
    int64_t worth = macs < 0x1p24 ? 1 + (int64_t)(macs / 0x1p18) : 16;
    return min_i64(n, min_i64(worth, 16));
}

#endif

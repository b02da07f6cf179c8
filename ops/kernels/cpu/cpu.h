/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the CPU kernels: element access by dtype, and division of work into slots. */
#ifndef CKPT_CPU_H
#define CKPT_CPU_H

#include <math.h>
#include <string.h>
#include "core/bf16.h"
#include "core/clones.h"
#include "ops.h"

/* Convert rows of n values between a float buffer and memory of a floating dtype. */
void cpu_load(float *dst, const void *src, enum ckpt_dtype dtype, int64_t n);
void cpu_store(void *dst, const float *src, enum ckpt_dtype dtype, int64_t n);

/*
 * Work is divided into chunks whose number and size depend on the shape alone, never on the number
 * of threads.  Partial sums are added in chunk order, so results do not depend on the machine's
 * cores.
 */

/*
 * Number of workspace slots for n units of work with `macs` multiply-adds in all.  A slot processes
 * its units in order.  Little work gets few slots, so that its workspace does not raise the peak of
 * a plan.
 */
static inline int64_t cpu_slots(int64_t n, double macs)
{
    int64_t worth = macs < 0x1p24 ? 1 + (int64_t)(macs / 0x1p18) : 16;
    return min_i64(n, min_i64(worth, 16));
}

#endif

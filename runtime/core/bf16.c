/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of arrays between fp32 and bf16. */
#include "ckpt_tools.h"
#include "core/bf16.h"
#include "core/clones.h"

CKPT_CLONES static void widen_bf16(const uint16_t *restrict src, float *restrict dst, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = bf16_load(src[i]);
}

CKPT_CLONES static void narrow_bf16(const float *restrict src, uint16_t *restrict dst, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = bf16_round(src[i]);
}

void ckpt_to_bf16(const float *src, uint16_t *dst, int64_t n)
{
    if (src && dst)
        narrow_bf16(src, dst, n);
}

void ckpt_from_bf16(const uint16_t *src, float *dst, int64_t n)
{
    if (src && dst)
        widen_bf16(src, dst, n);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of rows between memory of a floating dtype and float buffers. */
#include "core/fp8.h"
#include "cpu.h"

CKPT_CLONES static void load_bf16(float *restrict dst, const uint16_t *restrict src, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = bf16_load(src[i]);
}

CKPT_CLONES static void store_bf16(uint16_t *restrict dst, const float *restrict src, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = bf16_round(src[i]);
}

CKPT_CLONES static void load_e4m3(float *restrict dst, const uint8_t *restrict src, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = e4m3_value(src[i]);
}

CKPT_CLONES static void load_e5m2(float *restrict dst, const uint8_t *restrict src, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = e5m2_value(src[i]);
}

CKPT_CLONES static void store_e4m3(uint8_t *restrict dst, const float *restrict src, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = e4m3_round(src[i]);
}

CKPT_CLONES static void store_e5m2(uint8_t *restrict dst, const float *restrict src, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = e5m2_round(src[i]);
}

void cpu_load(float *dst, const void *src, enum ckpt_dtype dtype, int64_t n)
{
    if (dtype == CKPT_BF16)
        load_bf16(dst, src, n);
    else if (dtype == CKPT_F8E4M3)
        load_e4m3(dst, src, n);
    else if (dtype == CKPT_F8E5M2)
        load_e5m2(dst, src, n);
    else
        memcpy(dst, src, (size_t)n * sizeof *dst);
}

void cpu_store(void *dst, const float *src, enum ckpt_dtype dtype, int64_t n)
{
    if (dtype == CKPT_BF16)
        store_bf16(dst, src, n);
    else if (dtype == CKPT_F8E4M3)
        store_e4m3(dst, src, n);
    else if (dtype == CKPT_F8E5M2)
        store_e5m2(dst, src, n);
    else
        memcpy(dst, src, (size_t)n * sizeof *src);
}

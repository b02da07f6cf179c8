/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of rows between memory of a floating dtype and float buffers. */
#include "ckpt_tools.h"
#include "core/fp8.h"
#include "cpu.h"

#define CONVERT(name, to, from, rule)                                                              \
    CKPT_CLONES static void name(to *restrict dst, const from *restrict src, int64_t n)            \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dst[i] = rule(src[i]);                 \
    }
CONVERT(load_e4m3, float, uint8_t, e4m3_value)
CONVERT(load_e5m2, float, uint8_t, e5m2_value)
CONVERT(store_e4m3, uint8_t, float, e4m3_round)
CONVERT(store_e5m2, uint8_t, float, e5m2_round)

void cpu_load(float *dst, const void *src, enum ckpt_dtype dtype, int64_t n)
{
    if (dtype == CKPT_BF16)
        ckpt_from_bf16(src, dst, n);
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
        ckpt_to_bf16(src, dst, n);
    else if (dtype == CKPT_F8E4M3)
        store_e4m3(dst, src, n);
    else if (dtype == CKPT_F8E5M2)
        store_e5m2(dst, src, n);
    else
        memcpy(dst, src, (size_t)n * sizeof *src);
}

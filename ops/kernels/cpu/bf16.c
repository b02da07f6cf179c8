/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of arrays between fp32 and bf16. */
#include "ckpt_tools.h"
#include "cpu.h"

void ckpt_to_bf16(const float *src, uint16_t *dst, int64_t n)
{
    if (!src || !dst)
        return;
    cpu_store(dst, src, CKPT_BF16, n);
}

void ckpt_from_bf16(const uint16_t *src, float *dst, int64_t n)
{
    if (!src || !dst)
        return;
    cpu_load(dst, src, CKPT_BF16, n);
}

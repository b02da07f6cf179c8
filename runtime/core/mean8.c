/* SPDX-License-Identifier: Apache-2.0 */
/* Running means in 8 bits, whole tensors: see mean8.h. */
#include "core/mean8.h"

static void to_block(const float *src, int n, bool square, struct mean8 s)
{
    uint32_t top = 0;
    for (int i = 0; i < n; i++)
        top = mean8_ceil(src[i]) > top ? mean8_ceil(src[i]) : top;
    const uint32_t base = mean8_base(top, square);
    *s.top = (uint16_t)(top << MEAN8_TOP);
    for (int i = 0; i < MEAN8_BLOCK; i++)
        s.code[i] = i < n ? (uint8_t)mean8_encode(src[i], base, MEAN8_NEAREST, square) : 0;
}

void mean8_to(const float *src, int64_t n, bool square, void *memory)
{
    for (int64_t at = 0; at < n; at += MEAN8_BLOCK)
        to_block(src + at, (int)min_i64(MEAN8_BLOCK, n - at), square, mean8_at(memory, n, at));
}

static void from_block(struct mean8 s, int n, bool square, float *dst)
{
    const uint32_t base = mean8_base(*s.top >> MEAN8_TOP, square);
    for (int i = 0; i < n; i++)
        dst[i] = mean8_decode(s.code[i], base, square);
}

void mean8_from(void *memory, int64_t n, bool square, float *dst)
{
    for (int64_t at = 0; at < n; at += MEAN8_BLOCK)
        from_block(mean8_at(memory, n, at), (int)min_i64(MEAN8_BLOCK, n - at), square, dst + at);
}

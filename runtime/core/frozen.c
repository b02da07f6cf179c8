/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding of weights that are not trained: see frozen.h. */
#include <math.h>
#include <string.h>
#include "core/bits.h"
#include "core/clones.h"
#include "core/frozen.h"
#include "core/thread_team.h"

enum { NF4_CODES = 16, SHARE = 1 << 16 /* elements: fewer do not justify another thread */ };

static const float nf4_values[NF4_CODES] = NF4_VALUES;

static const char *const names[] = {
    [FROZEN_PLAIN] = "bf16", [FROZEN_INT8] = "int8", [FROZEN_NF4] = "nf4"};

int frozen_format_of(const char *name)
{
    for (int i = FROZEN_PLAIN; i <= FROZEN_NF4; i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

const char *frozen_name(int format)
{
    return names[format];
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* Rounds to bf16; the bits are no NaN whose fraction would overflow. */
static uint16_t round_bits(uint32_t bits)
{
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The scale of a block, as bits of a bf16: 0, NaN, or a finite number. */
static uint16_t scale_of(const float *x)
{
    const uint32_t smallest = (127 - 100) << 23, infinite = 0x7f800000;
    const uint16_t largest = 0x7f7f;
    uint32_t found = 0;
    for (int i = 0; i < FROZEN_BLOCK; i++) {
        const uint32_t bits = float_bits(x[i]) & 0x7fffffff;
        found = bits > found ? bits : found;
    }
    if (found < smallest)
        return 0;
    if (found >= infinite)
        return 0x7fc0;
    const uint16_t rounded = round_bits(found);
    return rounded > largest ? largest : rounded;
}

static float scale_value(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

/* y = x / s, or 0 if s is not positive. */
static void divide(float *restrict y, const float *restrict x, float s)
{
    for (int i = 0; i < FROZEN_BLOCK; i++)
        y[i] = s > 0.f ? x[i] / s : 0.f;
}

static void encode_int8(const float *restrict y, int8_t *restrict code)
{
    for (int i = 0; i < FROZEN_BLOCK; i++) {
        const float q = rintf(y[i] * 127.f);
        code[i] = (int8_t)(q > 127.f ? 127.f : q < -127.f ? -127.f : q);
    }
}

static void encode_nf4(const float *restrict y, uint8_t *restrict code)
{
    uint8_t q[FROZEN_BLOCK] = {0};
    for (int k = 0; k + 1 < NF4_CODES; k++) {
        const float border = (nf4_values[k] + nf4_values[k + 1]) * 0.5f;
        for (int i = 0; i < FROZEN_BLOCK; i++)
            q[i] = (uint8_t)(q[i] + (y[i] > border));
    }
    for (int i = 0; i < FROZEN_BLOCK / 2; i++)
        code[i] = (uint8_t)(q[2 * i] << 4 | q[2 * i + 1]);
}

CKPT_CLONES static void encode_frozen_block(const float *x, int format, void *code, uint16_t *scale)
{
    float y[FROZEN_BLOCK];
    *scale = scale_of(x);
    divide(y, x, scale_value(*scale));
    if (format == FROZEN_NF4)
        encode_nf4(y, code);
    else
        encode_int8(y, code);
}

/* The blocks of one tensor. */
struct blocks {
    int format;
    enum ckpt_dtype dtype;
    int64_t n;
    uint8_t *code;
    uint16_t *scale;
    float *value;
};

static struct blocks blocks_of(void *memory, int64_t n, int format)
{
    uint8_t *code = memory;
    return (struct blocks){.format = format,
                           .n = n,
                           .code = code,
                           .scale = (uint16_t *)(void *)(code + frozen_code_bytes(format, n))};
}

static void encode_share(void *user, int64_t from, int64_t end)
{
    const struct blocks *b = user;
    for (int64_t at = from; at < end; at += FROZEN_BLOCK)
        encode_frozen_block(b->value + at, b->format, b->code + frozen_code_bytes(b->format, at),
                            &b->scale[at / FROZEN_BLOCK]);
}

void frozen_encode(const float *src, int64_t n, int format, void *memory)
{
    struct blocks b = blocks_of(memory, n, format);
    b.value = (float *)(uintptr_t)src;
    /* The last word may be longer than the codes and scales. */
    memset((char *)memory + frozen_words(format, n) * 4 - 4, 0, 4);
    thread_team_run(thread_team_size(0, n, SHARE), n, FROZEN_BLOCK, encode_share, &b);
}

/* ---- decoding -------------------------------------------------------------------------------- */

CKPT_CLONES static void decode_frozen_int8(const int8_t *restrict code, float scale,
                                           float *restrict dst)
{
    const float s = scale * FROZEN_INT8_FACTOR;
    for (int i = 0; i < FROZEN_BLOCK; i++)
        dst[i] = (float)code[i] * s;
}

static void decode_frozen_nf4(const uint8_t *restrict code, float scale, float *restrict dst)
{
    float value[NF4_CODES];
    for (int k = 0; k < NF4_CODES; k++)
        value[k] = nf4_values[k] * scale;
    for (int i = 0; i < FROZEN_BLOCK / 2; i++) {
        dst[2 * i] = value[code[i] >> 4];
        dst[2 * i + 1] = value[code[i] & 15];
    }
}

void frozen_decode(const void *memory, int64_t n, int format, int64_t first, int64_t count,
                   float *dst)
{
    const struct blocks b = blocks_of((void *)(uintptr_t)memory, n, format);
    for (int64_t at = first; at < first + count; at += FROZEN_BLOCK) {
        const float scale = scale_value(b.scale[at / FROZEN_BLOCK]);
        if (format == FROZEN_NF4)
            decode_frozen_nf4(b.code + at / 2, scale, dst + at - first);
        else
            decode_frozen_int8((const int8_t *)b.code + at, scale, dst + at - first);
    }
}

static void decode_share(void *user, int64_t from, int64_t end)
{
    const struct blocks *b = user;
    frozen_decode(b->code, b->n, b->format, from, end - from, b->value + from);
    for (int64_t i = from; b->dtype == CKPT_BF16 && i < end; i++)
        b->value[i] = scale_value(round_bits(float_bits(b->value[i])));
}

void frozen_decode_as(const void *memory, int64_t n, int format, enum ckpt_dtype dtype, float *dst)
{
    struct blocks b = blocks_of((void *)(uintptr_t)memory, n, format);
    b.dtype = dtype;
    b.value = dst;
    thread_team_run(thread_team_size(0, n, SHARE), n, FROZEN_BLOCK, decode_share, &b);
}

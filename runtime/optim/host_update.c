/* SPDX-License-Identifier: Apache-2.0 */
/* Updates on the host in one pass over memory, for several instruction sets: see host_update.h. */
#include <math.h>
#include <string.h>
#include "kernels/cpu/cpu.h"
#include "optim/update_math.h"
#include "optim/host_update.h"
#include "optim/optim.h"

/* Elements that stay in the L1 cache while several loops process them.  A single fused loop would
 * need one copy for each combination of operands, without being faster. */
#define BLOCK 256

/* The operands of a block; m and v are NULL if the kind has no such mean. */
struct block {
    const float *gradient;
    float *w, *m, *v;
    int64_t n;
};

/* Like floats_are_finite, compiled for the instruction set. */
UPDATE_FUNCTION bool are_finite(const float *x, int64_t n)
{
    uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = float_bits(x[i]) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest < 0x7f800000;
}

/* kind and mean are constants at each call, so each call is specialized. */
UPDATE_FUNCTION void update_weights(enum update_kind kind, bool mean,
                                    const struct update_constants *c, const struct block *b)
{
    const float *gradient = b->gradient;
    float *restrict w = b->w, *restrict m = b->m, *restrict v = b->v;
#pragma omp simd
    for (int64_t i = 0; i < b->n; i++) {
        float first = mean ? m[i] : 0.f, square = kind == UPDATE_ADAMW ? v[i] : 0.f;
        w[i] = update_weight(kind, c, gradient[i], w[i], mean ? &first : NULL, &square);
        if (mean)
            m[i] = first;
        if (kind == UPDATE_ADAMW)
            v[i] = square;
    }
}

UPDATE_FUNCTION void update_kind(const struct update_constants *c, const struct block *b)
{
    switch ((enum update_kind)c->kind) {
    case UPDATE_ADAMW:
        update_weights(UPDATE_ADAMW, true, c, b);
        break;
    case UPDATE_SGD:
        if (b->m)
            update_weights(UPDATE_SGD, true, c, b);
        else
            update_weights(UPDATE_SGD, false, c, b);
        break;
    case UPDATE_LION:
        update_weights(UPDATE_LION, true, c, b);
        break;
    default:
        update_weights(UPDATE_STEP, false, c, b);
    }
}

static float *at_or_null(float *p, int64_t at)
{
    return p ? p + at : NULL;
}

static uint16_t *half_at(uint16_t *p, int64_t at)
{
    return p ? p + at : NULL;
}

/* Updates elements [at, at + n), one block at most. */
UPDATE_FUNCTION void update_block(const struct update_constants *c, const struct host_update *p,
                                  int64_t at, int64_t n)
{
    float wide[BLOCK], *restrict w = p->w + at;
    const uint16_t *half = p->half ? (const uint16_t *)p->gradient + at : NULL;
    float *restrict ema = at_or_null(p->ema, at);
    uint16_t *value = half_at(p->value, at); /* may be the same memory as the gradient */
    const struct block b = {.gradient = half ? wide : (const float *)p->gradient + at,
                            .w = w,
                            .m = at_or_null(p->m, at),
                            .v = at_or_null(p->v, at),
                            .n = n};
#pragma omp simd
    for (int64_t i = 0; i < (half ? n : 0); i++)
        wide[i] = bf16_load(half[i]);
    update_kind(c, &b);
    if (p->broken && !are_finite(w, n))
        __atomic_store_n(p->broken, true, __ATOMIC_RELAXED);
#pragma omp simd
    for (int64_t i = 0; i < (value ? n : 0); i++)
        value[i] = bf16_round(w[i]);
#pragma omp simd
    for (int64_t i = 0; i < (ema ? n : 0); i++)
        ema[i] = update_ema(c, ema[i], w[i]);
}

UPDATE_FUNCTION void widen(float *restrict dst, const uint16_t *restrict src, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dst[i] = bf16_load(src[i]);
}

/* x as bf16, rounded with 16 random bits like update_round.  Infinities are preserved; NaN stays
 * NaN. */
UPDATE_FUNCTION uint16_t round_half(float x, uint32_t noise)
{
    const uint32_t up = (float_bits(x) + noise) >> 16;
    return (uint16_t)(x != x ? 0x7fc0u : up);
}

/* Decodes elements [at, at + n) of an 8-bit mean; at is a multiple of MEAN8_BLOCK. */
UPDATE_FUNCTION void decode_mean8(float *restrict dst, const struct mean8 *s, int64_t at, int64_t n,
                                  bool square)
{
    for (int64_t begin = 0; begin < n; begin += MEAN8_BLOCK) {
        const uint8_t *restrict code = s->code + at + begin;
        const int64_t end = min_i64(n, begin + MEAN8_BLOCK);
        const uint32_t top = s->top[(at + begin) / MEAN8_BLOCK] >> MEAN8_TOP;
        const uint32_t base = mean8_base(top, square);
#pragma omp simd
        for (int64_t i = begin; i < end; i++)
            dst[i] = mean8_decode(code[i - begin], base, square);
    }
}

/* Encodes n elements, one block at most.  All are finite, and none is below the block's smallest
 * representable number, except 0 where `square`.  Gives the same codes as mean8_encode with half
 * the instructions. */
UPDATE_FUNCTION void encode_plain(uint8_t *restrict code, const float *restrict x,
                                  const uint32_t *restrict word, uint32_t base, int64_t n,
                                  bool square)
{
    const uint32_t below = 8u - (base << MEAN8_SHIFT);
    const int of = square ? NOISE_SQUARE : NOISE_MEAN;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = float_bits(x[i]), noise = update_noise(word[i], of) << 4;
        const uint32_t c = ((bits & 0x7fffffffu) + noise + below) >> MEAN8_SHIFT;
        code[i] = (uint8_t)(square ? c : c | (bits >> 24 & 128u));
    }
}

UPDATE_FUNCTION void encode(uint8_t *restrict code, const float *restrict x,
                            const uint32_t *restrict word, uint32_t base, int64_t n, bool square)
{
    const int of = square ? NOISE_SQUARE : NOISE_MEAN;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        code[i] = (uint8_t)mean8_encode(x[i], base, update_noise(word[i], of), square);
}

/* Encodes and stores elements, with a new top for each block. */
UPDATE_FUNCTION void encode_mean8(const struct mean8 *s, int64_t at, const float *restrict x,
                                  const uint32_t *restrict word, int64_t n, bool square)
{
    for (int64_t begin = 0; begin < n; begin += MEAN8_BLOCK) {
        uint8_t *restrict code = s->code + at + begin;
        const int64_t count = min_i64(n - begin, MEAN8_BLOCK);
        const float *restrict from = x + begin;
        uint32_t largest = 0, smallest = UINT32_MAX;
#pragma omp simd reduction(max : largest) reduction(min : smallest)
        for (int64_t i = 0; i < count; i++) {
            const uint32_t bits = float_bits(from[i]) & 0x7fffffffu;
            largest = bits > largest ? bits : largest;
            smallest = bits < smallest ? bits : smallest;
        }
        const uint32_t top = mean8_ceil(float_of_bits(largest)), base = mean8_base(top, square);
        if (largest < 0x7f800000u && smallest >= (base + 1u) << MEAN8_SHIFT)
            encode_plain(code, from, word + begin, base, count, square);
        else
            encode(code, from, word + begin, base, count, square);
        s->top[(at + begin) / MEAN8_BLOCK] = (uint16_t)(top << MEAN8_TOP);
    }
}

/* The operands of a block with bf16 weight.  Its means are bf16 (half_m, half_v) or decoded from 8
 * bits (m, v). */
struct bf16_block {
    const float *gradient;
    uint16_t *value, *half_m, *half_v;
    float *m, *v;
    const uint32_t *word;
    int64_t n;
};

/* kind, mean and half are constants at each call.  One loop loads, updates and stores, because
 * loads, stores and conversions are most of its work. */
UPDATE_FUNCTION void update_bf16_weights(enum update_kind kind, bool mean, bool half,
                                         const struct update_constants *c,
                                         const struct bf16_block *b)
{
    const bool square = kind == UPDATE_ADAMW;
    const float *restrict gradient = b->gradient;
    uint16_t *restrict value = b->value, *restrict half_m = b->half_m, *restrict half_v = b->half_v;
    float *restrict m = b->m, *restrict v = b->v;
    const uint32_t *restrict word = b->word;
#pragma omp simd
    for (int64_t i = 0; i < b->n; i++) {
        float first = !mean ? 0.f : half ? bf16_load(half_m[i]) : m[i];
        float second = !square ? 0.f : half ? bf16_load(half_v[i]) : v[i];
        const float w =
            update_weight(kind, c, gradient[i], bf16_load(value[i]), mean ? &first : NULL, &second);
        value[i] = round_half(w, update_noise(word[i], NOISE_VALUE));
        if (mean && half)
            half_m[i] = round_half(first, update_noise(word[i], NOISE_MEAN));
        else if (mean)
            m[i] = first;
        if (square && half)
            half_v[i] = round_half(second, update_noise(word[i], NOISE_SQUARE));
        else if (square)
            v[i] = second;
    }
}

UPDATE_FUNCTION void update_bf16_kind(bool half, const struct update_constants *c,
                                      const struct bf16_block *b)
{
    switch ((enum update_kind)c->kind) {
    case UPDATE_ADAMW:
        update_bf16_weights(UPDATE_ADAMW, true, half, c, b);
        break;
    case UPDATE_SGD:
        if (b->m || b->half_m)
            update_bf16_weights(UPDATE_SGD, true, half, c, b);
        else
            update_bf16_weights(UPDATE_SGD, false, half, c, b);
        break;
    case UPDATE_LION:
        update_bf16_weights(UPDATE_LION, true, half, c, b);
        break;
    default:
        update_bf16_weights(UPDATE_STEP, false, half, c, b);
    }
}

UPDATE_FUNCTION bool halves_are_finite(const uint16_t *x, int64_t n)
{
    uint16_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < n; i++) {
        const uint16_t bits = x[i] & 0x7fff;
        largest = bits > largest ? bits : largest;
    }
    return largest < 0x7f80;
}

/* Like update_block, for bf16 state or 8-bit means. */
UPDATE_FUNCTION void update_bf16_block(const struct update_constants *c,
                                       const struct host_update *p, int64_t at, int64_t n)
{
    float wide[BLOCK], m[BLOCK], v[BLOCK], *restrict ema = at_or_null(p->ema, at);
    uint32_t word[BLOCK];
    uint16_t *value = p->value + at;
    const struct bf16_block b = {.gradient = p->half ? wide : (const float *)p->gradient + at,
                                 .value = value,
                                 .half_m = half_at(p->half_m, at),
                                 .half_v = half_at(p->half_v, at),
                                 .m = p->byte_m.code ? m : NULL,
                                 .v = p->byte_v.code ? v : NULL,
                                 .word = word,
                                 .n = n};
    if (p->half)
        widen(wide, (const uint16_t *)p->gradient + at, n);
    if (p->byte_m.code)
        decode_mean8(m, &p->byte_m, at, n, false);
    if (p->byte_v.code)
        decode_mean8(v, &p->byte_v, at, n, true);
    random_words(&p->noise, p->first + at, word, n);
    if (p->byte_m.code)
        update_bf16_kind(false, c, &b);
    else
        update_bf16_kind(true, c, &b);
    if (p->byte_m.code)
        encode_mean8(&p->byte_m, at, m, word, n, false);
    if (p->byte_v.code)
        encode_mean8(&p->byte_v, at, v, word, n, true);
    if (p->broken && !halves_are_finite(value, n))
        __atomic_store_n(p->broken, true, __ATOMIC_RELAXED);
#pragma omp simd
    for (int64_t i = 0; i < (ema ? n : 0); i++)
        ema[i] = update_ema(c, ema[i], bf16_load(value[i]));
}

/* Whole blocks are called with a constant size, so that no loop has a remainder. */
UPDATE_FUNCTION void update(const struct update_constants *constants, const struct host_update *p)
{
    const struct update_constants c = *constants;
    const int64_t whole = p->n / BLOCK * BLOCK;
    for (int64_t at = 0; at < whole; at += BLOCK)
        if (p->narrow)
            update_bf16_block(&c, p, at, BLOCK);
        else
            update_block(&c, p, at, BLOCK);
    if (whole < p->n && p->narrow)
        update_bf16_block(&c, p, whole, p->n - whole);
    else if (whole < p->n)
        update_block(&c, p, whole, p->n - whole);
}

/* ---- instruction sets ------------------------------------------------------------------------ */

/* On arm64 the compile target includes NEON. */
static void update_plain(const struct update_constants *c, const struct host_update *p)
{
    update(c, p);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void update_avx2(const struct update_constants *c,
                                                        const struct host_update *p)
{
    update(c, p);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void
update_avx512(const struct update_constants *c, const struct host_update *p)
{
    update(c, p);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static const struct {
    const char *name;
    void (*run)(const struct update_constants *c, const struct host_update *p);
    bool (*has)(void); /* NULL: always available */
} sets[HOST_UPDATE_SETS] = {
#if defined(__aarch64__)
    [HOST_UPDATE_PLAIN] = {"NEON", update_plain, NULL},
#else
    [HOST_UPDATE_PLAIN] = {"plain", update_plain, NULL},
#endif
#ifdef __x86_64__
    [HOST_UPDATE_AVX2] = {"AVX2", update_avx2, has_avx2},
    [HOST_UPDATE_AVX512] = {"AVX-512", update_avx512, has_avx512},
#endif
};

const char *host_update_name(enum host_update_set set)
{
    return !sets[set].has || sets[set].has() ? sets[set].name : NULL;
}

void host_update_with(enum host_update_set set, const struct update_constants *c,
                      const struct host_update *p)
{
    sets[set].run(c, p);
}

/* ---- in threads ------------------------------------------------------------------------------ */

static struct mean8 bytes_at(struct mean8 s, int64_t at)
{
    return s.code ? (struct mean8){s.code + at, s.top + at / MEAN8_BLOCK} : s;
}

/* The operands of elements [at, at + n). */
static struct host_update piece_of(const struct host_update *p, int64_t at, int64_t n)
{
    return (struct host_update){
        .w = at_or_null(p->w, at),
        .m = at_or_null(p->m, at),
        .v = at_or_null(p->v, at),
        .ema = at_or_null(p->ema, at),
        .value = half_at(p->value, at),
        .gradient = (const char *)p->gradient + at * (p->half ? 2 : 4),
        .half = p->half,
        .n = n,
        .broken = p->broken,
        .narrow = p->narrow,
        .half_m = half_at(p->half_m, at),
        .half_v = half_at(p->half_v, at),
        .byte_m = bytes_at(p->byte_m, at),
        .byte_v = bytes_at(p->byte_v, at),
        .noise = p->noise,
        .first = p->first + at,
    };
}

/* Takes the next chunk and returns its first element. */
static int64_t take_chunk(int64_t *next)
{
    return __atomic_fetch_add(next, OPTIM_CHUNK, __ATOMIC_RELAXED);
}

/* Chunks are distributed dynamically: a thread that shares its processor takes fewer.  With a
 * static schedule all others would wait for it. */
void host_update(const struct update_constants *c, const struct host_update *p)
{
    enum host_update_set best = HOST_UPDATE_SETS - 1;
    while (!host_update_name(best))
        best--;
    int64_t next = 0;
#pragma omp parallel if (p->n > OPTIM_CHUNK)
    for (int64_t at; (at = take_chunk(&next)) < p->n;) {
        struct host_update piece = piece_of(p, at, min_i64(OPTIM_CHUNK, p->n - at));
        host_update_with(best, c, &piece);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011)
 * and draws from it: uniform values and, by Box and Muller's formula, normal ones.
 *
 * The same draw gives the same bits on every machine.  The logarithm, sine and cosine are therefore
 * polynomials of our own in double: only +, -, *, / and sqrt, which IEEE 754 rounds in exactly one
 * way, in a fixed order.  A fused multiply-add would round once instead of twice, so contraction is
 * switched off.  The C library's functions would not do: they differ between versions and select
 * code by processor.  (The x87 unit of 32-bit x86 keeps extra digits and is the exception.)
 */
#include <math.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include "core/base.h"
#include "ckpt_tools.h"
#include "core/clones.h"
#include "core/random.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#define BATCH  64 /* blocks drawn at once */
#define VALUES (4 * BATCH)
#define ROUNDS 10

/* The factors of a round, and the increments of the key from one round to the next. */
#define PHILOX_M0 0xd2511f53u
#define PHILOX_M1 0xcd9e8d57u
#define PHILOX_K0 0x9e3779b9u
#define PHILOX_K1 0xbb67ae85u

enum kind { KIND_UNIFORM, KIND_NORMAL, KIND_WORDS };

static inline void philox_round(uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3, uint32_t k0,
                                uint32_t k1)
{
    uint64_t p0 = (uint64_t)*c0 * PHILOX_M0, p1 = (uint64_t)*c2 * PHILOX_M1;
    *c0 = (uint32_t)(p1 >> 32) ^ *c1 ^ k0;
    *c2 = (uint32_t)(p0 >> 32) ^ *c3 ^ k1;
    *c1 = (uint32_t)p1;
    *c3 = (uint32_t)p0;
}

/* word[j][i]: word j of block first + i. */
struct batch {
    uint32_t word[4][BATCH];
};

/*
 * The counter of a block: 40 bits of block number, 52 bits of step, 4 bits of kind, so that draws
 * of two kinds share no words, and 32 bits of stream.
 */
static void set_counters(struct batch *b, const struct random_stream *s, enum kind kind,
                         uint64_t first)
{
    for (uint64_t i = 0; i < BATCH; i++) {
        uint64_t block = first + i;
        b->word[0][i] = (uint32_t)block;
        b->word[1][i] = (uint32_t)(block >> 32 & 0xff) << 24 | (uint32_t)kind << 20 |
                        (uint32_t)(s->step >> 32 & 0xfffff);
        b->word[2][i] = (uint32_t)s->step;
        b->word[3][i] = s->stream;
    }
}

static void draw_batch_plain(struct batch *b, uint64_t seed)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp simd
        for (int i = 0; i < BATCH; i++)
            philox_round(&b->word[0][i], &b->word[1][i], &b->word[2][i], &b->word[3][i], k0, k1);
        k0 += PHILOX_K0;
        k1 += PHILOX_K1;
    }
}

#ifdef __x86_64__
/*
 * Intrinsics, because compilers multiply 64 by 64 bits where the code asks for 32 by 32, which
 * takes three times as long.  The products of the even and of the odd blocks of a vector are
 * computed separately, and their halves put in order again.  Blocks stay in registers through all
 * rounds.
 */
__attribute__((target("avx2"), always_inline)) static inline void
multiply_avx2(__m256i a, uint32_t by, __m256i *high, __m256i *low)
{
    const __m256i f = _mm256_set1_epi32((int)by);
    const __m256i even = _mm256_mul_epu32(a, f);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), f);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

__attribute__((target("avx2"))) static void draw_batch_avx2(struct batch *b, uint64_t seed)
{
    for (int i = 0; i < BATCH; i += 8) {
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        __m256i c[4], h0, h1, l0, l1;
        for (int j = 0; j < 4; j++)
            c[j] = _mm256_loadu_si256((const __m256i *)(const void *)&b->word[j][i]);
        for (int round = 0; round < ROUNDS; round++) {
            multiply_avx2(c[0], PHILOX_M0, &h0, &l0);
            multiply_avx2(c[2], PHILOX_M1, &h1, &l1);
            c[0] = _mm256_xor_si256(_mm256_xor_si256(h1, c[1]), _mm256_set1_epi32((int)k0));
            c[2] = _mm256_xor_si256(_mm256_xor_si256(h0, c[3]), _mm256_set1_epi32((int)k1));
            c[1] = l1, c[3] = l0;
            k0 += PHILOX_K0, k1 += PHILOX_K1;
        }
        for (int j = 0; j < 4; j++)
            _mm256_storeu_si256((__m256i *)(void *)&b->word[j][i], c[j]);
    }
}

__attribute__((target("avx512f"), always_inline)) static inline void
multiply_avx512(__m512i a, uint32_t by, __m512i *high, __m512i *low)
{
    const __m512i f = _mm512_set1_epi32((int)by);
    const __m512i even = _mm512_mul_epu32(a, f);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), f);
    *high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    *low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}

__attribute__((target("avx512f"))) static void draw_batch_avx512(struct batch *b, uint64_t seed)
{
    for (int i = 0; i < BATCH; i += 16) {
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        __m512i c[4], h0, h1, l0, l1;
        for (int j = 0; j < 4; j++)
            c[j] = _mm512_loadu_si512(&b->word[j][i]);
        for (int round = 0; round < ROUNDS; round++) {
            multiply_avx512(c[0], PHILOX_M0, &h0, &l0);
            multiply_avx512(c[2], PHILOX_M1, &h1, &l1);
            c[0] = _mm512_xor_si512(_mm512_xor_si512(h1, c[1]), _mm512_set1_epi32((int)k0));
            c[2] = _mm512_xor_si512(_mm512_xor_si512(h0, c[3]), _mm512_set1_epi32((int)k1));
            c[1] = l1, c[3] = l0;
            k0 += PHILOX_K0, k1 += PHILOX_K1;
        }
        for (int j = 0; j < 4; j++)
            _mm512_storeu_si512(&b->word[j][i], c[j]);
    }
}

/*
 * The words of 64 blocks in order.  Each of four vectors has one word of a block in the low half of
 * a 64-bit lane: the product of two such halves is one instruction, and nothing reads the high
 * halves.  So a round is six instructions for 32 words; putting halves in order again would take
 * thirteen for 64.  The initial order of lanes makes the final unpacking of word pairs give the
 * right order.
 */
__attribute__((target("avx512f"))) static void draw_words_avx512(const struct random_stream *s,
                                                                 uint64_t first, uint32_t *dst)
{
    enum { VECTORS = 4, STEP = 8 * VECTORS }; /* enough to hide the latency of a product */
    const __m512i m0 = _mm512_set1_epi64(PHILOX_M0), m1 = _mm512_set1_epi64(PHILOX_M1);
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const uint32_t fixed = (uint32_t)KIND_WORDS << 20 | (uint32_t)(s->step >> 32 & 0xfffff);
    for (uint64_t i = 0; i < BATCH; i += STEP) {
        uint32_t k0 = (uint32_t)s->seed, k1 = (uint32_t)(s->seed >> 32);
        __m512i c[VECTORS][4];
        for (uint64_t j = 0; j < VECTORS; j++) {
            c[j][0] = _mm512_add_epi64(_mm512_set1_epi64((int64_t)(first + i + 8 * j)), order);
            c[j][1] = _mm512_or_epi64(_mm512_slli_epi64(_mm512_srli_epi64(c[j][0], 32), 24),
                                      _mm512_set1_epi64(fixed));
            c[j][2] = _mm512_set1_epi64((uint32_t)s->step);
            c[j][3] = _mm512_set1_epi64(s->stream);
        }
        for (int round = 0; round < ROUNDS; round++) {
            const __m512i b0 = _mm512_set1_epi64(k0), b1 = _mm512_set1_epi64(k1);
            for (int j = 0; j < VECTORS; j++) {
                const __m512i p0 = _mm512_mul_epu32(c[j][0], m0),
                              p1 = _mm512_mul_epu32(c[j][2], m1);
                const __m512i h0 = _mm512_srli_epi64(p0, 32), h1 = _mm512_srli_epi64(p1, 32);
                c[j][0] = _mm512_ternarylogic_epi64(h1, c[j][1], b0, 0x96); /* xor of all three */
                c[j][2] = _mm512_ternarylogic_epi64(h0, c[j][3], b1, 0x96);
                c[j][1] = p1, c[j][3] = p0;
            }
            k0 += PHILOX_K0, k1 += PHILOX_K1;
        }
        for (int j = 0; j < VECTORS; j++, dst += 32) {
            const __m512i w1 = _mm512_slli_epi64(c[j][1], 32), w3 = _mm512_slli_epi64(c[j][3], 32);
            const __m512i w01 = _mm512_mask_blend_epi32(0xaaaa, c[j][0], w1);
            const __m512i w23 = _mm512_mask_blend_epi32(0xaaaa, c[j][2], w3);
            _mm512_storeu_si512(dst, _mm512_unpacklo_epi64(w01, w23));
            _mm512_storeu_si512(dst + 16, _mm512_unpackhi_epi64(w01, w23));
        }
    }
}
#endif

static void draw_batch(struct batch *b, uint64_t seed)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        draw_batch_avx512(b, seed);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        draw_batch_avx2(b, seed);
        return;
    }
#endif
    draw_batch_plain(b, seed);
}

/* log of u = (w + 1/2) / 2^32, exactly representable and never 0 or 1; relative error 1e-11. */
static inline double log_unit(uint32_t w)
{
    /* 2w + 1 = 2^k m with sqrt(1/2) <= m < sqrt(2); the conversion goes through a signed integer,
     * because every instruction set has that conversion */
    double x = 2.0 * (double)(int32_t)(w ^ 0x80000000u) + 4294967297.0, m;
    uint64_t bits, low = 0x3fe6a09e667f3bcdu;
    memcpy(&bits, &x, sizeof bits);
    uint64_t above = bits - low;
    double k = (double)(int32_t)(above >> 52);
    bits = (above & 0xfffffffffffffu) + low;
    memcpy(&m, &bits, sizeof m);
    /* log m = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s <= 0.172 */
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, p = 1.0 / 13;
    p = p * s2 + 1.0 / 11;
    p = p * s2 + 1.0 / 9;
    p = p * s2 + 1.0 / 7;
    p = p * s2 + 1.0 / 5;
    p = p * s2 + 1.0 / 3;
    p = p * s2 + 1.0;
    return 2.0 * s * p + (k - 33.0) * 0.69314718055994530942;
}

/* Cosine and sine of 2 pi w / 2^32; absolute error 1e-11. */
static inline void turn_unit(uint32_t w, double *cosine, double *sine)
{
    /* the nearest quarter turn, and the remainder: at most an eighth of a turn */
    uint32_t quarter = (w + 0x20000000u) >> 30;
    double a = (double)(int32_t)(w - (quarter << 30)) * 1.4629180792671596e-9, a2 = a * a;
    double s = -1.0 / 39916800, c = 1.0 / 479001600;
    s = s * a2 + 1.0 / 362880;
    s = s * a2 - 1.0 / 5040;
    s = s * a2 + 1.0 / 120;
    s = s * a2 - 1.0 / 6;
    s = s * a2 + 1.0;
    s = s * a;
    c = c * a2 - 1.0 / 3628800;
    c = c * a2 + 1.0 / 40320;
    c = c * a2 - 1.0 / 720;
    c = c * a2 + 1.0 / 24;
    c = c * a2 - 1.0 / 2;
    c = c * a2 + 1.0;
    /* odd quarters swap the two; the signs follow the quadrant */
    double odd = (double)(int32_t)(quarter & 1), even = 1.0 - odd;
    double sign_c = 1.0 - (double)(int32_t)((quarter + 1) & 2);
    double sign_s = 1.0 - (double)(int32_t)(quarter & 2);
    *cosine = sign_c * (even * c + odd * s);
    *sine = sign_s * (even * s + odd * c);
}

CKPT_CLONES static void box_muller(const uint32_t *radius, const uint32_t *angle, float *first,
                                   float *second)
{
#pragma omp simd
    for (int i = 0; i < BATCH; i++) {
        double r = sqrt(-2.0 * log_unit(radius[i])), c, s;
        turn_unit(angle[i], &c, &s);
        first[i] = (float)(r * c);
        second[i] = (float)(r * s);
    }
}

CKPT_CLONES static void to_unit(const uint32_t *word, float *value)
{
#pragma omp simd
    for (int i = 0; i < BATCH; i++)
        value[i] = (float)(int32_t)(word[i] >> 8) * 0x1p-24f;
}

/* Draws the 4 BATCH values from block `first` on, in order. */
static void make_values(const struct random_stream *s, enum kind kind, uint64_t first, float *dst)
{
    struct batch b;
    float value[4][BATCH];
    set_counters(&b, s, kind, first);
    draw_batch(&b, s->seed);
    for (int j = 0; j < 4 && kind == KIND_UNIFORM; j++)
        to_unit(b.word[j], value[j]);
    for (int j = 0; j < 4 && kind == KIND_NORMAL; j += 2)
        box_muller(b.word[j], b.word[j + 1], value[j], value[j + 1]);
    for (int i = 0; i < BATCH; i++)
        for (int j = 0; j < 4; j++)
            dst[4 * i + j] = value[j][i];
}

/* Stores the words block by block. */
CKPT_CLONES static void put_in_order(const struct batch *b, uint32_t *restrict dst)
{
    for (int i = 0; i < BATCH; i++) {
        dst[4 * i] = b->word[0][i];
        dst[4 * i + 1] = b->word[1][i];
        dst[4 * i + 2] = b->word[2][i];
        dst[4 * i + 3] = b->word[3][i];
    }
}

/* Draws the VALUES words from block `first` on. */
static void draw_words(const struct random_stream *s, uint64_t first, uint32_t *dst)
{
    struct batch b;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        draw_words_avx512(s, first, dst);
        return;
    }
#endif
    set_counters(&b, s, KIND_WORDS, first);
    draw_batch(&b, s->seed);
    put_in_order(&b, dst);
}

/* Draws VALUES at a time, from the block that has the first one.  dst is float, or uint32_t for
 * words. */
static void fill(const struct random_stream *s, enum kind kind, int64_t first, void *dst, int64_t n)
{
    union {
        float value[VALUES];
        uint32_t word[VALUES];
    } some;
    int64_t end = first + n;
    for (int64_t at = first / 4 * 4; at < end; at += VALUES) {
        int64_t skip = at < first ? first - at : 0, stop = min_i64(VALUES, end - at);
        bool whole = skip == 0 && stop == VALUES;
        void *to = whole ? (char *)dst + (at - first) * 4 : (char *)&some;
        if (kind == KIND_WORDS)
            draw_words(s, (uint64_t)at / 4, to);
        else
            make_values(s, kind, (uint64_t)at / 4, to);
        if (!whole)
            memcpy((char *)dst + (at + skip - first) * 4, some.word + skip,
                   (size_t)(stop - skip) * 4);
    }
}

void random_words(const struct random_stream *s, int64_t first, uint32_t *dst, int64_t n)
{
    fill(s, KIND_WORDS, first, dst, n);
}

void random_normal(const struct random_stream *s, int64_t first, float *dst, int64_t n)
{
    fill(s, KIND_NORMAL, first, dst, n);
}

void random_uniform(const struct random_stream *s, int64_t first, float *dst, int64_t n)
{
    fill(s, KIND_UNIFORM, first, dst, n);
}

void ckpt_fill_normal(uint64_t seed, uint64_t step, uint32_t stream, float *dst, int64_t n)
{
    if (!dst)
        return;
    random_normal(&(struct random_stream){seed, step, stream}, 0, dst, n);
}

void ckpt_fill_uniform(uint64_t seed, uint64_t step, uint32_t stream, float *dst, int64_t n)
{
    if (!dst)
        return;
    random_uniform(&(struct random_stream){seed, step, stream}, 0, dst, n);
}

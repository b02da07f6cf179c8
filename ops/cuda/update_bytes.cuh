/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update of bf16 weights beside means in 8 bits (core/mean8.h).  What it takes is instructions
 * as much as memory: so a thread has eight elements, draws random words while memory answers, and
 * rounds and encodes without comparisons where no element asks for one.
 */
#ifndef CKPT_CUDA_UPDATE_BYTES_CUH
#define CKPT_CUDA_UPDATE_BYTES_CUH

#include "core/mean8.h"
#include "cuda/update_param.cuh"

/* A thread has 8 elements, 16 bytes of weights; 8 threads have a block of codes. */
#define BYTE_LANES    8
#define BYTE_THREADS  (CHUNK / BYTE_LANES)
#define BLOCK_THREADS (MEAN8_BLOCK / BYTE_LANES)

/* The tops of both means over the threads of a block, in the halves of a word. */
static __device__ __forceinline__ uint32_t max_of_block(uint32_t tops)
{
#pragma unroll
    for (int lane = BLOCK_THREADS / 2; lane > 0; lane /= 2)
        tops = __vmaxu2(tops, __shfl_xor_sync(0xffffffffu, tops, lane));
    return tops;
}

static __device__ __forceinline__ struct mean8 mean8_of(void *memory, int64_t numel, int64_t i)
{
    uint8_t *code = static_cast<uint8_t *>(memory);
    int64_t blocks = (numel + MEAN8_BLOCK - 1) / MEAN8_BLOCK;
    struct mean8 s = {code + i,
                      reinterpret_cast<uint16_t *>(code + blocks * MEAN8_BLOCK) + i / MEAN8_BLOCK};
    return s;
}

/* Byte 3 of each, in order. */
static __device__ __forceinline__ uint32_t high_bytes(uint32_t a, uint32_t b, uint32_t c,
                                                      uint32_t d)
{
    return __byte_perm(__byte_perm(a, b, 0x0073), __byte_perm(c, d, 0x0073), 0x5410);
}

/* What a thread knows of the magnitudes of a mean, as bits: see mean8_bits. */
struct byte_range {
    uint32_t low, high;

    __device__ __forceinline__ byte_range(const float (&x)[BYTE_LANES]) : low(~0u), high(0)
    {
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++) {
            const uint32_t bits = __float_as_uint(x[j]) & 0x7fffffffu;
            low = min(low, bits);
            high = max(high, bits);
        }
    }

    __device__ __forceinline__ uint32_t ceil(void) const
    {
        return mean8_ceil(__uint_as_float(high));
    }

    /* Whether all are numbers, and none is below the smallest of its block. */
    __device__ __forceinline__ bool are_plain(uint32_t base) const
    {
        return low >= (base + 1u) << MEAN8_SHIFT && high <= 0x7f800000u;
    }
};

/*
 * Four codes.  plain: see byte_range.  Then a code is in bits 20 to 27 of bits + 16 noise + 8 -
 * (base << 20), so in byte 3 of 16 times that, where the sign has gone.
 */
static __device__ __forceinline__ uint32_t encode_four(const float *x, const uint32_t *word,
                                                       uint32_t base, bool square, bool plain)
{
    const int of = square ? NOISE_SQUARE : NOISE_MEAN;
    uint32_t code[4], codes = 0;
    if (!plain) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            codes |= mean8_encode(x[j], base, update_noise(word[j], of), square) << 8 * j;
        return codes;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        code[j] =
            __float_as_uint(x[j]) * 16u + (128u - (base << 24)) + (update_noise(word[j], of) << 8);
    codes = high_bytes(code[0], code[1], code[2], code[3]);
    if (!square)
        codes |= high_bytes(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                            __float_as_uint(x[3])) &
                 0x80808080u;
    return codes;
}

/* 8 elements of T as they stand in memory, in vectors, or those n that are there; the others are
 * 0. */
template <bool VECTOR, typename T>
static __device__ __forceinline__ void load_words(uint32_t *x, const T *src, int n)
{
    constexpr int WORDS = BYTE_LANES * (int)sizeof(T) / 4;
#pragma unroll
    for (int k = 0; k < WORDS / 4; k++) {
        const uint4 v = VECTOR ? reinterpret_cast<const uint4 *>(src)[k] : make_uint4(0, 0, 0, 0);
        x[4 * k] = v.x, x[4 * k + 1] = v.y, x[4 * k + 2] = v.z, x[4 * k + 3] = v.w;
    }
#pragma unroll
    for (int j = 0; j < BYTE_LANES; j++)
        if (!VECTOR && j < n)
            x[j * WORDS / BYTE_LANES] |=
                __float_as_uint(to_float(src[j])) >> (WORDS == BYTE_LANES || j % 2 ? 0 : 16);
}

/* The same as floats. */
static __device__ __forceinline__ void halves(float (&x)[BYTE_LANES], const uint32_t *word)
{
#pragma unroll
    for (int j = 0; j < BYTE_LANES; j++)
        x[j] = __uint_as_float(j % 2 ? word[j / 2] & 0xffff0000u : word[j / 2] << 16);
}

static __device__ __forceinline__ void floats(float (&x)[BYTE_LANES], const uint32_t *word)
{
#pragma unroll
    for (int j = 0; j < BYTE_LANES; j++)
        x[j] = __uint_as_float(word[j]);
}

/* 8 codes and the top of their block, which is whole, so they are there where one element is. */
struct byte_codes {
    uint2 code;
    uint32_t top;

    __device__ __forceinline__ void load(void *memory, int64_t numel, int64_t i, int n)
    {
        const struct mean8 s = mean8_of(memory, numel, i);
        code = n > 0 ? *reinterpret_cast<const uint2 *>(s.code) : make_uint2(0, 0);
        top = n > 0 ? *s.top : 0u;
    }

    __device__ __forceinline__ void decode(float (&x)[BYTE_LANES], bool square) const
    {
        const uint32_t base = mean8_base(top >> MEAN8_TOP, square);
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++)
            x[j] = mean8_decode((j < 4 ? code.x : code.y) >> 8 * (j % 4) & 255u, base, square);
    }
};

/* What a thread reads: nothing of it is looked at before the random words are drawn, so that these
 * take the time that memory does. */
template <int KIND, bool EMA> struct byte_operands {
    uint32_t w[BYTE_LANES / 2], g[BYTE_LANES], ema[BYTE_LANES];
    struct byte_codes m, v;

    template <bool VECTOR>
    __device__ __forceinline__ void load_as(const struct update_param &p, int64_t i, int n)
    {
        if (p.half)
            load_words<VECTOR>(g, static_cast<const bf16 *>(p.g) + i, n);
        else
            load_words<VECTOR>(g, static_cast<const float *>(p.g) + i, n);
        load_words<VECTOR>(w, static_cast<const bf16 *>(p.w) + i, n);
        if (EMA)
            load_words<VECTOR>(ema, p.ema + i, n);
        m.load(p.m, p.numel, i, n);
        if (KIND == UPDATE_ADAMW)
            v.load(p.v, p.numel, i, n);
    }

    __device__ __forceinline__ void load(const struct update_param &p, int64_t i, int n)
    {
        if (p.vectors && n == BYTE_LANES)
            load_as<true>(p, i, BYTE_LANES);
        else
            load_as<false>(p, i, n);
    }
};

/* Elements i .. i + 7, of which n are there (0 to 8); those that are not count as 0.  The kind has
 * a first mean: without one nothing is in 8 bits. */
template <int KIND, bool EMA> struct byte_lanes {
    static constexpr bool SQUARE = KIND == UPDATE_ADAMW;
    float w[BYTE_LANES], m[BYTE_LANES], v[BYTE_LANES], g[BYTE_LANES], ema[BYTE_LANES];
    uint32_t word[BYTE_LANES];

    __device__ __forceinline__ void decode(const struct byte_operands<KIND, EMA> &from, bool half)
    {
        if (half)
            halves(g, from.g);
        else
            floats(g, from.g);
        halves(w, from.w);
        from.m.decode(m, false);
        if (SQUARE)
            from.v.decode(v, true);
        if (EMA)
            floats(ema, from.ema);
    }

    template <typename T>
    static __device__ __forceinline__ void store_some(T *dst, const float (&x)[BYTE_LANES], int n,
                                                      bool vector)
    {
        constexpr int N = wide<T>::n;
#pragma unroll
        for (int k = 0; k < BYTE_LANES; k += N) {
            float part[N];
#pragma unroll
            for (int j = 0; j < N; j++)
                part[j] = x[k + j];
            if (vector)
                store_floats(dst + k, part);
#pragma unroll
            for (int j = 0; j < N; j++)
                if (!vector && k + j < n)
                    dst[k + j] = from_float<T>(part[j]);
        }
    }

    __device__ __forceinline__ void store_mean(const float (&x)[BYTE_LANES], uint32_t top,
                                               const struct byte_range &range, void *memory,
                                               int64_t numel, int64_t i, bool square) const
    {
        const struct mean8 s = mean8_of(memory, numel, i);
        const uint32_t base = mean8_base(top, square);
        const bool plain = range.are_plain(base);
        *reinterpret_cast<uint2 *>(s.code) =
            make_uint2(encode_four(x, word, base, square, plain),
                       encode_four(x + 4, word + 4, base, square, plain));
        if (i % MEAN8_BLOCK == 0)
            *s.top = (uint16_t)(top << MEAN8_TOP);
    }

    /* i is a multiple of 8, and parts of parameters in 8 bits begin at multiples of a block. */
    __device__ __forceinline__ void draw_all(const struct rounding &r, int k, int64_t i,
                                             const struct ckpt_run *run)
    {
        const struct rounding_part &part = part_at(r, k, i);
        const int64_t at = (i - part.first) / 4;
#pragma unroll
        for (int q = 0; q < BYTE_LANES / 4; q++) {
            const uint4 d = philox(philox_counter(PHILOX_WORDS, at + q, (uint64_t)run->opt_step, 0),
                                   run->seed ^ part.name);
            word[4 * q] = d.x, word[4 * q + 1] = d.y;
            word[4 * q + 2] = d.z, word[4 * q + 3] = d.w;
        }
    }

    /* 0 times a sum tells whether all are finite, without a comparison for each. */
    static __device__ __forceinline__ bool are_finite(const float (&x)[BYTE_LANES])
    {
        float sum = 0.f;
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++)
            sum = __fmaf_rn(x[j], 0.f, sum);
        return sum == 0.f;
    }

    /* A finite number is rounded without looking at it; NaN becomes the one that bf16 has. */
    __device__ __forceinline__ void round_weights(bool numbers)
    {
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++) {
            const uint32_t noise = update_noise(word[j], NOISE_VALUE);
            w[j] = numbers ? __uint_as_float((__float_as_uint(w[j]) + noise) & 0xffff0000u)
                           : to_float(from_float<bf16>(update_round(w[j], noise)));
        }
    }

    __device__ __forceinline__ void update(const struct update_constants &c, int n,
                                           const struct ckpt_run *run)
    {
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++) {
            w[j] = update_weight((enum update_kind)KIND, &c, g[j], w[j], &m[j], &v[j]);
            if (j >= n)
                w[j] = m[j] = v[j] = 0.f;
        }
        const bool numbers = are_finite(w);
        round_weights(numbers);
        if (!are_finite(w) && run->halt)
            *run->halt = HALT_UPDATE + (int32_t)(run->opt_step & 1);
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++)
            if (EMA)
                ema[j] = update_ema(&c, ema[j], w[j]);
    }

    /* Every thread of a warp is here, for the tops. */
    __device__ __forceinline__ void store(const struct update_param &p, int64_t i, int n) const
    {
        const bool vector = p.vectors && n == BYTE_LANES;
        const struct byte_range first(m), second(v);
        const uint32_t tops = max_of_block(first.ceil() | (SQUARE ? second.ceil() << 16 : 0u));
        if (n <= 0)
            return;
        store_some(static_cast<bf16 *>(p.w) + i, w, n, vector);
        if (EMA)
            store_some(p.ema + i, ema, n, vector);
        store_mean(m, tops & 0xffffu, first, p.m, p.numel, i, false);
        if (SQUARE)
            store_mean(v, tops >> 16, second, p.v, p.numel, i, true);
    }
};

/* As update: a thread block takes a chunk, which is whole blocks of codes. */
template <int KIND, bool EMA>
static __global__ void __launch_bounds__(BYTE_THREADS, 6)
    update_bytes(const __grid_constant__ struct update_all all, struct update_constants c,
                 const __grid_constant__ struct update_attr attr,
                 const __grid_constant__ struct rounding rounding, const float *clip,
                 const struct ckpt_run *run)
{
    const int k = param_of(all, blockIdx.x);
    const struct update_param &p = all.of[k];
    const int64_t i = (int64_t)(blockIdx.x - p.first) * CHUNK + BYTE_LANES * (int64_t)threadIdx.x;
    const int n = (int)max((int64_t)0, min((int64_t)BYTE_LANES, p.numel - i));
    struct byte_operands<KIND, EMA> operands;
    struct byte_lanes<KIND, EMA> x;
    operands.load(p, i, n);
    if (!isfinite(clip[CLIP_NORM]))
        return;
    update_begin(&c, &attr, clip, run->lr, run->opt_step);
    x.draw_all(rounding, k, i, run);
    x.decode(operands, p.half);
    x.update(c, n, run);
    x.store(p, i, n);
}

#endif

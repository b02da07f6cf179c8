/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update of bf16 weights beside means in 8 bits (core/mean8.h).  Instructions and
 * latency cost as much as memory: so a thread has eight elements at a time, operands of the next
 * chunk are on their way meanwhile, and it divides, rounds and encodes without comparisons where no
 * element asks for one.  Fewer instructions alone do not help: see doc/bench/h200.md.
 */
#ifndef CKPT_CUDA_UPDATE_BYTES_CUH
#define CKPT_CUDA_UPDATE_BYTES_CUH

#include "core/mean8.h"
#include "kernels/cuda/update_param.cuh"

/* A thread has 8 elements, 16 bytes of weights; 8 threads have a block of codes. */
#define BYTE_LANES    8
#define BYTE_THREADS  (CHUNK / BYTE_LANES)
#define BLOCK_THREADS (MEAN8_BLOCK / BYTE_LANES)

#define BYTE_TURNS 3 /* chunks that a thread block takes in turn */

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

/* The smaller and the larger one of two magnitudes; NaN where one is NaN. */
static __device__ __forceinline__ float smaller_magnitude(float a, float b)
{
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(fabsf(a)), "f"(fabsf(b)));
    return a;
}

static __device__ __forceinline__ float larger_magnitude(float a, float b)
{
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(fabsf(a)), "f"(fabsf(b)));
    return a;
}

/* The smallest and the largest magnitude of a thread's means. */
struct byte_range {
    float low, high;

    __device__ __forceinline__ void find(const float (&x)[BYTE_LANES])
    {
        low = high = fabsf(x[0]);
#pragma unroll
        for (int j = 1; j < BYTE_LANES; j++) {
            low = smaller_magnitude(low, x[j]);
            high = larger_magnitude(high, x[j]);
        }
    }

    __device__ __forceinline__ uint32_t ceil(void) const
    {
        return mean8_ceil(high);
    }

    /* Whether all are numbers, and none is below the smallest of its block. */
    __device__ __forceinline__ bool are_plain(uint32_t base) const
    {
        return __float_as_uint(low) >= (base + 1u) << MEAN8_SHIFT &&
               __float_as_uint(high) <= 0x7f800000u;
    }

    __device__ __forceinline__ bool within(float least, float most) const
    {
        return low >= least && high <= most;
    }
};

/*
 * The root and the quotient that __fsqrt_rn and __fdiv_rn give, by the same steps but without their
 * look at the operands: exact for roots of 2^-100 to 2^100, and for quotients of two magnitudes of
 * 2^-50 to 2^50.
 */
static __device__ __forceinline__ float plain_root(float a)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
    const float root = __fmul_rn(a, y);
    return __fmaf_rn(__fmaf_rn(-root, root, a), __fmul_rn(y, 0.5f), root);
}

static __device__ __forceinline__ float plain_quotient(float a, float b)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b));
    y = __fmaf_rn(y, __fmaf_rn(-b, y, 1.f), y);
    const float quotient = __fmul_rn(a, y);
    return __fmaf_rn(y, __fmaf_rn(-b, quotient, a), quotient);
}

/* 16 bits of each random word (update_noise) in the middle of a word: of means, of squares. */
static __device__ __forceinline__ uint32_t noise_between(uint32_t word, bool square)
{
    const uint32_t low = __byte_perm(word, 0, 0x4104);
    return square ? low ^ __byte_perm(word, 0, 0x4324) : low;
}

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
            __float_as_uint(x[j]) * 16u + (128u - (base << 24)) + noise_between(word[j], square);
    codes = high_bytes(code[0], code[1], code[2], code[3]);
    if (!square)
        codes |= high_bytes(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                            __float_as_uint(x[3])) &
                 0x80808080u;
    return codes;
}

/* 8 elements of T as they stand in memory, in vectors, or those n that are there; the others are
 * 0. */
template <bool WHOLE, typename T>
static __device__ __forceinline__ void load_words(uint32_t *x, const T *src, int n)
{
    constexpr int WORDS = BYTE_LANES * (int)sizeof(T) / 4;
#pragma unroll
    for (int k = 0; k < WORDS / 4; k++) {
        const uint4 v = WHOLE ? reinterpret_cast<const uint4 *>(src)[k] : make_uint4(0, 0, 0, 0);
        x[4 * k] = v.x, x[4 * k + 1] = v.y, x[4 * k + 2] = v.z, x[4 * k + 3] = v.w;
    }
#pragma unroll
    for (int j = 0; j < BYTE_LANES; j++)
        if (!WHOLE && j < n)
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

/* A part of a parameter (struct rounding_part), and where it ends. */
struct byte_part {
    uint64_t name;
    int64_t first, end;

    __device__ __forceinline__ void find(const struct rounding &r, int k, int64_t i)
    {
        const struct rounding_part *part = &part_at(r, k, i);
        const bool last = part + 1 == r.part + r.begin[k + 1];
        name = part->name;
        first = part->first;
        end = last ? INT64_MAX : part[1].first;
    }
};

/* 8 codes and the top of their block, which is whole, so they are there where one element is. */
struct byte_codes {
    uint2 code;
    uint32_t top;

    template <bool WHOLE>
    __device__ __forceinline__ void load(void *memory, int64_t numel, int64_t i, int n)
    {
        const struct mean8 s = mean8_of(memory, numel, i);
        code = WHOLE || n > 0 ? *reinterpret_cast<const uint2 *>(s.code) : make_uint2(0, 0);
        top = WHOLE || n > 0 ? *s.top : 0u;
    }

    /* Not 0 where a magnitude is 0. */
    __device__ __forceinline__ uint32_t zeros(bool square) const
    {
        const uint32_t ones = 0x01010101u, x = square ? code.x : code.x & 0x7f7f7f7fu;
        const uint32_t y = square ? code.y : code.y & 0x7f7f7f7fu;
        return ((x - ones & ~x) | (y - ones & ~y)) & 0x80808080u;
    }

    /* plain: no magnitude is 0. */
    __device__ __forceinline__ void decode(float (&x)[BYTE_LANES], bool square, bool plain) const
    {
        const uint32_t base = mean8_base(top >> MEAN8_TOP, square);
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++) {
            const uint32_t four = j < 4 ? code.x : code.y;
            const uint32_t high = __byte_perm(square ? four : four & 0x7f7f7f7fu, 0,
                                              0x4044 | j % 4 << 8); /* in bits 16 to 23 */
            const uint32_t sign = square ? 0u : four << 8 * (3 - j % 4) & 0x80000000u;
            x[j] = plain ? __uint_as_float((high * 16u + (base << MEAN8_SHIFT)) | sign)
                         : mean8_decode(four >> 8 * (j % 4) & 255u, base, square);
        }
    }
};

/* The operands of a thread, as they stand in memory. */
template <int KIND, bool EMA> struct byte_operands {
    uint32_t w[BYTE_LANES / 2], g[BYTE_LANES], ema[BYTE_LANES];
    struct byte_codes m, v;

    template <bool WHOLE>
    __device__ __forceinline__ void load(const struct update_param &p, int64_t i, int n)
    {
        if (p.half)
            load_words<WHOLE>(g, static_cast<const bf16 *>(p.g) + i, n);
        else
            load_words<WHOLE>(g, static_cast<const float *>(p.g) + i, n);
        load_words<WHOLE>(w, static_cast<const bf16 *>(p.w) + i, n);
        if (EMA)
            load_words<WHOLE>(ema, p.ema + i, n);
        m.template load<WHOLE>(p.m, p.numel, i, n);
        if (KIND == UPDATE_ADAMW)
            v.template load<WHOLE>(p.v, p.numel, i, n);
    }
};

/* Elements i .. i + 7, of which n are there (0 to 8), or WHOLE: all, at good addresses; missing
 * ones count as 0.  The kind has a first mean: without one nothing is in 8 bits. */
template <int KIND, bool EMA, bool WHOLE> struct byte_lanes {
    static constexpr bool SQUARE = KIND == UPDATE_ADAMW;
    float w[BYTE_LANES], m[BYTE_LANES], v[BYTE_LANES], g[BYTE_LANES], ema[BYTE_LANES];
    uint32_t word[BYTE_LANES], narrow[BYTE_LANES]; /* the new weight is in the high half */
    struct byte_range first, second;               /* of the new m and v */

    __device__ __forceinline__ void decode(const struct byte_operands<KIND, EMA> &from, bool half,
                                           int n)
    {
        const uint32_t zeros = from.m.zeros(false) | (SQUARE ? from.v.zeros(true) : 0u);
        if (half)
            halves(g, from.g);
        else
            floats(g, from.g);
        halves(w, from.w);
        if (zeros == 0) {
            from.m.decode(m, false, true);
            if (SQUARE)
                from.v.decode(v, true, true);
        } else {
            from.m.decode(m, false, false);
            if (SQUARE)
                from.v.decode(v, true, false);
        }
        if (EMA)
            floats(ema, from.ema);
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++)
            if (!WHOLE && j >= n)
                m[j] = v[j] = 0.f;
    }

    __device__ __forceinline__ void store_ema(float *dst, int n) const
    {
#pragma unroll
        for (int k = 0; k < BYTE_LANES; k += 4)
            if (WHOLE)
                *reinterpret_cast<float4 *>(dst + k) =
                    make_float4(ema[k], ema[k + 1], ema[k + 2], ema[k + 3]);
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++)
            if (!WHOLE && j < n)
                dst[j] = ema[j];
    }

    __device__ __forceinline__ void store_weights(uint16_t *dst, int n) const
    {
        if (WHOLE)
            *reinterpret_cast<uint4 *>(dst) = make_uint4(__byte_perm(narrow[0], narrow[1], 0x7632),
                                                         __byte_perm(narrow[2], narrow[3], 0x7632),
                                                         __byte_perm(narrow[4], narrow[5], 0x7632),
                                                         __byte_perm(narrow[6], narrow[7], 0x7632));
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++)
            if (!WHOLE && j < n)
                dst[j] = (uint16_t)(narrow[j] >> 16);
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
    __device__ __forceinline__ void draw_all(const struct byte_part &part, int64_t i,
                                             const struct ckpt_run *run)
    {
        const int64_t at = (int64_t)((uint64_t)(i - part.first) / 4);
#pragma unroll
        for (int q = 0; q < BYTE_LANES / 4; q++) {
            const uint4 d = philox(philox_counter(PHILOX_WORDS, at + q, (uint64_t)run->opt_step, 0),
                                   run->seed ^ part.name);
            word[4 * q] = d.x, word[4 * q + 1] = d.y;
            word[4 * q + 2] = d.z, word[4 * q + 3] = d.w;
        }
    }

    /* Clips gradients, without comparisons where there is no bound. */
    __device__ __forceinline__ void clip(const struct update_constants &c)
    {
        if (c.limit < INFINITY) {
#pragma unroll
            for (int j = 0; j < BYTE_LANES; j++)
                g[j] = update_gradient(&c, g[j]);
        } else {
#pragma unroll
            for (int j = 0; j < BYTE_LANES; j++)
                g[j] = UPDATE_MUL(g[j], c.clip);
        }
    }

    /* AdamW as update_adamw has it, in two halves: the means, and what follows from them. */
    __device__ __forceinline__ void adamw_means(const struct update_constants &c)
    {
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++) {
            m[j] = UPDATE_ADD(UPDATE_MUL(c.beta1, m[j]), UPDATE_MUL(c.new1, g[j]));
            v[j] =
                UPDATE_ADD(UPDATE_MUL(c.beta2, v[j]), UPDATE_MUL(UPDATE_MUL(c.new2, g[j]), g[j]));
        }
    }

    template <bool PLAIN>
    __device__ __forceinline__ void adamw_weights(const struct update_constants &c)
    {
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++) {
            const float mean = UPDATE_MUL(m[j], c.unbias1), square = UPDATE_MUL(v[j], c.unbias2);
            const float root = UPDATE_ADD(PLAIN ? plain_root(square) : UPDATE_SQRT(square), c.eps);
            const float change = PLAIN ? plain_quotient(mean, root) : UPDATE_DIV(mean, root);
            w[j] = UPDATE_SUB(
                w[j], UPDATE_MUL(c.lr, UPDATE_ADD(change, UPDATE_MUL(c.weight_decay, w[j]))));
        }
    }

    /* Corrections are at least 1.  Where they are no more than 2^20, plain_root and plain_quotient
     * are exact in these ranges. */
    __device__ __forceinline__ void adamw(const struct update_constants &c)
    {
        const bool usual =
            c.eps >= 0.f && c.eps <= 1.f && c.unbias1 <= 0x1p+20f && c.unbias2 <= 0x1p+20f;
        adamw_means(c);
        first.find(m);
        second.find(v);
        if (usual && first.within(0x1p-50f, 0x1p+30f) && second.within(0x1p-99f, 0x1p+70f))
            adamw_weights<true>(c);
        else
            adamw_weights<false>(c);
    }

    __device__ __forceinline__ void update(const struct update_constants &c)
    {
        clip(c);
        if (KIND == UPDATE_ADAMW) {
            adamw(c);
            return;
        }
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++)
            w[j] = KIND == UPDATE_LION ? update_lion(&c, g[j], w[j], &m[j])
                                       : update_sgd(&c, g[j], w[j], &m[j]);
        first.find(m);
    }

    /* Numbers that cannot become infinite are rounded without looking at each; NaN becomes the one
     * that bf16 has. */
    __device__ __forceinline__ void round_weights(const struct ckpt_run *run)
    {
        float most = w[0];
#pragma unroll
        for (int j = 1; j < BYTE_LANES; j++)
            most = larger_magnitude(most, w[j]);
        if (fabsf(most) < 0x1.fep+127f) {
#pragma unroll
            for (int j = 0; j < BYTE_LANES; j++)
                narrow[j] = __float_as_uint(w[j]) + update_noise(word[j], NOISE_VALUE);
            return;
        }
        bool finite = true;
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++) {
            w[j] =
                to_float(from_float<bf16>(update_round(w[j], update_noise(word[j], NOISE_VALUE))));
            narrow[j] = __float_as_uint(w[j]);
            finite = finite && isfinite(w[j]);
        }
        if (!finite && run->halt)
            *run->halt = HALT_UPDATE + (int32_t)(run->opt_step & 1);
    }

    __device__ __forceinline__ void finish(const struct update_constants &c, int n,
                                           const struct ckpt_run *run)
    {
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++)
            w[j] = WHOLE || j < n ? w[j] : 0.f;
        round_weights(run);
#pragma unroll
        for (int j = 0; j < BYTE_LANES; j++)
            if (EMA)
                ema[j] = update_ema(&c, ema[j], __uint_as_float(narrow[j] & 0xffff0000u));
    }

    /* Every thread of a warp is here, for the tops. */
    __device__ __forceinline__ void store(const struct update_param &p, int64_t i, int n) const
    {
        const uint32_t tops = max_of_block(first.ceil() | (SQUARE ? second.ceil() << 16 : 0u));
        if (!WHOLE && n <= 0)
            return;
        store_weights(static_cast<uint16_t *>(p.w) + i, n);
        if (EMA)
            store_ema(p.ema + i, n);
        store_mean(m, tops & 0xffffu, first, p.m, p.numel, i, false);
        if (SQUARE)
            store_mean(v, tops >> 16, second, p.v, p.numel, i, true);
    }
};

/* A chunk from element `begin` on, whose operands are there where it is WHOLE.  Operands of the
 * next chunk, if that is whole too, load meanwhile.  Returns whether they do. */
template <int KIND, bool EMA, bool WHOLE>
static __device__ __forceinline__ bool
update_chunk(const struct update_param &p, const struct update_constants &c,
             const struct rounding &rounding, int k, int64_t begin, int64_t end,
             struct byte_operands<KIND, EMA> &operands, struct byte_part &part,
             const struct ckpt_run *run)
{
    const int64_t i = begin + BYTE_LANES * threadIdx.x;
    const int n = WHOLE ? BYTE_LANES : (int)max((int64_t)0, min((int64_t)BYTE_LANES, p.numel - i));
    const bool more = WHOLE && end - begin >= 2 * CHUNK;
    struct byte_lanes<KIND, EMA, WHOLE> x;
    if (!WHOLE)
        operands.template load<false>(p, i, n);
    if (i >= part.end)
        part.find(rounding, k, i);
    x.draw_all(part, i, run);
    x.decode(operands, p.half, n);
    if (more)
        operands.template load<true>(p, i + CHUNK, BYTE_LANES);
    x.update(c);
    x.finish(c, n, run);
    x.store(p, i, n);
    return more;
}

/* As update: a thread block takes BYTE_TURNS chunks, which are whole blocks of codes. */
template <int KIND, bool EMA>
static __global__ void __launch_bounds__(BYTE_THREADS, 5)
    update_bytes(const __grid_constant__ struct update_all all, struct update_constants c,
                 const __grid_constant__ struct update_attr attr,
                 const __grid_constant__ struct rounding rounding, const float *clip,
                 const struct ckpt_run *run)
{
    const int k = param_of(all, blockIdx.x);
    const struct update_param &p = all.of[k];
    int64_t begin = (int64_t)(blockIdx.x - p.first) * BYTE_TURNS * CHUNK;
    const int64_t end = min(begin + BYTE_TURNS * CHUNK, p.numel);
    bool whole = p.vectors && end - begin >= CHUNK;
    struct byte_operands<KIND, EMA> operands;
    struct byte_part part = {0, 0, INT64_MIN};
    if (whole)
        operands.template load<true>(p, begin + BYTE_LANES * threadIdx.x, BYTE_LANES);
    if (!isfinite(clip[CLIP_NORM]))
        return;
    update_begin(&c, &attr, clip, run->lr, run->opt_step);
    for (; begin < end; begin += CHUNK)
        if (whole)
            whole =
                update_chunk<KIND, EMA, true>(p, c, rounding, k, begin, end, operands, part, run);
        else
            update_chunk<KIND, EMA, false>(p, c, rounding, k, begin, end, operands, part, run);
}

#endif

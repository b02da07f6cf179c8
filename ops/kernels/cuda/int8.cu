/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts bf16 values to 8-bit codes in blocks of 128, and back, in one pass.  A thread handles
 * pieces of 8 values: 16 bytes of bf16, 8 of codes. 16 adjacent lanes share a block and find its
 * largest magnitude by shuffles.  The results have the same bits as on the CPU: no product is fused
 * with a sum, and division is IEEE.
 */
#include "core/int8.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/kernels.h"
#include "int8.h"

namespace
{

enum {
    THREADS = 256,
    VALUES = 8,                  /* of a piece */
    LANES = INT8_BLOCK / VALUES, /* lanes that share a block */
    PIECES = 4,                  /* pieces of a thread, all loaded before the first is used */
    STRIDE = THREADS * VALUES,   /* values between the pieces of a thread */
    CHUNK = STRIDE * PIECES      /* values of a thread block */
};

struct packed {
    int64_t n, blocks;
    uint8_t *code;
    uint16_t *scale;
};

packed packed_at(void *memory, int64_t n)
{
    packed p = {n, int8_blocks(n), static_cast<uint8_t *>(memory), nullptr};
    p.scale = reinterpret_cast<uint16_t *>(p.code + p.blocks * INT8_BLOCK);
    return p;
}

/* Loads two bf16 per word; zeros past the last value. */
__device__ __forceinline__ uint4 load_piece(const uint16_t *x, int64_t at, int64_t n)
{
    if (at + VALUES <= n)
        return *reinterpret_cast<const uint4 *>(x + at);
    uint32_t w[4] = {};
    for (int k = 0; k < VALUES && at + k < n; k++)
        w[k / 2] |= (uint32_t)x[at + k] << 16 * (k % 2);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* The largest magnitude of a block, as the bits of a bf16, in each of its lanes. */
__device__ __forceinline__ uint32_t largest_of_block(const uint4 &v)
{
    const uint32_t magnitude = 0x7fff7fffu;
    uint32_t a = __vmaxu2(__vmaxu2(v.x & magnitude, v.y & magnitude),
                          __vmaxu2(v.z & magnitude, v.w & magnitude));
    a = max(a & 0xffffu, a >> 16);
#pragma unroll
    for (int offset = LANES / 2; offset; offset >>= 1)
        a = max(a, __shfl_xor_sync(0xffffffffu, a, offset));
    return a;
}

/* The codes of two values, in the low bytes. */
__device__ __forceinline__ uint32_t encode_pair(uint32_t w, float inverse)
{
    const int low = __float2int_rn(__fmul_rn(__uint_as_float(w << 16), inverse));
    const int high = __float2int_rn(__fmul_rn(__uint_as_float(w & 0xffff0000u), inverse));
    return ((uint32_t)low & 0xffu) | ((uint32_t)high & 0xffu) << 8;
}

__device__ __forceinline__ uint2 encode_piece(const uint4 &v, float inverse)
{
    return make_uint2(encode_pair(v.x, inverse) | encode_pair(v.y, inverse) << 16,
                      encode_pair(v.z, inverse) | encode_pair(v.w, inverse) << 16);
}

__global__ void __launch_bounds__(THREADS) encode(const uint16_t *x, const packed p)
{
    const int64_t first = (int64_t)blockIdx.x * CHUNK + threadIdx.x * VALUES;
    const int64_t end = p.blocks * INT8_BLOCK;
    uint4 v[PIECES];
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        v[k] = load_piece(x, first + k * STRIDE, p.n);
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const int64_t at = first + k * STRIDE;
        const uint32_t scale = int8_scale(largest_of_block(v[k]));
        const bool has = int8_has_codes(scale);
        const float inverse = __fdiv_rn(1.f, __uint_as_float(scale << 16));
        if (at >= end)
            continue;
        *reinterpret_cast<uint2 *>(p.code + at) =
            has ? encode_piece(v[k], inverse) : make_uint2(0, 0);
        if (threadIdx.x % LANES == 0)
            p.scale[at / INT8_BLOCK] = (uint16_t)scale;
        if (at + VALUES == end && p.blocks % 2)
            p.scale[p.blocks] = 0; /* the unused half of the last word */
    }
}

/* Decodes bytes 2 k and 2 k + 1 to two bf16. */
__device__ __forceinline__ uint32_t decode_pair(uint32_t codes, int k, float scale, bool nan)
{
    const int low = (int)(codes << (24 - 16 * k)) >> 24, high = (int)(codes << (16 - 16 * k)) >> 24;
    const uint32_t a = int8_to_bf16(__fmul_rn((float)low, scale));
    const uint32_t b = int8_to_bf16(__fmul_rn((float)high, scale));
    return nan ? INT8_NAN * 0x10001u : a | b << 16;
}

__device__ __forceinline__ void store_piece(uint16_t *x, int64_t at, int64_t n, const uint4 &v)
{
    if (at + VALUES <= n) {
        *reinterpret_cast<uint4 *>(x + at) = v;
        return;
    }
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    for (int k = 0; k < VALUES && at + k < n; k++)
        x[at + k] = (uint16_t)(w[k / 2] >> 16 * (k % 2));
}

__global__ void __launch_bounds__(THREADS) decode(const packed p, uint16_t *x)
{
    const int64_t first = (int64_t)blockIdx.x * CHUNK + threadIdx.x * VALUES;
    uint2 code[PIECES];
    uint32_t scale[PIECES];
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const int64_t at = first + k * STRIDE;
        code[k] = at < p.n ? *reinterpret_cast<const uint2 *>(p.code + at) : make_uint2(0, 0);
        scale[k] = at < p.n ? p.scale[at / INT8_BLOCK] : 0;
    }
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const float s = __uint_as_float(scale[k] << 16);
        const bool nan = scale[k] == INT8_NAN;
        const uint2 c = code[k];
        store_piece(x, first + k * STRIDE, p.n,
                    make_uint4(decode_pair(c.x, 0, s, nan), decode_pair(c.x, 1, s, nan),
                               decode_pair(c.y, 0, s, nan), decode_pair(c.y, 1, s, nan)));
    }
}

unsigned grid_of(const packed &p)
{
    return (unsigned)((p.blocks * INT8_BLOCK + CHUNK - 1) / CHUNK);
}

} // namespace

int cuda_to_int8(const struct ckpt_kernel_args *a)
{
    const packed p = packed_at(a->out[0].data, desc_numel(&a->in[0].desc));
    encode<<<grid_of(p), THREADS, 0, stream_of(a)>>>(static_cast<const uint16_t *>(a->in[0].data),
                                                     p);
    return launched();
}

int cuda_from_int8(const struct ckpt_kernel_args *a)
{
    const packed p = packed_at(a->in[0].data, desc_numel(&a->out[0].desc));
    decode<<<grid_of(p), THREADS, 0, stream_of(a)>>>(p, static_cast<uint16_t *>(a->out[0].data));
    return launched();
}

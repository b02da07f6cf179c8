/* SPDX-License-Identifier: Apache-2.0 */
/* Philox on the device: the same random words as runtime/core/random.c, which defines the
 * counter. */
#ifndef CKPT_CUDA_PHILOX_CUH
#define CKPT_CUDA_PHILOX_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#define PHILOX_ROUNDS 10

/* The kind of a draw, a field of the counter. */
#define PHILOX_NORMAL 1u
#define PHILOX_WORDS  2u

static __device__ __forceinline__ uint4 philox_counter(uint32_t kind, int64_t block, uint64_t step,
                                                       uint32_t stream)
{
    uint32_t high =
        (uint32_t)(block >> 32 & 0xff) << 24 | kind << 20 | (uint32_t)(step >> 32 & 0xfffff);
    return make_uint4((uint32_t)block, high, (uint32_t)step, stream);
}

static __device__ __forceinline__ uint4 philox(uint4 c, uint64_t seed)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint32_t h0 = __umulhi(c.x, 0xd2511f53u), l0 = c.x * 0xd2511f53u;
        uint32_t h1 = __umulhi(c.z, 0xcd9e8d57u), l1 = c.z * 0xcd9e8d57u;
        c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c;
}

#endif

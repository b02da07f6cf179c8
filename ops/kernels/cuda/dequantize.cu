/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel of dequantize.  A thread decodes GROUPS vectors of 8 elements, which lie a block's width
 * apart, and stores each with 16-byte writes (bf16).  It loads the codes of all groups before it
 * decodes the first.  The 16 values of NF4 are in shared memory, in different banks.
 */
#include "attr.h"
#include "core/frozen.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/kernels.h"

namespace
{

enum { THREADS = 256, VECTOR = 8, GROUPS = 4, NF4_CODES = 16 };

/* The word that holds the codes of VECTOR elements. */
template <int FORMAT> struct codes_of;
template <> struct codes_of<FROZEN_INT8> {
    typedef uint2 type;
};
template <> struct codes_of<FROZEN_NF4> {
    typedef uint32_t type;
};

__device__ __forceinline__ void decode(float (&x)[VECTOR], uint2 code, float s, const float *)
{
    const float factor = s * FROZEN_INT8_FACTOR;
#pragma unroll
    for (int k = 0; k < VECTOR; k++) {
        const uint32_t word = k < 4 ? code.x : code.y;
        x[k] = (float)(int8_t)(word >> k % 4 * 8) * factor;
    }
}

/* The first of two elements is in the high half of their byte. */
__device__ __forceinline__ void decode(float (&x)[VECTOR], uint32_t code, float s,
                                       const float *value)
{
#pragma unroll
    for (int k = 0; k < VECTOR; k++)
        x[k] = value[code >> (k / 2 * 8 + (k % 2 ? 0 : 4)) & 15u] * s;
}

template <typename T, int FORMAT>
__global__ void __launch_bounds__(THREADS)
    dequantize(const uint8_t *codes, const bf16 *scales, int64_t n, T *out)
{
    typedef typename codes_of<FORMAT>::type word;
    constexpr float table[NF4_CODES] = NF4_VALUES;
    __shared__ float value[NF4_CODES];
    word code[GROUPS];
    float s[GROUPS];
    const int64_t first = (int64_t)blockIdx.x * GROUPS * THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < NF4_CODES; i++)
        if (FORMAT == FROZEN_NF4 && threadIdx.x == i)
            value[i] = table[i];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const int64_t group = first + g * THREADS;
        if (group * VECTOR < n) {
            code[g] = __ldcs(reinterpret_cast<const word *>(codes) + group);
            s[g] = to_float(scales[group / (FROZEN_BLOCK / VECTOR)]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const int64_t at = (first + g * THREADS) * VECTOR;
        float x[VECTOR];
        if (at >= n)
            return;
        decode(x, code[g], s[g], value);
#pragma unroll
        for (int k = 0; k < VECTOR; k += wide<T>::n) {
            float part[wide<T>::n];
#pragma unroll
            for (int i = 0; i < wide<T>::n; i++)
                part[i] = x[k + i];
            store_floats(out + at + k, part);
        }
    }
}

template <typename T, int FORMAT> int launch(const struct ckpt_kernel_args *a)
{
    const int64_t n = desc_numel(&a->out[0].desc);
    const uint8_t *codes = static_cast<const uint8_t *>(a->in[0].data);
    const bf16 *scales = reinterpret_cast<const bf16 *>(codes + (FORMAT == FROZEN_NF4 ? n / 2 : n));
    const int64_t blocks = (n / VECTOR + GROUPS * THREADS - 1) / (GROUPS * THREADS);
    dequantize<T, FORMAT><<<(unsigned)blocks, THREADS, 0, stream_of(a)>>>(
        codes, scales, n, static_cast<T *>(a->out[0].data));
    return launched();
}

} // namespace

int cuda_dequantize(const struct ckpt_kernel_args *a)
{
    const struct dequantize_attr *attr = static_cast<const struct dequantize_attr *>(a->attr);
    const bool nf4 = attr->format == FROZEN_NF4;
    if (a->out[0].desc.dtype == CKPT_BF16)
        return nf4 ? launch<bf16, FROZEN_NF4>(a) : launch<bf16, FROZEN_INT8>(a);
    return nf4 ? launch<float, FROZEN_NF4>(a) : launch<float, FROZEN_INT8>(a);
}

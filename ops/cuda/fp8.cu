/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit copies of a tensor.  One kernel finds the largest magnitude of each of FP8_PARTS parts, the
 * next one that of all, which no order can change, and makes the copies: a block takes a tile of
 * 128 rows and columns, writes its codes as they lie, and keeps them in shared memory, where
 * threads read words of four columns down 16 rows and write four pieces of 16 bytes of the
 * transposed copy.
 */
#include <cuda_fp8.h>
#include "core/fp8.h"
#include "cuda/cuda.cuh"
#include "cuda/kernels.h"
#include "fp8.h"

namespace
{

enum {
    THREADS = 256,
    TILE = 128,           /* rows and columns */
    PIECE = 16,           /* rows of one store of the transposed copy */
    GROUP = 4,            /* columns of a word */
    VECTOR = 8,           /* elements that a thread reads at once */
    PITCH = TILE / 4 + 1, /* words from row to row: two pieces of rows meet different banks */
};

/* ---- the largest magnitude ------------------------------------------------------------------- */

/* Bits of magnitudes, which order as the values do; NaN is above all. */
__device__ __forceinline__ uint32_t magnitude(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

__device__ __forceinline__ uint32_t magnitude(bf16 x)
{
    return ((uint32_t)__bfloat16_as_ushort(x) & 0x7fffu) << 16;
}

/* In every thread. */
__device__ __forceinline__ uint32_t block_max(uint32_t x)
{
    __shared__ uint32_t part[THREADS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int offset = 16; offset; offset >>= 1)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, offset));
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++)
        x = max(x, part[i]);
    return x;
}

/* n: a multiple of VECTOR, as all rows are. */
template <typename T>
__global__ void __launch_bounds__(THREADS) find_largest(const T *x, int64_t n, uint32_t *part)
{
    uint32_t most = 0;
    let_next_kernel_come();
    const int64_t stride = (int64_t)gridDim.x * THREADS * VECTOR;
#pragma unroll 4
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * VECTOR; i < n; i += stride) {
        const vec<T, VECTOR> v = *reinterpret_cast<const vec<T, VECTOR> *>(x + i);
#pragma unroll
        for (int k = 0; k < VECTOR; k++)
            most = max(most, magnitude(v.at[k]));
    }
    most = block_max(most);
    if (threadIdx.x == 0)
        part[blockIdx.x] = most;
}

/* ---- the copies ------------------------------------------------------------------------------ */

struct copies {
    int64_t rows, cols, pitch;
    uint8_t *by_rows, *by_columns; /* either may be NULL */
    float *scale;
    const uint32_t *part;
};

template <__nv_fp8_interpretation_t KIND>
__device__ __forceinline__ uint32_t encode(float a, float b, float c, float d)
{
    const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, KIND);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, KIND);
    return low | high << 16;
}

/* What the values are multiplied by: NaN where one is infinite or NaN.  The first block writes what
 * the codes are to be multiplied by. */
template <__nv_fp8_interpretation_t KIND> __device__ __forceinline__ float power_of(const copies &c)
{
    uint32_t most = 0;
    for (int i = threadIdx.x; i < FP8_PARTS; i += THREADS)
        most = max(most, c.part[i]);
    most = block_max(most);
    const bool odd = fp8_is_odd(most);
    const int k = odd ? 0 : fp8_exponent(most, KIND == __NV_E4M3 ? FP8_E4M3_TOP : FP8_E5M2_TOP);
    const float nan = __uint_as_float(0x7fc00000u);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0)
        *c.scale = odd ? nan : __uint_as_float(fp8_power_bits(-k));
    return odd ? nan : __uint_as_float(fp8_power_bits(k));
}

/* Codes of a tile to the copy by rows and to shared memory, zeros where there is no element. */
template <typename T, __nv_fp8_interpretation_t KIND>
__device__ __forceinline__ void encode_tile(const T *x, const copies &c, int64_t row, int64_t col,
                                            float power, uint32_t (&tile)[TILE][PITCH])
{
    constexpr int across = TILE / VECTOR;
#pragma unroll 4
    for (int i = threadIdx.x; i < TILE * across; i += THREADS) {
        const int r = i / across, j = i % across * VECTOR;
        uint32_t low = 0, high = 0;
        if (row + r < c.rows && col + j < c.cols) {
            const int64_t at = (row + r) * c.cols + col + j;
            float v[VECTOR];
            load_floats<T, VECTOR>(v, x + at);
#pragma unroll
            for (int k = 0; k < VECTOR; k++)
                v[k] *= power;
            low = encode<KIND>(v[0], v[1], v[2], v[3]);
            high = encode<KIND>(v[4], v[5], v[6], v[7]);
            if (c.by_rows)
                *reinterpret_cast<uint2 *>(c.by_rows + at) = make_uint2(low, high);
        }
        tile[r][j / GROUP] = low;
        tile[r][j / GROUP + 1] = high;
    }
}

/* Byte k of each of four words, the first one lowest. */
__device__ __forceinline__ uint32_t byte_of(const uint32_t *w, int k)
{
    const uint32_t pick = (uint32_t)k | (uint32_t)(k + 4) << 4;
    const uint32_t low = __byte_perm(w[0], w[1], pick), high = __byte_perm(w[2], w[3], pick);
    return __byte_perm(low, high, 0x5410);
}

/* Neighbours in a warp take two pieces of the same columns, 32 bytes of a row of the copy. */
__device__ __forceinline__ void store_columns(const copies &c, int64_t row, int64_t col,
                                              const uint32_t (&tile)[TILE][PITCH])
{
    constexpr int groups = TILE / GROUP;
    const int piece = threadIdx.x % 2 + threadIdx.x / (2 * groups) * 2;
    const int group = threadIdx.x / 2 % groups;
    const int64_t first = row + piece * PIECE, at = col + group * GROUP;
    uint32_t w[PIECE];
    if (first >= c.pitch || at >= c.cols)
        return;
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        w[i] = tile[piece * PIECE + i][group];
#pragma unroll
    for (int k = 0; k < GROUP; k++)
        *reinterpret_cast<uint4 *>(c.by_columns + (at + k) * c.pitch + first) =
            make_uint4(byte_of(w, k), byte_of(w + 4, k), byte_of(w + 8, k), byte_of(w + 12, k));
}

template <typename T, __nv_fp8_interpretation_t KIND>
__global__ void __launch_bounds__(THREADS) make_copies(const T *x, const copies c)
{
    static_assert(TILE / GROUP * (TILE / PIECE) == THREADS, "a piece a thread");
    __shared__ uint32_t tile[TILE][PITCH];
    const int64_t row = (int64_t)blockIdx.x * TILE, col = (int64_t)blockIdx.y * TILE;
    wait_for_kernel_before();
    const float power = power_of<KIND>(c);
    encode_tile<T, KIND>(x, c, row, col, power, tile);
    if (!c.by_columns)
        return;
    __syncthreads();
    store_columns(c, row, col, tile);
}

template <typename T> void launch(const struct ckpt_kernel_args *a, const copies &c, bool e4m3)
{
    const T *x = static_cast<const T *>(a->in[0].data);
    const dim3 grid((unsigned)((c.rows + TILE - 1) / TILE), (unsigned)((c.cols + TILE - 1) / TILE));
    uint32_t *part = static_cast<uint32_t *>(a->workspace);
    find_largest<T><<<FP8_PARTS, THREADS, 0, stream_of(a)>>>(x, c.rows * c.cols, part);
    if (e4m3)
        launch_behind(stream_of(a), grid, dim3(THREADS), make_copies<T, __NV_E4M3>, x, c);
    else
        launch_behind(stream_of(a), grid, dim3(THREADS), make_copies<T, __NV_E5M2>, x, c);
}

} // namespace

int cuda_to_fp8(const struct ckpt_kernel_args *a)
{
    const struct to_fp8_attr *attr = static_cast<const struct to_fp8_attr *>(a->attr);
    const struct ckpt_desc *x = &a->in[0].desc;
    copies c = {};
    int n = 1;
    c.cols = x->shape[x->ndim - 1];
    c.rows = desc_numel(x) / c.cols;
    c.pitch = fp8_pitch(c.rows);
    c.scale = static_cast<float *>(a->out[0].data);
    c.part = static_cast<const uint32_t *>(a->workspace);
    if (attr->copies & FP8_ROWS)
        c.by_rows = static_cast<uint8_t *>(a->out[n++].data);
    if (attr->copies & FP8_COLUMNS)
        c.by_columns = static_cast<uint8_t *>(a->out[n].data);
    if (x->dtype == CKPT_BF16)
        launch<bf16>(a, c, attr->dtype == CKPT_F8E4M3);
    else
        launch<float>(a, c, attr->dtype == CKPT_F8E4M3);
    return launched();
}

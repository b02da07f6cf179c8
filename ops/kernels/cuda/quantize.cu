/* SPDX-License-Identifier: Apache-2.0 */
/* The nearest entry of a codebook, one warp per row of z, and the gradient for z. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/kernels.h"
#include "quantize.h"

namespace
{

enum { THREADS = 256, WARPS = THREADS / 32 };

template <typename T>
__device__ __forceinline__ float distance(const T *z, const T *entry, int64_t d)
{
    float sum = 0.f;
    for (int64_t j = 0; j < d; j++) {
        float difference = to_float(z[j]) - to_float(entry[j]);
        sum += difference * difference;
    }
    return sum;
}

/* The nearest entry over all lanes, in every lane; the lowest index if several are equally near. */
__device__ __forceinline__ void nearest_of_warp(float &smallest, int32_t &best)
{
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, smallest, offset);
        int32_t at = __shfl_xor_sync(0xffffffffu, best, offset);
        if (at >= 0 && (best < 0 || other < smallest || (other == smallest && at < best))) {
            smallest = other;
            best = at;
        }
    }
}

/* A block handles QUANTIZE_ROWS rows; a lane tests every 32nd entry. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    find_nearest(const T *z, const T *book, int64_t rows, int64_t k, int64_t d, T *entries,
                 int32_t *index, double *partial)
{
    int64_t begin = (int64_t)blockIdx.x * QUANTIZE_ROWS, end = min(rows, begin + QUANTIZE_ROWS);
    int lane = threadIdx.x % 32;
    double sum = 0;
    for (int64_t r = begin + threadIdx.x / 32; r < end; r += WARPS) {
        int32_t best = -1;
        float smallest = 0.f;
        for (int64_t i = lane; i < k; i += 32) {
            float far = distance(z + r * d, book + i * d, d);
            if (best < 0 || far < smallest) {
                smallest = far;
                best = (int32_t)i;
            }
        }
        nearest_of_warp(smallest, best);
        for (int64_t j = lane; j < d; j += 32)
            entries[r * d + j] = book[best * d + j];
        if (lane == 0) {
            index[r] = best;
            sum += (double)smallest;
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    add_partials(const double *partial, int64_t n, double count, float *loss)
{
    double sum = block_sum_of<THREADS>(partial, n);
    if (threadIdx.x == 0)
        *loss = (float)(sum / count);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    quantize_gradient(const float *dloss, const T *z, const T *entry, const T *through, T *dz,
                      int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float slope = (float)(2. * (double)*dloss / (double)n);
    if (i < n)
        dz[i] = from_float<T>((through ? to_float(through[i]) : 0.f) +
                              slope * (to_float(z[i]) - to_float(entry[i])));
}

template <typename T> int quantize(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *book = &a->in[1].desc;
    int64_t k = book->shape[0], d = book->shape[1], rows = desc_numel(&a->out[1].desc);
    int64_t chunks = quantize_chunks(rows);
    double *partial = (double *)a->workspace;
    find_nearest<T><<<(unsigned)chunks, THREADS, 0, stream_of(a)>>>(
        (const T *)a->in[0].data, (const T *)a->in[1].data, rows, k, d, (T *)a->out[0].data,
        (int32_t *)a->out[1].data, partial);
    add_partials<<<1, THREADS, 0, stream_of(a)>>>(partial, chunks, (double)(rows * d),
                                                  (float *)a->out[2].data);
    return launched();
}

template <typename T> int quantize_dx(const struct ckpt_kernel_args *a)
{
    int64_t n = desc_numel(&a->in[1].desc);
    quantize_gradient<T><<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream_of(a)>>>(
        (const float *)a->in[0].data, (const T *)a->in[1].data, (const T *)a->in[2].data,
        (const T *)a->in[3].data, (T *)a->out[0].data, n);
    return launched();
}

} // namespace

CUDA_FLOATS(quantize, in[0], quantize)
CUDA_FLOATS(quantize_dx, in[1], quantize_dx)

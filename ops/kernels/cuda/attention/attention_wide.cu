/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels between the products of wide attention: one block of 256 threads per row. */
#include "kernels/cuda/attention/attention_wide.h"
#include "kernels/cuda/cuda.cuh"

constexpr int THREADS = 256;
constexpr int EACH = 4; /* adjacent elements of a thread */

/* The maximum of x over a block of THREADS, in every thread. */
__device__ __forceinline__ float block_maximum(float x)
{
    __shared__ float part[THREADS / 32];
#pragma unroll
    for (int offset = 16; offset; offset >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++)
        x = fmaxf(x, part[i]);
    return x;
}

/* The offset of the lse of this block's row. */
__device__ __forceinline__ int64_t row_offset(const struct wide_scores &w,
                                              const struct wide_matrix &x)
{
    unsigned matrix = blockIdx.x / (unsigned)w.rows, row = blockIdx.x - matrix * (unsigned)w.rows;
    return matrix * x.step + row * x.row;
}

/* The logarithm of the sum of exp(scale s).  Each thread keeps a running maximum and sum. */
__device__ __forceinline__ float find_lse(const struct wide_scores &w, const float *s)
{
    float maximum = -INFINITY, total = 0;
    for (int64_t i = threadIdx.x * EACH; i < w.n; i += THREADS * EACH) {
        float x[EACH], top = maximum;
        load_floats(x, s + i);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            x[j] = i + j < w.n ? x[j] * w.scale : -INFINITY;
            top = fmaxf(top, x[j]);
        }
        total *= expf(maximum - top);
        maximum = top;
#pragma unroll
        for (int j = 0; j < EACH; j++)
            total += expf(x[j] - top);
    }
    const float top = block_maximum(maximum);
    return top + logf(block_sum(maximum == -INFINITY ? 0.f : total * expf(maximum - top)));
}

/* lse is rounded like the scores, so a probability is clamped to 1. */
template <typename T, bool KNOWN>
__global__ void __launch_bounds__(THREADS) find_probabilities(const __grid_constant__ wide_scores w)
{
    const float *s = w.scores + blockIdx.x * w.pitch;
    T *p = (T *)w.probabilities + blockIdx.x * w.pitch;
    float *stored = (float *)w.lse.data + row_offset(w, w.lse);
    const float lse = KNOWN ? *stored : find_lse(w, s);
    if (!KNOWN && threadIdx.x == 0)
        *stored = lse;
    for (int64_t i = threadIdx.x * EACH; i < w.n; i += THREADS * EACH) {
        float x[EACH];
        load_floats(x, s + i);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            x[j] = i + j < w.n ? expf(at_most_zero(x[j] * w.scale - lse)) : 0.f;
        store_floats(p + i, x);
    }
}

/* delta is the mean of dp weighted by the rounded probabilities, not o d_o: the difference dp -
 * delta is small, and o was rounded separately. */
template <typename T>
__global__ void __launch_bounds__(THREADS) find_gradient(const __grid_constant__ wide_scores w)
{
    const float *dp = w.scores + blockIdx.x * w.pitch;
    T *p = (T *)w.probabilities + blockIdx.x * w.pitch;
    float total = 0, sum = 0;
    for (int64_t i = threadIdx.x * EACH; i < w.n; i += THREADS * EACH) {
        float x[EACH], factor[EACH];
        load_floats(x, dp + i);
        load_floats(factor, p + i);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            total += i + j < w.n ? factor[j] : 0.f;
            sum += i + j < w.n ? factor[j] * x[j] : 0.f;
        }
    }
    total = block_sum(total);
    const float delta = block_sum(sum) / total;
    for (int64_t i = threadIdx.x * EACH; i < w.n; i += THREADS * EACH) {
        float x[EACH], factor[EACH];
        load_floats(x, dp + i);
        load_floats(factor, p + i);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            x[j] = i + j < w.n ? factor[j] * (x[j] - delta) * w.scale : 0.f;
        store_floats(p + i, x);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    store(T *to, int64_t to_row, const float *sums, int64_t rows, unsigned width)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * EACH, row = i / width;
    float x[EACH];
    if (row >= rows)
        return;
    load_floats(x, sums + i);
    store_floats(to + row * to_row + (i - row * width), x);
}

/* ---- launching ------------------------------------------------------------------------------- */

template <bool KNOWN> static int probabilities(const struct wide_scores &w, void *stream)
{
    const unsigned blocks = (unsigned)(w.matrices * w.rows);
    if (w.dtype == CKPT_BF16)
        find_probabilities<bf16, KNOWN><<<blocks, THREADS, 0, (cudaStream_t)stream>>>(w);
    else
        find_probabilities<float, KNOWN><<<blocks, THREADS, 0, (cudaStream_t)stream>>>(w);
    return launched();
}

int cuda_wide_softmax(const struct wide_scores *w, void *stream)
{
    return probabilities<false>(*w, stream);
}

int cuda_wide_probabilities(const struct wide_scores *w, void *stream)
{
    return probabilities<true>(*w, stream);
}

int cuda_wide_gradient(const struct wide_scores *w, void *stream)
{
    const unsigned blocks = (unsigned)(w->matrices * w->rows);
    if (w->dtype == CKPT_BF16)
        find_gradient<bf16><<<blocks, THREADS, 0, (cudaStream_t)stream>>>(*w);
    else
        find_gradient<float><<<blocks, THREADS, 0, (cudaStream_t)stream>>>(*w);
    return launched();
}

int cuda_wide_store(const struct wide_matrix *to, enum ckpt_dtype dtype, const float *sums,
                    int64_t rows, int64_t width, void *stream)
{
    const unsigned blocks = (unsigned)((rows * width / EACH + THREADS - 1) / THREADS);
    if (dtype == CKPT_BF16)
        store<bf16><<<blocks, THREADS, 0, (cudaStream_t)stream>>>((bf16 *)to->data, to->row, sums,
                                                                  rows, (unsigned)width);
    else
        store<float><<<blocks, THREADS, 0, (cudaStream_t)stream>>>((float *)to->data, to->row, sums,
                                                                   rows, (unsigned)width);
    return launched();
}

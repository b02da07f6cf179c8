/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax over rows and its gradient: one warp or one block per row; its later passes find the row
 * in a cache. cumsum: one block per row, or one thread per lane. */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.cuh"
#include "scan.h"

namespace
{

constexpr int THREADS = 256, SHORT = 1024; /* longest row that a single warp handles */

/* The sum, or the maximum, over the threads of a row: a warp or the block. */
template <int LANES> __device__ __forceinline__ float sum_of(float x)
{
    if constexpr (LANES == 32)
        return warp_sum(x);
    else
        return block_sum(x);
}

template <int LANES> __device__ __forceinline__ float largest_of(float x)
{
#pragma unroll
    for (int offset = 16; offset; offset >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    if constexpr (LANES > 32) {
        __shared__ float part[LANES / 32];
        __syncthreads();
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = x;
        __syncthreads();
        for (int w = 0; w < LANES / 32; w++)
            x = fmaxf(x, part[w]);
    }
    return x;
}

/* The row of this thread.  All threads of a row make the same calls. */
template <int LANES> __device__ __forceinline__ int64_t row_of_thread(void)
{
    return (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
}

template <typename T, int LANES>
__global__ void __launch_bounds__(THREADS)
    softmax_rows(T *y, const T *x, int64_t rows, int64_t n, bool log_of)
{
    int64_t row = row_of_thread<LANES>(), first = threadIdx.x % LANES;
    if (row >= rows) /* a whole warp, or no thread of the block */
        return;
    float top = -INFINITY, sum = 0.f;
    x += row * n;
    y += row * n;
#pragma unroll 4
    for (int64_t j = first; j < n; j += LANES)
        top = fmaxf(top, to_float(x[j]));
    top = largest_of<LANES>(top);
#pragma unroll 4
    for (int64_t j = first; j < n; j += LANES)
        sum += expf(to_float(x[j]) - top);
    sum = sum_of<LANES>(sum);
    float shift = log_of ? top + logf(sum) : top, scale = 1.f / sum;
#pragma unroll 4
    for (int64_t j = first; j < n; j += LANES) {
        float v = to_float(x[j]) - shift;
        y[j] = from_float<T>(log_of ? v : expf(v) * scale);
    }
}

template <typename T, typename G, int LANES>
__global__ void __launch_bounds__(THREADS)
    softmax_dx_rows(T *dx, const G *dy, const T *y, int64_t rows, int64_t n, bool log_of)
{
    int64_t row = row_of_thread<LANES>(), first = threadIdx.x % LANES;
    if (row >= rows)
        return;
    float sum = 0.f;
    dx += row * n;
    dy += row * n;
    y += row * n;
#pragma unroll 4
    for (int64_t j = first; j < n; j += LANES)
        sum += log_of ? to_float(dy[j]) : to_float(dy[j]) * to_float(y[j]);
    sum = sum_of<LANES>(sum);
#pragma unroll 4
    for (int64_t j = first; j < n; j += LANES) {
        float g = to_float(dy[j]), p = to_float(y[j]);
        dx[j] = from_float<T>(log_of ? g - expf(p) * sum : p * (g - sum));
    }
}

template <typename T> int softmax(const struct ckpt_kernel_args *a)
{
    int64_t n = row_width(&a->in[0]), rows = desc_numel(&a->in[0].desc) / n;
    bool log_of = static_cast<const struct softmax_attr *>(a->attr)->log;
    T *y = static_cast<T *>(a->out[0].data);
    const T *x = static_cast<const T *>(a->in[0].data);
    if (n <= SHORT)
        softmax_rows<T, 32>
            <<<(unsigned)((rows + 7) / 8), THREADS, 0, stream_of(a)>>>(y, x, rows, n, log_of);
    else
        softmax_rows<T, THREADS>
            <<<(unsigned)rows, THREADS, 0, stream_of(a)>>>(y, x, rows, n, log_of);
    return launched();
}

template <typename T, typename G> int softmax_dx(const struct ckpt_kernel_args *a)
{
    int64_t n = row_width(&a->in[1]), rows = desc_numel(&a->in[1].desc) / n;
    bool log_of = static_cast<const struct softmax_attr *>(a->attr)->log;
    T *dx = static_cast<T *>(a->out[0].data);
    const G *dy = static_cast<const G *>(a->in[0].data);
    const T *y = static_cast<const T *>(a->in[1].data);
    if (n <= SHORT)
        softmax_dx_rows<T, G, 32>
            <<<(unsigned)((rows + 7) / 8), THREADS, 0, stream_of(a)>>>(dx, dy, y, rows, n, log_of);
    else
        softmax_dx_rows<T, G, THREADS>
            <<<(unsigned)rows, THREADS, 0, stream_of(a)>>>(dx, dy, y, rows, n, log_of);
    return launched();
}

/* ---- cumsum ---------------------------------------------------------------------------------- */

/* One block per row, THREADS elements at a time: sums within warps, then of warps, then the
 * carry. */
template <typename T>
__global__ void __launch_bounds__(THREADS) cumsum_rows(T *y, const T *x, int64_t n, bool reverse)
{
    __shared__ double sums[THREADS / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double carry = 0;
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    for (int64_t base = 0; base < n; base += THREADS) {
        int64_t i = base + threadIdx.x, at = reverse ? n - 1 - i : i;
        double sum = i < n ? (double)to_float(x[at]) : 0.;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            double before = __shfl_up_sync(0xffffffffu, sum, step);
            sum += lane >= step ? before : 0.;
        }
        __syncthreads();
        if (lane == 31)
            sums[warp] = sum;
        __syncthreads();
        double before = carry;
        for (int w = 0; w < THREADS / 32; w++) {
            before += w < warp ? sums[w] : 0.;
            carry += sums[w];
        }
        if (i < n)
            y[at] = from_float<T>((float)(before + sum));
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    cumsum_lanes(T *y, const T *x, struct cumsum_shape s, bool reverse)
{
    int64_t lane = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (lane >= s.outer * s.inner)
        return;
    int64_t o = quotient(lane, s.inner), at = o * s.n * s.inner + (lane - o * s.inner);
    int64_t step = reverse ? -s.inner : s.inner;
    double sum = 0;
    if (reverse)
        at += (s.n - 1) * s.inner;
#pragma unroll 4
    for (int64_t i = 0; i < s.n; i++) {
        sum += (double)to_float(x[at + i * step]);
        y[at + i * step] = from_float<T>((float)sum);
    }
}

template <typename T> int cumsum(const struct ckpt_kernel_args *a)
{
    const struct cumsum_attr *attr = static_cast<const struct cumsum_attr *>(a->attr);
    struct cumsum_shape s = cumsum_shape_of(&a->in[0].desc, attr->axis);
    T *y = static_cast<T *>(a->out[0].data);
    const T *x = static_cast<const T *>(a->in[0].data);
    if (s.inner == 1)
        cumsum_rows<T><<<(unsigned)s.outer, THREADS, 0, stream_of(a)>>>(y, x, s.n, attr->reverse);
    else
        cumsum_lanes<T>
            <<<(unsigned)((s.outer * s.inner + THREADS - 1) / THREADS), THREADS, 0, stream_of(a)>>>(
                y, x, s, attr->reverse);
    return launched();
}

} // namespace

int cuda_softmax(const struct ckpt_kernel_args *a)
{
    return view_half(&a->in[0]) ? softmax<bf16>(a) : softmax<float>(a);
}

int cuda_softmax_dx(const struct ckpt_kernel_args *a)
{
    bool half = view_half(&a->in[1]);
    if (view_half(&a->in[0]))
        return half ? softmax_dx<bf16, bf16>(a) : softmax_dx<float, bf16>(a);
    return half ? softmax_dx<bf16, float>(a) : softmax_dx<float, float>(a);
}

int cuda_cumsum(const struct ckpt_kernel_args *a)
{
    return view_half(&a->in[0]) ? cumsum<bf16>(a) : cumsum<float>(a);
}

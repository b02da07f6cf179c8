/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: a thread takes one channel of one place of the result; see ops/cpu/pool.c. */
#include "cuda/cuda.cuh"
#include "cuda/kernels.h"
#include "pool.h"

namespace
{

enum { THREADS = 256 };

struct place {
    int64_t sample;
    int64_t at[3];
};

/* Place p among those of all samples of a tensor of these sizes. */
__device__ __forceinline__ struct place place_of(const int64_t *size, int64_t p)
{
    struct place o;
    int h = (int)size[1], w = (int)size[2], places = (int)size[0] * h * w;
    o.sample = p / places;
    int rest = (int)(p - o.sample * places);
    o.at[2] = rest % w;
    o.at[1] = rest / w % h;
    o.at[0] = rest / w / h;
    return o;
}

__device__ __forceinline__ int64_t index_of(const int64_t *size, int64_t sample, int64_t d,
                                            int64_t h, int64_t w)
{
    return ((sample * size[0] + d) * size[1] + h) * size[2] + w;
}

struct best {
    float most;
    int64_t place;
};

/* The first of the largest values of a window, and what x has of the window in r. */
template <typename T>
__device__ __forceinline__ struct best look(const struct pool_shape &s, const T *x, int64_t sample,
                                            const int64_t *o, int64_t channel)
{
    struct pool_range r[3] = {pool_window(&s, 0, o[0]), pool_window(&s, 1, o[1]),
                              pool_window(&s, 2, o[2])};
    struct best b = {0.f, -1};
    for (int64_t d = r[0].begin; d < r[0].end; d++)
        for (int64_t h = r[1].begin; h < r[1].end; h++)
            for (int64_t w = r[2].begin; w < r[2].end; w++) {
                int64_t at = index_of(s.from, sample, d, h, w);
                float v = to_float(x[at * s.c + channel]);
                if (b.place < 0 || (!(v <= b.most) && b.most == b.most)) { /* NaN wins and stays */
                    b.most = v;
                    b.place = at;
                }
            }
    return b;
}

/* The largest values; with dy: that to the winner, where no place of x is in two windows and out
 * was cleared. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    largest(const __grid_constant__ struct pool_shape s, const T *x, const T *dy, T *out, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    int64_t p = i / s.c, channel = i - p * s.c;
    struct place o = place_of(s.size, p);
    struct best b = look(s, x, o.sample, o.at, channel);
    if (dy)
        out[b.place * s.c + channel] = dy[i];
    else
        out[i] = from_float<T>(b.most);
}

/* A place of x takes dy of the windows that it wins, in their order. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    collect(const __grid_constant__ struct pool_shape s, const T *x, const T *dy, T *dx, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    int64_t p = i / s.c, channel = i - p * s.c;
    struct place q = place_of(s.from, p);
    struct pool_range r[3] = {pool_windows_of(&s, 0, q.at[0]), pool_windows_of(&s, 1, q.at[1]),
                              pool_windows_of(&s, 2, q.at[2])};
    float sum = 0.f;
    for (int64_t d = r[0].begin; d < r[0].end; d++)
        for (int64_t h = r[1].begin; h < r[1].end; h++)
            for (int64_t w = r[2].begin; w < r[2].end; w++) {
                const int64_t o[3] = {d, h, w};
                if (look(s, x, q.sample, o, channel).place == p)
                    sum += to_float(dy[index_of(s.size, q.sample, d, h, w) * s.c + channel]);
            }
    dx[i] = from_float<T>(sum);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    mean(const __grid_constant__ struct pool_shape s, const T *x, T *y, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    int64_t p = i / s.c, channel = i - p * s.c;
    struct place o = place_of(s.size, p);
    struct pool_range r[3] = {pool_window(&s, 0, o.at[0]), pool_window(&s, 1, o.at[1]),
                              pool_window(&s, 2, o.at[2])};
    float sum = 0.f;
    for (int64_t d = r[0].begin; d < r[0].end; d++)
        for (int64_t h = r[1].begin; h < r[1].end; h++)
            for (int64_t w = r[2].begin; w < r[2].end; w++)
                sum += to_float(x[index_of(s.from, o.sample, d, h, w) * s.c + channel]);
    y[i] = from_float<T>(sum / pool_count(&s, r));
}

/* A place of x takes its share of dy of each window that it is in. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    spread(const __grid_constant__ struct pool_shape s, const T *dy, T *dx, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    int64_t p = i / s.c, channel = i - p * s.c;
    struct place q = place_of(s.from, p);
    struct pool_range r[3] = {pool_windows_of(&s, 0, q.at[0]), pool_windows_of(&s, 1, q.at[1]),
                              pool_windows_of(&s, 2, q.at[2])};
    float sum = 0.f;
    for (int64_t d = r[0].begin; d < r[0].end; d++)
        for (int64_t h = r[1].begin; h < r[1].end; h++)
            for (int64_t w = r[2].begin; w < r[2].end; w++) {
                struct pool_range seen[3] = {pool_window(&s, 0, d), pool_window(&s, 1, h),
                                             pool_window(&s, 2, w)};
                float g = to_float(dy[index_of(s.size, q.sample, d, h, w) * s.c + channel]);
                sum += g / pool_count(&s, seen);
            }
    dx[i] = from_float<T>(sum);
}

/* Blocks for one thread to each channel of so many places. */
unsigned blocks_for(int64_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

template <typename T> int run_largest(const struct ckpt_kernel_args *a)
{
    struct pool_shape s = pool_shape(&a->in[0].desc, (const struct pool_attr *)a->attr);
    int64_t n = desc_numel(&a->out[0].desc);
    largest<T><<<blocks_for(n), THREADS, 0, stream_of(a)>>>(s, (const T *)a->in[0].data, NULL,
                                                            (T *)a->out[0].data, n);
    return launched();
}

template <typename T> int run_largest_dx(const struct ckpt_kernel_args *a)
{
    struct pool_shape s = pool_shape(&a->in[1].desc, (const struct pool_attr *)a->attr);
    const T *dy = (const T *)a->in[0].data, *x = (const T *)a->in[1].data;
    T *dx = (T *)a->out[0].data;
    int64_t n = desc_numel(&a->in[0].desc), all = desc_numel(&a->out[0].desc);
    if (!pool_is_disjoint(&s)) {
        collect<T><<<blocks_for(all), THREADS, 0, stream_of(a)>>>(s, x, dy, dx, all);
        return launched();
    }
    if (cudaMemsetAsync(dx, 0, (size_t)all * sizeof(T), stream_of(a)) != cudaSuccess)
        return CKPT_EDEVICE;
    largest<T><<<blocks_for(n), THREADS, 0, stream_of(a)>>>(s, x, dy, dx, n);
    return launched();
}

template <typename T> int run_mean(const struct ckpt_kernel_args *a)
{
    struct pool_shape s = pool_shape(&a->in[0].desc, (const struct pool_attr *)a->attr);
    int64_t n = desc_numel(&a->out[0].desc);
    mean<T><<<blocks_for(n), THREADS, 0, stream_of(a)>>>(s, (const T *)a->in[0].data,
                                                         (T *)a->out[0].data, n);
    return launched();
}

template <typename T> int run_mean_dx(const struct ckpt_kernel_args *a)
{
    struct pool_shape s = pool_shape(&a->out[0].desc, (const struct pool_attr *)a->attr);
    int64_t n = desc_numel(&a->out[0].desc);
    spread<T><<<blocks_for(n), THREADS, 0, stream_of(a)>>>(s, (const T *)a->in[0].data,
                                                           (T *)a->out[0].data, n);
    return launched();
}

} // namespace

int cuda_max_pool(const struct ckpt_kernel_args *a)
{
    return a->in[0].desc.dtype == CKPT_BF16 ? run_largest<bf16>(a) : run_largest<float>(a);
}

int cuda_max_pool_dx(const struct ckpt_kernel_args *a)
{
    return a->in[1].desc.dtype == CKPT_BF16 ? run_largest_dx<bf16>(a) : run_largest_dx<float>(a);
}

int cuda_avg_pool(const struct ckpt_kernel_args *a)
{
    return a->in[0].desc.dtype == CKPT_BF16 ? run_mean<bf16>(a) : run_mean<float>(a);
}

int cuda_avg_pool_dx(const struct ckpt_kernel_args *a)
{
    return a->in[0].desc.dtype == CKPT_BF16 ? run_mean_dx<bf16>(a) : run_mean_dx<float>(a);
}

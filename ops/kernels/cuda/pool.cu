/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: a thread takes one channel of one place of the result, or of x; see cpu/pool.c.
 * Places of a sample are counted in 32 bits, and ranges along an axis found once: what is summed or
 * compared is little beside the arithmetic of indices.
 */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.cuh"
#include "shapes/pool.h"

namespace
{

enum { THREADS = 256 };

/* A thread's channel of a place; the first one of the sample; the place along each axis. */
struct spot {
    int64_t channel, sample;
    int32_t place, at[3];
};

/* Spot i of all channels of all places of a tensor of these sizes. */
__device__ __forceinline__ struct spot spot_of(const int32_t *size, int64_t c, int64_t i)
{
    struct spot o;
    int64_t p = quotient(i, c), places = (int64_t)size[0] * size[1] * size[2];
    o.channel = i - p * c;
    o.sample = quotient(p, places);
    o.place = (int32_t)(p - o.sample * places);
    int32_t line = o.place / size[2];
    o.at[2] = o.place - line * size[2];
    o.at[0] = line / size[1];
    o.at[1] = line - o.at[0] * size[1];
    return o;
}

/* A spot's channel of the first place of its sample, in a tensor of these sizes. */
template <typename T>
__device__ __forceinline__ T *sample_of(T *x, const int32_t *size, int64_t c, const struct spot &o)
{
    return x + o.sample * ((int64_t)size[0] * size[1] * size[2]) * c + o.channel;
}

struct best {
    float most;
    int32_t place; /* of the sample */
};

/* The first of the largest values of what x, one channel of a sample, has of a window. */
template <typename T>
__device__ __forceinline__ struct best
look(const struct pool_shape &s, const T *x, const struct pool_range &rd,
     const struct pool_range &rh, const struct pool_range &rw)
{
    struct best b = {0.f, -1};
    for (int32_t d = rd.begin; d < rd.end; d++)
        for (int32_t h = rh.begin; h < rh.end; h++) {
            int32_t place = pool_place(s.from, d, h, rw.begin);
            const T *at = x + place * s.c;
            for (int32_t w = rw.begin; w < rw.end; w++, place++, at += s.c) {
                float v = to_float(*at);
                if (b.place < 0 || (!(v <= b.most) && b.most == b.most)) { /* NaN wins and stays */
                    b.most = v;
                    b.place = place;
                }
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
    struct spot o = spot_of(s.size, s.c, i);
    struct best b = look(s, sample_of(x, s.from, s.c, o), pool_window(&s, 0, o.at[0]),
                         pool_window(&s, 1, o.at[1]), pool_window(&s, 2, o.at[2]));
    if (dy)
        sample_of(out, s.from, s.c, o)[b.place * s.c] = dy[i];
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
    struct spot q = spot_of(s.from, s.c, i);
    const struct pool_range rd = pool_windows_of(&s, 0, q.at[0]);
    const struct pool_range rh = pool_windows_of(&s, 1, q.at[1]);
    const struct pool_range rw = pool_windows_of(&s, 2, q.at[2]);
    x = sample_of(x, s.from, s.c, q);
    dy = sample_of(dy, s.size, s.c, q);
    float sum = 0.f;
    for (int32_t d = rd.begin; d < rd.end; d++)
        for (int32_t h = rh.begin; h < rh.end; h++) {
            const struct pool_range seen_d = pool_window(&s, 0, d), seen_h = pool_window(&s, 1, h);
            for (int32_t w = rw.begin; w < rw.end; w++)
                if (look(s, x, seen_d, seen_h, pool_window(&s, 2, w)).place == q.place)
                    sum += to_float(dy[pool_place(s.size, d, h, w) * s.c]);
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
    struct spot o = spot_of(s.size, s.c, i);
    const struct pool_range r[3] = {pool_window(&s, 0, o.at[0]), pool_window(&s, 1, o.at[1]),
                                    pool_window(&s, 2, o.at[2])};
    x = sample_of(x, s.from, s.c, o);
    float sum = 0.f;
    for (int32_t d = r[0].begin; d < r[0].end; d++)
        for (int32_t h = r[1].begin; h < r[1].end; h++) {
            const T *at = x + pool_place(s.from, d, h, r[2].begin) * s.c;
            for (int32_t w = r[2].begin; w < r[2].end; w++, at += s.c)
                sum += to_float(*at);
        }
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
    struct spot q = spot_of(s.from, s.c, i);
    const struct pool_range rd = pool_windows_of(&s, 0, q.at[0]);
    const struct pool_range rh = pool_windows_of(&s, 1, q.at[1]);
    const struct pool_range rw = pool_windows_of(&s, 2, q.at[2]);
    dy = sample_of(dy, s.size, s.c, q);
    float sum = 0.f;
    for (int32_t d = rd.begin; d < rd.end; d++)
        for (int32_t h = rh.begin; h < rh.end; h++) {
            struct pool_range seen[3] = {pool_window(&s, 0, d), pool_window(&s, 1, h), {0, 0}};
            for (int32_t w = rw.begin; w < rw.end; w++) {
                seen[2] = pool_window(&s, 2, w);
                sum += to_float(dy[pool_place(s.size, d, h, w) * s.c]) / pool_count(&s, seen);
            }
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

CUDA_FLOATS(max_pool, in[0], run_largest)
CUDA_FLOATS(max_pool_dx, in[1], run_largest_dx)
CUDA_FLOATS(avg_pool, in[0], run_mean)
CUDA_FLOATS(avg_pool_dx, in[0], run_mean_dx)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nearest upsampling and its gradient.  A thread handles up to 16 bytes of adjacent channels at one
 * position of x: it writes all copies, or adds them in order.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/kernels.h"
#include "upsample.h"

namespace
{

enum { THREADS = 256 };

/* The position in the result of the first copy of position p of x.  I: 32-bit unsigned if that
 * suffices, since 64-bit divisions are slow. */
template <typename I>
__device__ __forceinline__ int64_t first_copy(const struct upsample_shape &s, I p)
{
    int64_t at = 0;
#pragma unroll
    for (int axis = 2; axis >= 0; axis--) {
        I size = (I)s.size[axis];
        at += (int64_t)(p % size) * s.factor[axis] * s.step[axis];
        p /= size;
    }
    return at + (int64_t)p * s.size[0] * s.factor[0] * s.step[0];
}

template <typename T, int V, typename I>
__global__ void __launch_bounds__(THREADS)
    copy_places(const __grid_constant__ struct upsample_shape s, const T *x, T *y, I n, I across)
{
    I i = (I)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    I p = i / across;
    int64_t channel = (int64_t)(i - p * across) * V, first = first_copy<I>(s, p);
    vec<T, V> v = *reinterpret_cast<const vec<T, V> *>(x + (int64_t)p * s.c + channel);
    for (int64_t d = 0; d < s.factor[0]; d++)
        for (int64_t h = 0; h < s.factor[1]; h++)
            for (int64_t w = 0; w < s.factor[2]; w++) {
                int64_t at = first + d * s.step[0] + h * s.step[1] + w;
                *reinterpret_cast<vec<T, V> *>(y + at * s.c + channel) = v;
            }
}

template <typename T, int V, typename I>
__global__ void __launch_bounds__(THREADS)
    add_copies(const __grid_constant__ struct upsample_shape s, const T *dy, T *dx, I n, I across)
{
    I i = (I)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    I p = i / across;
    int64_t channel = (int64_t)(i - p * across) * V, first = first_copy<I>(s, p);
    float sum[V] = {};
    for (int64_t d = 0; d < s.factor[0]; d++)
        for (int64_t h = 0; h < s.factor[1]; h++)
#pragma unroll 2
            for (int64_t w = 0; w < s.factor[2]; w++) {
                float v[V];
                int64_t at = first + d * s.step[0] + h * s.step[1] + w;
                load_floats(v, dy + at * s.c + channel);
#pragma unroll
                for (int j = 0; j < V; j++)
                    sum[j] += v[j];
            }
    store_floats(dx + (int64_t)p * s.c + channel, sum);
}

template <typename T, int V, typename I>
int launch(const struct ckpt_kernel_args *a, const struct upsample_shape &s, bool up)
{
    int64_t across = s.c / V, n = upsample_places(&s) * across;
    unsigned blocks = (unsigned)((n + THREADS - 1) / THREADS);
    const T *from = (const T *)a->in[0].data;
    T *to = (T *)a->out[0].data;
    if (up)
        copy_places<T, V, I><<<blocks, THREADS, 0, stream_of(a)>>>(s, from, to, (I)n, (I)across);
    else
        add_copies<T, V, I><<<blocks, THREADS, 0, stream_of(a)>>>(s, from, to, (I)n, (I)across);
    return launched();
}

template <typename T, int V>
int launch_counting(const struct ckpt_kernel_args *a, const struct upsample_shape &s, bool up)
{
    bool few = upsample_places(&s) * (s.c / V) < INT32_MAX; /* also counting threads past the end */
    return few ? launch<T, V, uint32_t>(a, s, up) : launch<T, V, uint64_t>(a, s, up);
}

template <typename T> int launch_as(const struct ckpt_kernel_args *a, bool up)
{
    const struct ckpt_view *x = up ? &a->in[0] : &a->out[0];
    struct upsample_shape s = upsample_shape(&x->desc, (const struct upsample_attr *)a->attr);
    bool whole = s.c % wide<T>::n == 0 && aligned16(a->in[0].data) && aligned16(a->out[0].data);
    return whole ? launch_counting<T, wide<T>::n>(a, s, up) : launch_counting<T, 1>(a, s, up);
}

int upsample(const struct ckpt_kernel_args *a, bool up)
{
    return a->in[0].desc.dtype == CKPT_BF16 ? launch_as<bf16>(a, up) : launch_as<float>(a, up);
}

} // namespace

int cuda_upsample_nearest(const struct ckpt_kernel_args *a)
{
    return upsample(a, true);
}

int cuda_upsample_nearest_dx(const struct ckpt_kernel_args *a)
{
    return upsample(a, false);
}

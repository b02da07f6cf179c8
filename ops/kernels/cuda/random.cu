/* SPDX-License-Identifier: Apache-2.0 */
/*
 * randn: the same bits as runtime/core/random.c, which defines how a value follows from its
 * counter, and why logarithm, sine and cosine are polynomials.  Every operation is rounded
 * separately here, too: the compiler never contracts the _rn intrinsics.
 */
#include "attr.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/walk.cuh"

/* a b + c with two roundings. */
static __device__ __forceinline__ double step(double a, double b, double c)
{
    return __dadd_rn(__dmul_rn(a, b), c);
}

/* log of (w + 1/2) / 2^32. */
static __device__ __forceinline__ double log_unit(uint32_t w)
{
    double x = step(2.0, (double)(int32_t)(w ^ 0x80000000u), 4294967297.0);
    uint64_t low = 0x3fe6a09e667f3bcdu, above = (uint64_t)__double_as_longlong(x) - low;
    double k = (double)(int32_t)(above >> 52);
    double m = __longlong_as_double((long long)((above & 0xfffffffffffffu) + low));
    double s = __ddiv_rn(__dadd_rn(m, -1.0), __dadd_rn(m, 1.0)), s2 = __dmul_rn(s, s);
    double p = 1.0 / 13;
    p = step(p, s2, 1.0 / 11);
    p = step(p, s2, 1.0 / 9);
    p = step(p, s2, 1.0 / 7);
    p = step(p, s2, 1.0 / 5);
    p = step(p, s2, 1.0 / 3);
    p = step(p, s2, 1.0);
    return __dadd_rn(__dmul_rn(__dmul_rn(2.0, s), p),
                     __dmul_rn(__dadd_rn(k, -33.0), 0.69314718055994530942));
}

/* Cosine and sine of 2 pi w / 2^32. */
static __device__ __forceinline__ void sincos_unit(uint32_t w, double *cosine, double *sine)
{
    uint32_t quarter = (w + 0x20000000u) >> 30;
    double a = __dmul_rn((double)(int32_t)(w - (quarter << 30)), 1.4629180792671596e-9);
    double a2 = __dmul_rn(a, a), s = -1.0 / 39916800, c = 1.0 / 479001600;
    s = step(s, a2, 1.0 / 362880);
    s = step(s, a2, -1.0 / 5040);
    s = step(s, a2, 1.0 / 120);
    s = step(s, a2, -1.0 / 6);
    s = step(s, a2, 1.0);
    s = __dmul_rn(s, a);
    c = step(c, a2, -1.0 / 3628800);
    c = step(c, a2, 1.0 / 40320);
    c = step(c, a2, -1.0 / 720);
    c = step(c, a2, 1.0 / 24);
    c = step(c, a2, -1.0 / 2);
    c = step(c, a2, 1.0);
    double cos_part = quarter & 1 ? s : c, sin_part = quarter & 1 ? c : s;
    *cosine = (quarter + 1) & 2 ? -cos_part : cos_part;
    *sine = quarter & 2 ? -sin_part : sin_part;
}

static __device__ __forceinline__ void box_muller(uint32_t radius, uint32_t angle, float *first,
                                                  float *second)
{
    double r = __dsqrt_rn(__dmul_rn(-2.0, log_unit(radius))), c, s;
    sincos_unit(angle, &c, &s);
    *first = (float)__dmul_rn(r, c);
    *second = (float)__dmul_rn(r, s);
}

/* One thread per Philox block of four values; y has the n values from number `first` on. */
template <typename T>
static __global__ void __launch_bounds__(WALK_THREADS)
    randn(T *y, int64_t n, int64_t first, uint64_t seed, uint32_t stream,
          const struct ckpt_run *run)
{
    int64_t block = first / 4 + (int64_t)blockIdx.x * WALK_THREADS + threadIdx.x;
    int64_t at = 4 * block - first;
    uint64_t step = (uint64_t)run->step;
    float value[4];
    if (at >= n)
        return;
    uint4 w = philox(philox_counter(PHILOX_NORMAL, block, step, stream), seed);
    box_muller(w.x, w.y, &value[0], &value[1]);
    box_muller(w.z, w.w, &value[2], &value[3]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (at + i >= 0 && at + i < n)
            y[at + i] = from_float<T>(value[i]);
}

template <typename T> static int launch(const struct ckpt_kernel_args *a)
{
    int64_t n = desc_numel(&a->out[0].desc), first = a->run->micro * n;
    int64_t blocks = (first + n + 3) / 4 - first / 4;
    randn<<<blocks_of(blocks, WALK_THREADS), WALK_THREADS, 0, stream_of(a)>>>(
        static_cast<T *>(a->out[0].data), n, first, a->run->seed, (uint32_t)a->number | 1u << 31,
        a->run_device);
    return launched();
}

CUDA_FLOATS(randn, out[0], launch)

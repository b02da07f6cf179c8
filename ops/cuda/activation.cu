/* SPDX-License-Identifier: Apache-2.0 */
/* GELU (tanh) and SiLU, and their derivatives: see ops/cpu/activation.c for the formulas. */
#include "cuda/column_sum.cuh"
#include "cuda/kernels.h"
#include "cuda/map.cuh"

/* The tanh formula is x sigmoid(x (C1 + C3 x^2)); here with log2(e) in the constants, as the
 * hardware's exponential is that of 2. */
#define LOG2E   1.4426950408889634f
#define GELU_C1 1.5957691216057308f  /* 2 sqrt(2/pi) */
#define GELU_C3 0.07135481627159595f /* C1 * 0.044715 */

namespace
{

/* 2^x to 2 units in the last place; results under 2^-126 are 0. */
__device__ __forceinline__ float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x to 1 unit in the last place, for x of at least 1; 0 from 2^126 on. */
__device__ __forceinline__ float reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* sigmoid(v / LOG2E). */
__device__ __forceinline__ float sigmoid2(float v)
{
    return reciprocal(1.f + power_of_2(-v));
}

struct gelu {
    __device__ float operator()(float x, float, float) const
    {
        return x * sigmoid2(x * (LOG2E * GELU_C1 + LOG2E * GELU_C3 * (x * x)));
    }
};

/*
 * With s the sigmoid and v its argument: d(x s)/dx = s + x s (1 - s) v'.  Beyond |x| = 100 s is 0
 * or 1 and x^2 only has to stay finite.  1 - s is off by at most 6e-8, and x v' is below 60 where s
 * is not yet 1: next to a slope of 1 that does not show.
 */
struct gelu_dx {
    __device__ float operator()(float dy, float x, float) const
    {
        float x2 = fminf(x * x, 1e4f);
        float s = sigmoid2(x * (LOG2E * GELU_C1 + LOG2E * GELU_C3 * x2));
        float slope = GELU_C1 + 3.f * GELU_C3 * x2;
        return dy * (s + x * (s * (1.f - s)) * slope);
    }
};

struct silu {
    __device__ float operator()(float x, float, float) const
    {
        return x * sigmoid2(LOG2E * x);
    }
};

struct silu_dx {
    __device__ float operator()(float dy, float x, float) const
    {
        float s = sigmoid2(LOG2E * x);
        return dy * s * (1.f + x * (1.f - s));
    }
};

/* gelu_dx as a source of column sums (column_sum.cuh): dx is written as it is made, and what counts
 * is dx as it was written. */
template <typename D, typename T, int N> struct gelu_dx_source {
    static constexpr int n = N;
    static constexpr int ahead = sizeof(D) > sizeof(T) ? 2 : 3;
    struct raw {
        loaded<D, N> dy;
        loaded<T, N> x;
    };
    const D *dy;
    const T *x;
    T *dx;

    __device__ __forceinline__ void load(raw &r, int64_t at) const
    {
        r.dy.load(dy + at);
        r.x.load(x + at);
    }

    __device__ __forceinline__ void values(float (&v)[N], const raw &r, int64_t at) const
    {
        float input[N];
        vec<T, N> y;
        r.dy.floats(v);
        r.x.floats(input);
#pragma unroll
        for (int i = 0; i < N; i++)
            y.at[i] = from_float<T>(gelu_dx()(v[i], input[i], 0.f));
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = to_float(y.at[i]);
        *reinterpret_cast<vec<T, N> *>(dx + at) = y;
    }
};

template <typename D, typename T> void gelu_dx_with_sums(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *d = &a->in[1].desc;
    const int64_t rows = column_rows(d), cols = d->shape[d->ndim - 1];
    const D *dy = static_cast<const D *>(a->in[0].data);
    const T *x = static_cast<const T *>(a->in[1].data);
    T *dx = static_cast<T *>(a->out[0].data);
    float *sums = static_cast<float *>(a->out[1].data);
    if (aligned16(dy) && aligned16(x) && aligned16(dx) && cols % wide<T>::n == 0)
        column_sums(sums, gelu_dx_source<D, T, wide<T>::n>{dy, x, dx}, rows, cols, false,
                    a->workspace, stream_of(a));
    else
        column_sums(sums, gelu_dx_source<D, T, 1>{dy, x, dx}, rows, cols, false, a->workspace,
                    stream_of(a));
}

} // namespace

int cuda_gelu(const struct ckpt_kernel_args *a)
{
    return cuda_map<map_types<bf16, bf16>, map_types<float, float>>(a, &a->out[0], 1, a->in,
                                                                    gelu());
}

int cuda_gelu_dx(const struct ckpt_kernel_args *a)
{
    return cuda_map<map_types<bf16, bf16, bf16>, map_types<bf16, float, bf16>,
                    map_types<float, float, float>>(a, &a->out[0], 2, a->in, gelu_dx());
}

int cuda_gelu_dx_sums(const struct ckpt_kernel_args *a)
{
    const bool narrow = a->in[1].desc.dtype == CKPT_BF16;
    if (narrow && a->in[0].desc.dtype == CKPT_BF16)
        gelu_dx_with_sums<bf16, bf16>(a);
    else if (narrow)
        gelu_dx_with_sums<float, bf16>(a);
    else
        gelu_dx_with_sums<float, float>(a);
    return launched();
}

int cuda_silu(const struct ckpt_kernel_args *a)
{
    return cuda_map<map_types<bf16, bf16>, map_types<float, float>>(a, &a->out[0], 1, a->in,
                                                                    silu());
}

int cuda_silu_dx(const struct ckpt_kernel_args *a)
{
    return cuda_map<map_types<bf16, bf16, bf16>, map_types<bf16, float, bf16>,
                    map_types<float, float, float>>(a, &a->out[0], 2, a->in, silu_dx());
}

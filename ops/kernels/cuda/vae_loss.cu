/* SPDX-License-Identifier: Apache-2.0 */
/*
 * L1 loss, KL divergence of a normal distribution, and sampling from it, for dense operands.  A
 * block sums one chunk in double; then one block adds the chunks in order.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/kernels.h"
#include "vae_loss.h"

namespace
{

enum { THREADS = 256 };

__device__ __forceinline__ float clamped(float logvar)
{
    float v = logvar < LOGVAR_LOW ? LOGVAR_LOW : logvar; /* keeps NaN */
    return v > LOGVAR_HIGH ? LOGVAR_HIGH : v;
}

/* The gradient through the clamp: 0 outside of its bounds. */
__device__ __forceinline__ float inside(float logvar, float slope)
{
    return logvar < LOGVAR_LOW || logvar > LOGVAR_HIGH ? 0.f : slope;
}

/* ---- losses: the term of a pair of elements -------------------------------------------------- */

struct distance {
    __device__ double operator()(float a, float b) const
    {
        return (double)fabsf(a - b);
    }
};

struct divergence {
    __device__ double operator()(float mean, float logvar) const
    {
        float v = clamped(logvar);
        return (double)(mean * mean) + ((double)expf(v) - 1. - (double)v);
    }
};

template <typename A, typename B, typename F>
__global__ void __launch_bounds__(THREADS)
    sum_chunk(const A *a, const B *b, int64_t n, double *partial)
{
    int64_t begin = (int64_t)blockIdx.x * VAE_LOSS_CHUNK;
    int64_t end = min(n, begin + (int64_t)VAE_LOSS_CHUNK);
    double sum = 0;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        sum += F()(to_float(a[i]), to_float(b[i]));
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    add_chunks(const double *partial, int64_t chunks, double scale, float *loss)
{
    double sum = block_sum_of<THREADS>(partial, chunks);
    if (threadIdx.x == 0)
        *loss = (float)(scale * sum);
}

template <typename A, typename B, typename F>
int run_loss(const struct ckpt_kernel_args *k, double scale)
{
    int64_t n = desc_numel(&k->in[0].desc), chunks = vae_loss_chunks(n);
    double *partial = (double *)k->workspace;
    sum_chunk<A, B, F><<<(unsigned)chunks, THREADS, 0, stream_of(k)>>>(
        (const A *)k->in[0].data, (const B *)k->in[1].data, n, partial);
    add_chunks<<<1, THREADS, 0, stream_of(k)>>>(partial, chunks, scale, (float *)k->out[0].data);
    return launched();
}

/* ---- maps: one result from an element of up to three operands -------------------------------- */

/* slope is *dloss, read on the device, over count; 1 if dloss is NULL. */
template <typename Y, typename A, typename B, typename C, typename F>
__global__ void __launch_bounds__(THREADS)
    map(const float *dloss, double count, const A *a, const B *b, const C *c, Y *y, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float slope = dloss ? (float)((double)*dloss / count) : 1.f;
    if (i < n)
        y[i] = from_float<Y>(
            F()(to_float(a[i]), b ? to_float(b[i]) : 0.f, c ? to_float(c[i]) : 0.f, slope));
}

template <typename Y, typename A, typename B, typename C, typename F>
int run_map(const struct ckpt_kernel_args *k, const float *dloss, double count, const void *a,
            const void *b, const void *c, const struct ckpt_view *y)
{
    int64_t n = desc_numel(&y->desc);
    map<Y, A, B, C, F><<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream_of(k)>>>(
        dloss, count, (const A *)a, (const B *)b, (const C *)c, (Y *)y->data, n);
    return launched();
}

struct sign {
    __device__ float operator()(float a, float b, float, float slope) const
    {
        float d = a - b; /* keeps NaN */
        return d < 0.f ? -slope : d > 0.f ? slope : d;
    }
};

struct scale {
    __device__ float operator()(float mean, float, float, float slope) const
    {
        return slope * mean;
    }
};

struct divergence_slope {
    __device__ float operator()(float logvar, float, float, float slope) const
    {
        return inside(logvar, 0.5f * slope * (expf(clamped(logvar)) - 1.f));
    }
};

struct sample {
    __device__ float operator()(float mean, float logvar, float noise, float) const
    {
        return mean + expf(0.5f * clamped(logvar)) * noise;
    }
};

struct sample_slope {
    __device__ float operator()(float dz, float logvar, float noise, float) const
    {
        return inside(logvar, 0.5f * dz * expf(0.5f * clamped(logvar)) * noise);
    }
};

bool is_half(const struct ckpt_view *v)
{
    return v->desc.dtype == CKPT_BF16;
}

template <typename A, typename B> int l1_dx(const struct ckpt_kernel_args *k)
{
    return run_map<A, A, B, B, sign>(k, (const float *)k->in[0].data,
                                     (double)desc_numel(&k->in[1].desc), k->in[1].data,
                                     k->in[2].data, NULL, &k->out[0]);
}

template <typename T> int kl_normal_dx(const struct ckpt_kernel_args *k)
{
    const float *dloss = (const float *)k->in[0].data;
    double batch = (double)k->in[1].desc.shape[0];
    int rc = run_map<T, T, T, T, scale>(k, dloss, batch, k->in[1].data, NULL, NULL, &k->out[0]);
    if (rc)
        return rc;
    return run_map<T, T, T, T, divergence_slope>(k, dloss, batch, k->in[2].data, NULL, NULL,
                                                 &k->out[1]);
}

template <typename F> int of_three(const struct ckpt_kernel_args *k)
{
    const void *a = k->in[0].data, *b = k->in[1].data, *c = k->in[2].data;
    if (is_half(&k->out[0]))
        return run_map<bf16, bf16, bf16, bf16, F>(k, NULL, 1, a, b, c, &k->out[0]);
    return run_map<float, float, float, float, F>(k, NULL, 1, a, b, c, &k->out[0]);
}

} // namespace

int cuda_l1(const struct ckpt_kernel_args *k)
{
    double scale = 1. / (double)desc_numel(&k->in[0].desc);
    if (is_half(&k->in[0]))
        return is_half(&k->in[1]) ? run_loss<bf16, bf16, distance>(k, scale)
                                  : run_loss<bf16, float, distance>(k, scale);
    return is_half(&k->in[1]) ? run_loss<float, bf16, distance>(k, scale)
                              : run_loss<float, float, distance>(k, scale);
}

int cuda_l1_dx(const struct ckpt_kernel_args *k)
{
    if (is_half(&k->in[1]))
        return is_half(&k->in[2]) ? l1_dx<bf16, bf16>(k) : l1_dx<bf16, float>(k);
    return is_half(&k->in[2]) ? l1_dx<float, bf16>(k) : l1_dx<float, float>(k);
}

int cuda_kl_normal(const struct ckpt_kernel_args *k)
{
    double scale = 0.5 / (double)k->in[0].desc.shape[0];
    return is_half(&k->in[0]) ? run_loss<bf16, bf16, divergence>(k, scale)
                              : run_loss<float, float, divergence>(k, scale);
}

int cuda_kl_normal_dx(const struct ckpt_kernel_args *k)
{
    return is_half(&k->in[1]) ? kl_normal_dx<bf16>(k) : kl_normal_dx<float>(k);
}

int cuda_sample_normal(const struct ckpt_kernel_args *k)
{
    return of_three<sample>(k);
}

int cuda_sample_normal_dx(const struct ckpt_kernel_args *k)
{
    return of_three<sample_slope>(k);
}

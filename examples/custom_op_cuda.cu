/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA kernels of custom_op.  They are launched on the stream they are given, wait for nothing
 * and allocate nothing: a step is recorded once and replayed.
 */
#include "custom_op.h"

enum { THREADS = 256 };

static __global__ void softplus(float *y, const float *x, int64_t n, float s)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        y[i] = (fmaxf(s * x[i], 0.f) + log1pf(expf(-fabsf(s * x[i])))) / s;
}

static __global__ void softplus_dx(float *dx, const float *dy, const float *x, int64_t n, float s)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        dx[i] = dy[i] / (1.f + expf(-s * x[i]));
}

static float sharpness(const struct ckpt_kernel_args *a)
{
    return static_cast<const struct softplus_attr *>(a->attr)->sharpness;
}

static int launched(void)
{
    return cudaGetLastError() == cudaSuccess ? 0 : CKPT_EDEVICE;
}

int softplus_cuda(const struct ckpt_kernel_args *a)
{
    int64_t n = count(&a->in[0].desc);
    softplus<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, (cudaStream_t)a->stream>>>(
        static_cast<float *>(a->out[0].data), static_cast<const float *>(a->in[0].data), n,
        sharpness(a));
    return launched();
}

int softplus_dx_cuda(const struct ckpt_kernel_args *a)
{
    int64_t n = count(&a->in[0].desc);
    softplus_dx<<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, (cudaStream_t)a->stream>>>(
        static_cast<float *>(a->out[0].data), static_cast<const float *>(a->in[0].data),
        static_cast<const float *>(a->in[1].data), n, sharpness(a));
    return launched();
}

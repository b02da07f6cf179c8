/* SPDX-License-Identifier: Apache-2.0 */
/* Mean squared error with a frame mask.  Sums are in double, in an order that depends only on the
 * shapes. */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/walk.cuh"
#include "kernels/cuda/workspace.h"

#define THREADS 256
#define FLIGHT  4 /* loads in flight */

/* y = sum(x[0 .. n - 1]) / divisor, by one thread block. */
static __global__ void __launch_bounds__(1024)
    mean_of(float *y, const double *x, int64_t n, double divisor)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 1024)
        sum += x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *y = (float)(sum / divisor);
}

/* ---- mean squared error --------------------------------------------------------------------- */

/* The prediction [B, C, T, ...] as samples that consist of lines; a line is one frame of one
 * channel. */
struct frames {
    const int32_t *mask; /* [B, T] or NULL */
    int64_t batch, sample, frames, line;
};

/* 1 / (the number of unmasked elements of sample b), or 0 if there are none; all threads must call
 * it. */
static __device__ double sample_weight(const struct frames &f, int64_t b)
{
    double shown = 0;
    for (int64_t t = threadIdx.x; f.mask && t < f.frames; t += blockDim.x)
        shown += f.mask[b * f.frames + t] != 0;
    if (!f.mask)
        return 1.0 / (double)f.sample;
    shown = block_sum(shown);
    return shown > 0 ? (double)f.frames / (shown * (double)f.sample) : 0.0;
}

/* Is the frame of element i of sample b unmasked? */
static __device__ __forceinline__ bool frame_counts(const struct frames &f, int64_t b, int64_t i)
{
    return !f.mask || f.mask[b * f.frames + i / f.line % f.frames] != 0;
}

/* One thread block per chunk of a sample; it also applies the weight of the sample. */
template <typename P, typename Q>
static __global__ void __launch_bounds__(THREADS)
    mse_chunk(double *partial, const P *pred, const Q *target, struct frames f, int64_t chunks)
{
    int64_t b = blockIdx.x / chunks, begin = blockIdx.x % chunks * CUDA_MSE_CHUNK;
    int64_t end = min(f.sample, begin + CUDA_MSE_CHUNK), base = b * f.sample;
    double sum = 0;
    for (int64_t at = begin + threadIdx.x; at < end; at += FLIGHT * THREADS) {
        float d[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            int64_t i = at + k * THREADS;
            bool counts = i < end && frame_counts(f, b, i);
            d[k] = counts ? to_float(pred[base + i]) - to_float(target[base + i]) : 0.f;
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++)
            sum += (double)d[k] * (double)d[k];
    }
    sum = block_sum(sum);
    double weight = sample_weight(f, b);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum * weight;
}

/* dpred = slope (pred - target), with the same partition into blocks. */
template <typename P, typename Q>
static __global__ void __launch_bounds__(THREADS)
    mse_slope(P *dpred, const P *pred, const Q *target, const float *dloss, struct frames f,
              int64_t chunks)
{
    int64_t b = blockIdx.x / chunks, begin = blockIdx.x % chunks * CUDA_MSE_CHUNK;
    int64_t end = min(f.sample, begin + CUDA_MSE_CHUNK), base = b * f.sample;
    float slope = (float)(2.0 * (double)*dloss * sample_weight(f, b) / (double)f.batch);
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        float d = frame_counts(f, b, i)
                      ? slope * (to_float(pred[base + i]) - to_float(target[base + i]))
                      : 0.f;
        dpred[base + i] = from_float<P>(d);
    }
}

static struct frames frames_of(const struct ckpt_desc *pred, const struct ckpt_view *mask)
{
    struct frames f = {};
    f.mask = static_cast<const int32_t *>(mask->data);
    f.batch = pred->shape[0];
    f.sample = desc_numel(pred) / f.batch;
    f.frames = f.mask ? pred->shape[2] : 1;
    f.line = f.mask ? f.sample / pred->shape[1] / f.frames : f.sample;
    return f;
}

/* Calls go(P *, Q *) with the types of prediction and target. */
template <typename F>
static void with_types(const struct ckpt_view *pred, const struct ckpt_view *target, F go)
{
    bool half = target->desc.dtype == CKPT_BF16;
    if (pred->desc.dtype == CKPT_BF16) {
        bf16 *p = static_cast<bf16 *>(pred->data);
        if (half)
            go(p, static_cast<bf16 *>(target->data));
        else
            go(p, static_cast<float *>(target->data));
    } else {
        float *p = static_cast<float *>(pred->data);
        if (half)
            go(p, static_cast<bf16 *>(target->data));
        else
            go(p, static_cast<float *>(target->data));
    }
}

int cuda_mse(const struct ckpt_kernel_args *a)
{
    struct frames f = frames_of(&a->in[0].desc, &a->in[2]);
    int64_t chunks = cuda_mse_chunks(&a->in[0].desc), n = f.batch * chunks;
    double *partial = static_cast<double *>(a->workspace);
    with_types(&a->in[0], &a->in[1], [&](auto *pred, auto *target) {
        mse_chunk<<<(unsigned)n, THREADS, 0, stream_of(a)>>>(partial, pred, target, f, chunks);
    });
    mean_of<<<1, 1024, 0, stream_of(a)>>>(static_cast<float *>(a->out[0].data), partial, n,
                                          (double)f.batch);
    return launched();
}

int cuda_mse_dx(const struct ckpt_kernel_args *a)
{
    struct frames f = frames_of(&a->in[1].desc, &a->in[3]);
    int64_t chunks = cuda_mse_chunks(&a->in[1].desc);
    const float *dloss = static_cast<const float *>(a->in[0].data);
    void *dpred = a->out[0].data;
    with_types(&a->in[1], &a->in[2], [&](auto *pred, auto *target) {
        mse_slope<<<(unsigned)(f.batch * chunks), THREADS, 0, stream_of(a)>>>(
            static_cast<decltype(pred)>(dpred), pred, target, dloss, f, chunks);
    });
    return launched();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Timestep embedding: angles in double, as on the CPU.  One thread per pair of cosine and sine. */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/walk.cuh"
#include "embedding.h"

template <typename T>
static __global__ void __launch_bounds__(WALK_THREADS)
    embed(T *y, const float *x, int64_t batch, int64_t half, double log_period)
{
    int64_t at = (int64_t)blockIdx.x * WALK_THREADS + threadIdx.x, b = at / half, i = at % half;
    double cosine, sine;
    if (b >= batch)
        return;
    sincos((double)x[b] * exp(-log_period * (double)i / (double)half), &sine, &cosine);
    y[b * 2 * half + i] = from_float<T>((float)cosine);
    y[b * 2 * half + half + i] = from_float<T>((float)sine);
}

template <typename T> static int launch(const struct ckpt_kernel_args *a)
{
    const struct timestep_attr *attr = static_cast<const struct timestep_attr *>(a->attr);
    int64_t batch = a->in[0].desc.shape[0], half = attr->dim / 2;
    embed<<<blocks_of(batch * half, WALK_THREADS), WALK_THREADS, 0, stream_of(a)>>>(
        static_cast<T *>(a->out[0].data), static_cast<const float *>(a->in[0].data), batch, half,
        log((double)attr->max_period));
    return launched();
}

CUDA_FLOATS(timestep_embedding, out[0], launch)

/* SPDX-License-Identifier: Apache-2.0 */
/* amax, amin, prod, logsumexp, argmax; see fold.h. */
#include <math.h>
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.cuh"
#include "fold.h"

namespace
{

constexpr int THREADS = 256;

template <int KIND> __device__ __forceinline__ void put(void *y, int64_t r, struct fold f)
{
    if constexpr (KIND == FOLD_ARGMAX)
        static_cast<int32_t *>(y)[r] = (int32_t)f.other;
    else
        static_cast<float *>(y)[r] = fold_value(KIND, f);
}

/*
 * `lanes` threads (a power of 2) share one part of a result: each handles every lanes-th element,
 * then a tree combines their values.  Parts of the same result are contiguous.
 */
template <typename T, int KIND>
__global__ void __launch_bounds__(THREADS)
    fold_parts(void *y, struct fold *partial, const T *x, struct fold_shape s, int lanes)
{
    __shared__ struct fold found[THREADS];
    int lane = (int)threadIdx.x % lanes;
    int64_t task = (int64_t)blockIdx.x * (THREADS / lanes) + threadIdx.x / lanes;
    /* part is the outer index, so adjacent threads read adjacent columns */
    int64_t results = s.outer * s.inner, part = quotient(task, results), r = task - part * results;
    struct fold f = fold_begin(KIND);
    if (part < s.parts) {
        int64_t o = quotient(r, s.inner), to = s.n * (part + 1) / s.parts;
        const T *from = x + o * s.n * s.inner + (r - o * s.inner);
#pragma unroll 4
        for (int64_t i = s.n * part / s.parts + lane; i < to; i += lanes)
            fold_add(KIND, &f, to_float(from[i * s.inner]), i);
    }
    found[threadIdx.x] = f;
    for (int half = lanes / 2; half; half /= 2) {
        __syncthreads();
        if (lane < half)
            found[threadIdx.x] = fold_join(KIND, found[threadIdx.x], found[threadIdx.x + half]);
    }
    if (lane || part >= s.parts)
        return;
    f = found[threadIdx.x];
    if (s.parts > 1)
        partial[part * results + r] = f;
    else
        put<KIND>(y, r, f);
}

template <int KIND>
__global__ void __launch_bounds__(THREADS)
    join_parts(void *y, const struct fold *partial, int64_t results, int64_t parts)
{
    int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (r >= results)
        return;
    struct fold f = partial[r];
    for (int64_t part = 1; part < parts; part++)
        f = fold_join(KIND, f, partial[part * results + r]);
    put<KIND>(y, r, f);
}

template <int KIND> int fold_all(const struct ckpt_kernel_args *a)
{
    struct fold_shape s =
        fold_shape_of(&a->in[0].desc, static_cast<const struct fold_attr *>(a->attr));
    int64_t results = s.outer * s.inner, each = s.n / s.parts;
    int lanes = 1;
    while (s.inner == 1 && lanes < THREADS && lanes * 4 <= each)
        lanes *= 2;
    unsigned blocks = (unsigned)((results * s.parts * lanes + THREADS - 1) / THREADS);
    struct fold *partial = static_cast<struct fold *>(a->workspace);
    if (view_half(&a->in[0]))
        fold_parts<bf16, KIND><<<blocks, THREADS, 0, stream_of(a)>>>(
            a->out[0].data, partial, static_cast<const bf16 *>(a->in[0].data), s, lanes);
    else
        fold_parts<float, KIND><<<blocks, THREADS, 0, stream_of(a)>>>(
            a->out[0].data, partial, static_cast<const float *>(a->in[0].data), s, lanes);
    if (s.parts > 1)
        join_parts<KIND>
            <<<(unsigned)((results + THREADS - 1) / THREADS), THREADS, 0, stream_of(a)>>>(
                a->out[0].data, partial, results, s.parts);
    return launched();
}

} // namespace

#define FOLD(op, kind)                                                                             \
    int cuda_##op(const struct ckpt_kernel_args *a)                                                \
    {                                                                                              \
        return fold_all<kind>(a);                                                                  \
    }
FOLD(amax, FOLD_MAX)
FOLD(amin, FOLD_MIN)
FOLD(prod, FOLD_PROD)
FOLD(logsumexp, FOLD_LSE)
FOLD(argmax, FOLD_ARGMAX)

/* SPDX-License-Identifier: Apache-2.0 */
/* What the update needs to know of all gradients: sums of squares, and the clip values. */
#include "attr.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/walk.cuh"
#include "kernels/cuda/workspace.h"

#define THREADS 256
#define BATCHED 4 /* vectors in flight, reading gradients */

/* ---- sum of squares ------------------------------------------------------------------------- */

#define BATCH 128 /* tensors per launch; their pointers travel as arguments */

struct gradients {
    int n;
    const void *g[BATCH];
    int64_t numel[BATCH];
    uint32_t first[BATCH + 1]; /* chunk of each; the last is their number */
    bool half[BATCH];          /* bf16, not fp32 */
};

/* The tensor that a chunk belongs to: the last whose first chunk is not behind it. */
static __device__ __forceinline__ int tensor_of(const struct gradients &all, uint32_t chunk)
{
    int low = 0, high = all.n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (all.first[middle] <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static __device__ __forceinline__ double square(float x)
{
    return (double)x * (double)x;
}

/* A thread's part of the sum over g[0 .. n - 1], read as vectors where the address allows it. */
template <typename T> static __device__ __forceinline__ double square_sum(const T *g, int n)
{
    constexpr int V = wide<T>::n;
    int vectors = (uintptr_t)g % 16 ? 0 : n / V;
    double sum[4] = {};
    for (int i = threadIdx.x; i < vectors; i += BATCHED * THREADS) {
        vec<T, V> raw[BATCHED];
#pragma unroll
        for (int u = 0; u < BATCHED; u++)
            raw[u] = i + u * THREADS < vectors
                         ? reinterpret_cast<const vec<T, V> *>(g)[i + u * THREADS]
                         : vec<T, V>{};
#pragma unroll
        for (int u = 0; u < BATCHED; u++)
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k % 4] += square(to_float(raw[u].at[k]));
    }
    for (int i = V * vectors + threadIdx.x; i < n; i += THREADS)
        sum[0] += square(to_float(g[i]));
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* A thread block per chunk. */
static __global__ void __launch_bounds__(THREADS)
    square_chunks(double *partial, const __grid_constant__ struct gradients all)
{
    int k = tensor_of(all, blockIdx.x);
    int64_t begin = (int64_t)(blockIdx.x - all.first[k]) * CUDA_SQUARES_CHUNK;
    int n = (int)min((int64_t)CUDA_SQUARES_CHUNK, all.numel[k] - begin);
    double sum = all.half[k] ? square_sum(static_cast<const bf16 *>(all.g[k]) + begin, n)
                             : square_sum(static_cast<const float *>(all.g[k]) + begin, n);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* One thread block.  Of a step that failed other ranks learn by the sum. */
static __global__ void __launch_bounds__(1024)
    add_partials(float *y, const double *partial, int64_t n, const struct ckpt_run *run)
{
    double sum = block_sum_of<1024>(partial, n);
    if (threadIdx.x == 0)
        *y = run->halt && *run->halt ? NAN : (float)sum;
}

int cuda_sum_squares(const struct ckpt_kernel_args *a)
{
    double *partial = static_cast<double *>(a->workspace);
    int64_t chunks = 0;
    for (int from = 0; from < a->n_in; from += BATCH) {
        struct gradients some = {};
        some.n = (int)min_i64(BATCH, a->n_in - from);
        for (int i = 0; i < some.n; i++) {
            const struct ckpt_view *g = &a->in[from + i];
            some.g[i] = g->data;
            some.half[i] = g->desc.dtype == CKPT_BF16;
            some.numel[i] = desc_numel(&g->desc);
            some.first[i + 1] = some.first[i] + (uint32_t)cuda_squares_chunks(&g->desc);
        }
        square_chunks<<<some.first[some.n], THREADS, 0, stream_of(a)>>>(partial + chunks, some);
        chunks += some.first[some.n];
    }
    add_partials<<<1, 1024, 0, stream_of(a)>>>(static_cast<float *>(a->out[0].data), partial,
                                               chunks, a->run_device);
    return launched();
}

/* ---- clip values ---------------------------------------------------------------------------- */

#define SUMS 496 /* operands per launch: arguments stay below 4 KiB */

struct sums {
    int n;
    bool first, last; /* of the launches for one op */
    const float *at[SUMS];
};

/* beta^k by squaring: off by k ulp at most, which leaves 1 - beta^k ten digits and more. */
static __device__ double power(double beta, int64_t k)
{
    double p = 1;
    for (; k; k >>= 1, beta *= beta)
        if (k & 1)
            p *= beta;
    return p;
}

/* One thread block; `carry` takes the sum from launch to launch. */
static __global__ void __launch_bounds__(THREADS)
    clip(float *y, double *carry, const float *loss, struct clip_attr attr,
         const struct ckpt_run *run, const __grid_constant__ struct sums some)
{
    double sum = 0;
    for (int i = threadIdx.x; i < some.n; i += THREADS)
        sum += (double)*some.at[i];
    sum = block_sum(sum);
    if (some.last && threadIdx.x >= 32 && threadIdx.x < 32 + 2 + 2 * attr.more) {
        int i = (int)threadIdx.x - 32;
        double beta = (double)(i == 0 ? attr.beta1 : i == 1 ? attr.beta2 : attr.beta[i - 2]);
        y[CLIP_UNBIAS1 + i] = (float)(1.0 / (1.0 - power(beta, run->opt_step + 1)));
    }
    if (some.last && attr.scalars && threadIdx.x == 64) {
        y[CLIP_VALUES + 2 * attr.more] = (float)(run->opt_step + 1);
        y[CLIP_VALUES + 2 * attr.more + 1] = run->lr;
    }
    if (threadIdx.x)
        return;
    sum += some.first ? (isfinite(*loss) ? 0.0 : (double)NAN) : *carry;
    if (!some.last) {
        *carry = sum;
        return;
    }
    if (run->halt && *run->halt)
        sum = (double)NAN;
    double norm = sqrt(sum), factor = (double)attr.clip_norm / (norm + 1e-6);
    y[CLIP_NORM] = (float)norm;
    if (run->halt && !*run->halt && !isfinite((float)norm))
        *run->halt = HALT_NAN;
    y[CLIP_FACTOR] = attr.clip_norm > 0.f && factor < 1 ? (float)factor : 1.f;
}

int cuda_clip_coefficient(const struct ckpt_kernel_args *a)
{
    const struct clip_attr *attr = static_cast<const struct clip_attr *>(a->attr);
    const float *loss = static_cast<const float *>(a->in[0].data);
    int from = 1;
    do {
        struct sums some = {};
        some.n = (int)min_i64(SUMS, a->n_in - from);
        some.first = from == 1;
        some.last = from + some.n == a->n_in;
        for (int i = 0; i < some.n; i++)
            some.at[i] = static_cast<const float *>(a->in[from + i].data);
        clip<<<1, THREADS, 0, stream_of(a)>>>(static_cast<float *>(a->out[0].data),
                                              static_cast<double *>(a->workspace), loss, *attr,
                                              a->run_device, some);
        from += some.n;
    } while (from < a->n_in);
    return launched();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* ReLU, and distances of features along the last axis; see ops/kernels/cpu/perceptual.c. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map.cuh"
#include "perceptual.h"

namespace
{

enum { THREADS = 256, WARPS = THREADS / 32 };

CUDA_MAP(relu, x <= 0.f ? 0.f : x) /* keeps NaN */
CUDA_MAP(relu_dx, y <= 0.f ? 0.f : x)

/* ---- feature distance: one warp per row ------------------------------------------------------ */

template <typename T> __device__ __forceinline__ float inverse_length(const T *x, int64_t c)
{
    float squares = 0.f;
    for (int64_t j = threadIdx.x % 32; j < c; j += 32)
        squares += to_float(x[j]) * to_float(x[j]);
    squares = warp_sum(squares);
    return squares == 0.f ? 0.f : 1.f / sqrtf(squares);
}

/* A block sums DISTANCE_ROWS rows; each of its warps handles every eighth one. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    sum_distances(const T *a, const T *b, const T *w, int64_t rows, int64_t c, double *partial)
{
    int64_t begin = (int64_t)blockIdx.x * DISTANCE_ROWS, end = min(rows, begin + DISTANCE_ROWS);
    int lane = threadIdx.x % 32;
    double sum = 0;
    for (int64_t r = begin + threadIdx.x / 32; r < end; r += WARPS) {
        const T *x = a + r * c, *y = b + r * c;
        float by_x = inverse_length(x, c), by_y = inverse_length(y, c), part = 0.f;
        for (int64_t j = lane; j < c; j += 32) {
            float d = to_float(x[j]) * by_x - to_float(y[j]) * by_y;
            part += to_float(w[j]) * d * d;
        }
        sum += (double)part;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    add_partials(const double *partial, int64_t n, int64_t rows, float *loss)
{
    double sum = block_sum_of<THREADS>(partial, n);
    if (threadIdx.x == 0)
        *loss = (float)(sum / (double)rows);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    distance_slope(const float *dloss, const T *a, const T *b, const T *w, T *da, int64_t rows,
                   int64_t c)
{
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (r >= rows)
        return;
    const T *x = a + r * c, *y = b + r * c;
    int lane = threadIdx.x % 32;
    float by_x = inverse_length(x, c), by_y = inverse_length(y, c), along = 0.f;
    for (int64_t j = lane; j < c; j += 32) {
        float u = to_float(x[j]) * by_x, v = to_float(y[j]) * by_y;
        along += u * to_float(w[j]) * (u - v);
    }
    along = warp_sum(along);
    float slope = 2.f * by_x * (float)((double)*dloss / (double)rows);
    for (int64_t j = lane; j < c; j += 32) {
        float u = to_float(x[j]) * by_x, v = to_float(y[j]) * by_y;
        da[r * c + j] = from_float<T>(slope * (to_float(w[j]) * (u - v) - u * along));
    }
}

template <typename T> int feature_distance(const struct ckpt_kernel_args *k)
{
    const struct ckpt_desc *d = &k->in[0].desc;
    int64_t c = d->shape[d->ndim - 1], rows = desc_numel(d) / c, chunks = distance_chunks(rows);
    double *partial = (double *)k->workspace;
    sum_distances<T><<<(unsigned)chunks, THREADS, 0, stream_of(k)>>>(
        (const T *)k->in[0].data, (const T *)k->in[1].data, (const T *)k->in[2].data, rows, c,
        partial);
    add_partials<<<1, THREADS, 0, stream_of(k)>>>(partial, chunks, rows, (float *)k->out[0].data);
    return launched();
}

template <typename T> int feature_distance_dx(const struct ckpt_kernel_args *k)
{
    const struct ckpt_desc *d = &k->in[1].desc;
    int64_t c = d->shape[d->ndim - 1], rows = desc_numel(d) / c;
    distance_slope<T><<<(unsigned)((rows + WARPS - 1) / WARPS), THREADS, 0, stream_of(k)>>>(
        (const float *)k->in[0].data, (const T *)k->in[1].data, (const T *)k->in[2].data,
        (const T *)k->in[3].data, (T *)k->out[0].data, rows, c);
    return launched();
}

} // namespace

int cuda_relu(const struct ckpt_kernel_args *a)
{
    return cuda_map<map_types<bf16, bf16>, map_types<float, float>>(a, &a->out[0], 1, a->in,
                                                                    relu());
}

int cuda_relu_dx(const struct ckpt_kernel_args *a)
{
    return cuda_map<map_types<bf16, bf16, bf16>, map_types<bf16, float, bf16>,
                    map_types<float, float, float>>(a, &a->out[0], 2, a->in, relu_dx());
}

CUDA_FLOATS(feature_distance, in[0], feature_distance)
CUDA_FLOATS(feature_distance_dx, in[1], feature_distance_dx)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy: a thread block per row, which is read once in each direction, in vectors
 * of 16 bytes.  Maximum and sum run side by side (Milakov & Gimelshein 2018); sums over threads and
 * rows are double, in an order that follows from the shapes.
 */
#include "attr.h"
#include "cuda/kernels.h"
#include "cuda/report.cuh"
#include "cuda/workspace.h"

#define THREADS 512

/* What is the same for all rows. */
struct cross_entropy {
    const int32_t *label;
    const float *weight; /* of the classes, or NULL */
    int64_t rows, n;
    int32_t ignore;
    int reduction;
    float smoothing, z;
};

static struct cross_entropy open_call(const struct ckpt_kernel_args *a, int first, int weight)
{
    const struct cross_entropy_attr *attr = static_cast<const struct cross_entropy_attr *>(a->attr);
    const struct ckpt_desc *x = &a->in[first].desc;
    struct cross_entropy c = {};
    c.label = static_cast<const int32_t *>(a->in[first + 1].data);
    c.weight = a->n_in > weight ? static_cast<const float *>(a->in[weight].data) : NULL;
    c.n = x->shape[x->ndim - 1];
    c.rows = c.n ? desc_numel(x) / c.n : 0;
    c.ignore = attr->ignore_index;
    c.reduction = attr->reduction;
    c.smoothing = attr->label_smoothing;
    c.z = attr->z_loss;
    return c;
}

/* Rows of a grid: blocks walk them, so that any number goes. */
static unsigned row_blocks(const struct cross_entropy &c)
{
    return (unsigned)min_i64(c.rows, 1 << 20);
}

/* Threads for a row of n: short rows are left to a warp. */
static unsigned row_threads(int64_t n)
{
    return n <= 256 ? 32 : n <= 4096 ? 128 : THREADS;
}

/* The exponential: bf16 has no digits for more than the fast one gives. */
template <typename T> static __device__ __forceinline__ float power_of_e(float x)
{
    return expf(x);
}

template <> __device__ __forceinline__ float power_of_e<bf16>(float x)
{
    return __expf(x);
}

/* Elements before the first address that is a multiple of 16 bytes. */
template <typename T>
static __device__ __forceinline__ int64_t before_vectors(const T *x, int64_t n)
{
    int64_t skip = (int64_t)((16 - ((uintptr_t)x & 15)) & 15) / (int64_t)sizeof(T);
    return skip < n ? skip : n;
}

/* A thread's share of a row: the largest value, and the sum of exp(x - largest). */
template <typename T> struct running {
    float top, sum;

    template <int N> __device__ __forceinline__ void add(const float (&x)[N])
    {
        float here = x[0];
#pragma unroll
        for (int i = 1; i < N; i++)
            here = fmaxf(here, x[i]);
        here = fmaxf(here, top);
        float shift = here == -INFINITY ? 0.f : here;
        sum *= power_of_e<T>(top - shift);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += power_of_e<T>(x[i] - shift);
        top = here;
    }
};

/* Largest value over the block, in every thread; NaN does not count. */
static __device__ __forceinline__ float block_max(float x)
{
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int offset = 16; offset; offset >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    __syncthreads();
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    x = part[0];
    for (int i = 1; i < warps; i++)
        x = fmaxf(x, part[i]);
    return x;
}

/* Largest value of a row, and the sum of exp(x - largest), in every thread. */
template <typename T>
static __device__ __forceinline__ double softmax_row(const T *x, int64_t n, float *largest)
{
    constexpr int N = wide<T>::n;
    const int64_t skip = before_vectors(x, n), vectors = (n - skip) / N;
    struct running<T> r = {
        - INFINITY, 0.f
    };
    for (int64_t j = threadIdx.x; j < skip; j += blockDim.x)
        r.add({to_float(x[j])});
#pragma unroll 2
    for (int64_t j = threadIdx.x; j < vectors; j += blockDim.x) {
        float v[N];
        load_floats(v, x + skip + j * N);
        r.add(v);
    }
    for (int64_t j = skip + vectors * N + threadIdx.x; j < n; j += blockDim.x)
        r.add({to_float(x[j])});
    float top = block_max(r.top), shift = top == -INFINITY ? 0.f : top;
    *largest = top;
    return block_sum((double)r.sum * (double)expf(r.top - shift));
}

static __device__ __forceinline__ float class_weight(const struct cross_entropy &c, int64_t class_)
{
    return c.weight ? c.weight[class_] : 1.f;
}

/* Sum over the classes of weight x, and of the weights. */
template <typename T>
static __device__ void weighted_sums(const struct cross_entropy &c, const T *x, double *sum,
                                     double *all)
{
    double s = 0, w = 0;
    for (int64_t j = threadIdx.x; j < c.n; j += blockDim.x) {
        s += (double)class_weight(c, j) * (double)to_float(x[j]);
        w += (double)class_weight(c, j);
    }
    *sum = block_sum(s);
    *all = block_sum(w);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_rows(double *each, float2 *stats, float *out, const T *x,
                       const __grid_constant__ struct cross_entropy c,
                       const __grid_constant__ struct index_reporter reporter)
{
    for (int64_t b = blockIdx.x; b < c.rows; b += gridDim.x) {
        const T *row = x + b * c.n;
        const int32_t at = c.label[b];
        double loss = 0, smooth = 0, sum = 0, all = 0;
        float largest = 0;
        if (at != c.ignore) {
            sum = softmax_row(row, c.n, &largest);
            if (c.smoothing > 0.f)
                weighted_sums(c, row, &smooth, &all);
        }
        if (threadIdx.x)
            continue;
        stats[b] = make_float2(largest, (float)sum);
        if (at != c.ignore && !index_fits(reporter, b, at)) {
            loss = (double)NAN;
        } else if (at != c.ignore) {
            const double lse = (double)largest + log(sum), w = (double)class_weight(c, at);
            const double e = (double)c.smoothing;
            loss = (log(sum) + ((double)largest - (double)to_float(row[at]))) * w;
            if (e > 0)
                loss = (1 - e) * loss + e / (double)c.n * (all * lse - smooth);
            if (c.z > 0.f)
                loss += (double)c.z * w * lse * lse;
        }
        each[b] = loss;
        if (out)
            out[b] = (float)loss;
    }
}

/* One block: the loss of all rows, what it is divided by, and the sum of the class weights. */
static __global__ void __launch_bounds__(1024)
    cross_entropy_mean(float *loss, float *count, const double *each,
                       const __grid_constant__ struct cross_entropy c)
{
    double sum = 0, total = 0, all = 0;
    for (int64_t i = threadIdx.x; i < c.rows; i += 1024) {
        const int32_t at = c.label[i];
        sum += each[i];
        if (at != c.ignore)
            total += at >= 0 && at < c.n ? (double)class_weight(c, at) : 1.;
    }
    for (int64_t j = threadIdx.x; c.weight && j < c.n; j += 1024)
        all += (double)c.weight[j];
    sum = block_sum(sum);
    total = block_sum(total);
    all = block_sum(all);
    if (threadIdx.x)
        return;
    if (c.reduction == CKPT_REDUCE_MEAN && total > 0)
        sum /= total;
    if (loss)
        *loss = (float)sum;
    count[0] = (float)total;
    count[1] = c.weight ? (float)all : (float)c.n;
}

/* dx = slope (scale p - at[label] - rest weight) */
struct slopes {
    float slope, scale, at, rest;
};

static __device__ struct slopes slopes_of(const struct cross_entropy &c, int32_t at, float slope,
                                          float2 stats, float all)
{
    const float e = c.smoothing, w = at >= 0 && at < c.n ? class_weight(c, at) : 1.f;
    struct slopes s = {at >= 0 && at < c.n ? slope : NAN, (1 - e) * w, (1 - e) * w, 0.f};
    if (e > 0.f) {
        s.rest = e / (float)c.n;
        s.scale += s.rest * all;
    }
    if (c.z > 0.f)
        s.scale += 2 * c.z * (stats.x + logf(stats.y)) * w;
    return s;
}

template <typename T>
static __device__ __forceinline__ float slope_at(const struct cross_entropy &c,
                                                 const struct slopes &s, float x, float2 stats,
                                                 int64_t j, int32_t at)
{
    float p = power_of_e<T>(x - stats.x) * stats.y;
    float rest = s.rest == 0.f ? 0.f : s.rest * class_weight(c, j);
    return s.slope * (s.scale * p - (j == at ? s.at : 0.f) - rest);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_slope(T *dx, const T *x, const float2 *all_stats, const float *dloss,
                        const float *count, const __grid_constant__ struct cross_entropy c)
{
    constexpr int N = wide<T>::n;
    for (int64_t b = blockIdx.x; b < c.rows; b += gridDim.x) {
        const T *row = x + b * c.n;
        T *to = dx + b * c.n;
        const int32_t at = c.label[b];
        const bool counts = at != c.ignore;
        float slope = dloss[c.reduction == CKPT_REDUCE_NONE ? b : 0];
        if (c.reduction == CKPT_REDUCE_MEAN && count[0] > 0.f)
            slope /= count[0];
        float2 stats = all_stats[b];
        const struct slopes s = slopes_of(c, at, slope, stats, count[1]);
        stats.y = 1.f / stats.y;
        const bool vectors_fit = (((uintptr_t)row ^ (uintptr_t)to) & 15) == 0;
        const int64_t skip = vectors_fit ? before_vectors(row, c.n) : c.n;
        const int64_t vectors = (c.n - skip) / N;
        for (int64_t j = threadIdx.x; j < skip; j += blockDim.x)
            to[j] = from_float<T>(counts ? slope_at<T>(c, s, to_float(row[j]), stats, j, at) : 0.f);
#pragma unroll 2
        for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
            const int64_t j = skip + i * N;
            float v[N] = {};
            if (counts) {
                load_floats(v, row + j);
#pragma unroll
                for (int k = 0; k < N; k++)
                    v[k] = slope_at<T>(c, s, v[k], stats, j + k, at);
            }
            store_floats(to + j, v);
        }
        for (int64_t j = skip + vectors * N + threadIdx.x; j < c.n; j += blockDim.x)
            to[j] = from_float<T>(counts ? slope_at<T>(c, s, to_float(row[j]), stats, j, at) : 0.f);
    }
}

int cuda_cross_entropy(const struct ckpt_kernel_args *a)
{
    const struct cross_entropy c = open_call(a, 0, 2);
    const struct index_reporter reporter = index_reporter_of(a, c.n);
    double *each = static_cast<double *>(a->workspace);
    float2 *stats = static_cast<float2 *>(a->out[1].data);
    float *out = static_cast<float *>(a->out[0].data);
    float *rows_out = c.reduction == CKPT_REDUCE_NONE ? out : NULL;
    const unsigned threads = row_threads(c.n);
    const void *x = a->in[0].data;
    if (c.rows && a->in[0].desc.dtype == CKPT_BF16)
        cross_entropy_rows<<<row_blocks(c), threads, 0, stream_of(a)>>>(
            each, stats, rows_out, static_cast<const bf16 *>(x), c, reporter);
    else if (c.rows)
        cross_entropy_rows<<<row_blocks(c), threads, 0, stream_of(a)>>>(
            each, stats, rows_out, static_cast<const float *>(x), c, reporter);
    cross_entropy_mean<<<1, 1024, 0, stream_of(a)>>>(rows_out ? NULL : out,
                                                     static_cast<float *>(a->out[2].data), each, c);
    return launched();
}

int cuda_cross_entropy_dx(const struct ckpt_kernel_args *a)
{
    const struct cross_entropy c = open_call(a, 1, 5);
    const float2 *stats = static_cast<const float2 *>(a->in[3].data);
    const float *dloss = static_cast<const float *>(a->in[0].data);
    const float *count = static_cast<const float *>(a->in[4].data);
    const unsigned threads = row_threads(c.n);
    const void *x = a->in[1].data;
    void *dx = a->out[0].data;
    if (c.rows && a->in[1].desc.dtype == CKPT_BF16)
        cross_entropy_slope<<<row_blocks(c), threads, 0, stream_of(a)>>>(
            static_cast<bf16 *>(dx), static_cast<const bf16 *>(x), stats, dloss, count, c);
    else if (c.rows)
        cross_entropy_slope<<<row_blocks(c), threads, 0, stream_of(a)>>>(
            static_cast<float *>(dx), static_cast<const float *>(x), stats, dloss, count, c);
    return launched();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy: one thread block per row, which is read once in forward and once in
 * backward, in vectors of 16 bytes.  Maximum and sum are computed together, online (Milakov &
 * Gimelshein 2018).  Sums over threads and rows are in double, in an order that depends only on the
 * shapes.
 *
 * The kernel of loss and gradient together reads a row once: it keeps the row in the shared memory
 * of a block, or of a cluster of blocks (cross_entropy_hopper.cu).  Its results have the same bits
 * as the two separate kernels.
 */
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/workspace.h"

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

static struct index_reporter class_reporter(const struct ckpt_kernel_args *a,
                                            const struct cross_entropy &c)
{
    return index_reporter_of(
        a, cross_entropy_classes(static_cast<const struct cross_entropy_attr *>(a->attr), c.n));
}

/* Blocks of the grid; each loops over several rows if there are more. */
static unsigned row_blocks(const struct cross_entropy &c)
{
    return (unsigned)min_i64(c.rows, 1 << 20);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_rows(double *each, float2 *stats, float *out, const T *x,
                       const __grid_constant__ struct cross_entropy c,
                       const __grid_constant__ struct index_reporter reporter)
{
    constexpr int N = wide<T>::n;
    struct row_block team;
    for (int64_t b = blockIdx.x; b < c.rows; b += gridDim.x) {
        const T *row = x + b * c.n;
        const int64_t skip = before_vectors(row, c.n);
        const int32_t at = c.label[b];
        struct row_sums r = {};
        if (at != c.ignore) {
            if (threadIdx.x == 0 && at >= 0 && at < c.n)
                r.at = to_float(row[at]);
            auto load = [&](float (&v)[N], int64_t j) { load_floats(v, row + skip + j * N); };
            r.sum = softmax_row(team, row, c.n, skip, load, &r.largest);
            if (c.smoothing > 0.f)
                weighted_sums(team, c, row, &r.smooth, &r.all);
        }
        if (threadIdx.x)
            continue;
        stats[b] = make_float2(r.largest, (float)r.sum);
        each[b] = row_loss(c, r, b, at, reporter);
        if (out)
            out[b] = (float)each[b];
    }
}

/* Run by one block of 1024 threads. *total: the divisor of the mean loss; *all: the sum of the
 * class weights. */
static __device__ void count_rows(const struct cross_entropy &c, double *total, double *all)
{
    double of_rows = 0, of_classes = 0;
    for (int64_t i = threadIdx.x; i < c.rows; i += 1024) {
        const int32_t at = c.label[i];
        if (at != c.ignore)
            of_rows += at >= 0 && at < c.n ? (double)class_weight(c, at) : 1.;
    }
    for (int64_t j = threadIdx.x; c.weight && j < c.n; j += 1024)
        of_classes += (double)c.weight[j];
    *total = block_sum(of_rows);
    of_classes = block_sum(of_classes);
    *all = c.weight ? of_classes : (double)c.n;
}

static __global__ void __launch_bounds__(1024)
    cross_entropy_counts(float *count, const __grid_constant__ struct cross_entropy c)
{
    double total, all;
    count_rows(c, &total, &all);
    if (threadIdx.x)
        return;
    count[0] = (float)total;
    count[1] = (float)all;
}

/* One block: the loss over all rows. */
static __global__ void __launch_bounds__(1024)
    cross_entropy_mean(float *loss, float *count, const double *each,
                       const __grid_constant__ struct cross_entropy c)
{
    double sum = 0, total, all;
    for (int64_t i = threadIdx.x; i < c.rows; i += 1024)
        sum += each[i];
    sum = block_sum(sum);
    count_rows(c, &total, &all);
    if (threadIdx.x)
        return;
    if (c.reduction == CKPT_REDUCE_MEAN && total > 0)
        sum /= total;
    if (loss)
        *loss = (float)sum;
    if (count) {
        count[0] = (float)total;
        count[1] = (float)all;
    }
}

template <typename T, bool SMOOTH>
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
        const float slope = slope_of(c, dloss, count, b);
        const float2 stats = all_stats[b];
        const struct slopes s = slopes_of(c, at, slope, stats.x, stats.y, count[1]);
        const bool vectors_fit = (((uintptr_t)row ^ (uintptr_t)to) & 15) == 0;
        const int64_t skip = vectors_fit ? before_vectors(row, c.n) : c.n;
        const int64_t vectors = (c.n - skip) / N;
        for (int64_t j = threadIdx.x; j < skip; j += blockDim.x)
            to[j] =
                from_float<T>(counts ? slope_at<T, SMOOTH>(c, s, to_float(row[j]), j, at) : 0.f);
#pragma unroll 2
        for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
            const int64_t j = skip + i * N;
            float v[N] = {};
            if (counts) {
                load_floats(v, row + j);
                slopes_at<T, SMOOTH>(c, s, v, j, at);
            }
            stream_floats(to + j, v);
        }
        for (int64_t j = skip + vectors * N + threadIdx.x; j < c.n; j += blockDim.x)
            to[j] =
                from_float<T>(counts ? slope_at<T, SMOOTH>(c, s, to_float(row[j]), j, at) : 0.f);
    }
}

int cuda_cross_entropy(const struct ckpt_kernel_args *a)
{
    const struct cross_entropy c = open_call(a, 0, 2);
    const struct index_reporter reporter = class_reporter(a, c);
    double *each = static_cast<double *>(a->workspace);
    float2 *stats = static_cast<float2 *>(a->out[1].data);
    float *out = static_cast<float *>(a->out[0].data);
    float *rows_out = c.reduction == CKPT_REDUCE_NONE ? out : NULL;
    const int threads = row_threads(c.n);
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

template <typename T>
static void launch_slope(const struct ckpt_kernel_args *a, const struct cross_entropy &c)
{
    const float2 *stats = static_cast<const float2 *>(a->in[3].data);
    const float *dloss = static_cast<const float *>(a->in[0].data);
    const float *count = static_cast<const float *>(a->in[4].data);
    auto kernel = c.smoothing > 0.f ? cross_entropy_slope<T, true> : cross_entropy_slope<T, false>;
    if (c.rows)
        kernel<<<row_blocks(c), row_threads(c.n), 0, stream_of(a)>>>(
            static_cast<T *>(a->out[0].data), static_cast<const T *>(a->in[1].data), stats, dloss,
            count, c);
}

int cuda_cross_entropy_dx(const struct ckpt_kernel_args *a)
{
    const struct cross_entropy c = open_call(a, 1, 5);
    if (a->in[1].desc.dtype == CKPT_BF16)
        launch_slope<bf16>(a, c);
    else
        launch_slope<float>(a, c);
    return launched();
}

/* The number of blocks that fit on the device at once, each with a row in shared memory; 0: a row
 * does not fit. */
template <typename K> static int blocks_for(K kernel, int threads, int64_t bytes)
{
    int blocks = 0;
    if (bytes > device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - 1024)
        return 0;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, (size_t)bytes);
    return blocks * device_attribute(cudaDevAttrMultiProcessorCount);
}

template <typename T, bool SMOOTH>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_both(const __grid_constant__ struct both_operands<T> o,
                       const __grid_constant__ struct cross_entropy c,
                       const __grid_constant__ struct index_reporter reporter)
{
    extern __shared__ uint4 stage[];
    both_rows<T, SMOOTH>(row_block(), o, stage, c, reporter);
}

/* A row that does not fit in shared memory is read twice, by the kernels of the two separate ops;
 * so are rows whose gradients, as parts of a concat, begin elsewhere within 16 bytes than x. */
template <typename T>
static void launch_both(const struct ckpt_kernel_args *a, const struct cross_entropy &c,
                        double *each, float2 *stats, float *count)
{
    const struct index_reporter reporter = class_reporter(a, c);
    auto kernel = c.smoothing > 0.f ? cross_entropy_both<T, true> : cross_entropy_both<T, false>;
    auto slope = c.smoothing > 0.f ? cross_entropy_slope<T, true> : cross_entropy_slope<T, false>;
    const int64_t bytes = c.n / wide<T>::n * 16;
    const int threads = row_threads(c.n);
    const struct both_operands<T> o = {
        each,
        c.reduction == CKPT_REDUCE_NONE ? static_cast<float *>(a->out[0].data) : NULL,
        static_cast<T *>(a->out[1].data),
        static_cast<const T *>(a->in[1].data),
        static_cast<const float *>(a->in[0].data),
        count};
    const bool vectors_fit = (((uintptr_t)o.x ^ (uintptr_t)o.dx) & 15) == 0;
    if (vectors_fit && cross_entropy_cluster(o, c, reporter, stream_of(a)))
        return;
    const int blocks = vectors_fit ? blocks_for(kernel, threads, bytes) : 0;
    if (blocks) {
        kernel<<<(unsigned)min_i64(c.rows, blocks), threads, (size_t)bytes, stream_of(a)>>>(
            o, c, reporter);
        return;
    }
    cross_entropy_rows<<<row_blocks(c), threads, 0, stream_of(a)>>>(each, stats, o.out, o.x, c,
                                                                    reporter);
    slope<<<row_blocks(c), threads, 0, stream_of(a)>>>(o.dx, o.x, stats, o.dloss, count, c);
}

/* The workspace holds a loss for each row, the statistics for the gradient, and the counts. */
int cuda_cross_entropy_both(const struct ckpt_kernel_args *a)
{
    const struct cross_entropy c = open_call(a, 1, 3);
    double *each = static_cast<double *>(a->workspace);
    float2 *stats = reinterpret_cast<float2 *>(each + c.rows);
    float *count = reinterpret_cast<float *>(stats + c.rows);
    cross_entropy_counts<<<1, 1024, 0, stream_of(a)>>>(count, c);
    if (c.rows && a->in[1].desc.dtype == CKPT_BF16)
        launch_both<bf16>(a, c, each, stats, count);
    else if (c.rows)
        launch_both<float>(a, c, each, stats, count);
    if (c.reduction != CKPT_REDUCE_NONE)
        cross_entropy_mean<<<1, 1024, 0, stream_of(a)>>>(static_cast<float *>(a->out[0].data), NULL,
                                                         each, c);
    return launched();
}

int cuda_cross_entropy_count(const struct ckpt_kernel_args *a)
{
    const struct cross_entropy_attr *attr = static_cast<const struct cross_entropy_attr *>(a->attr);
    struct cross_entropy c = {};
    c.label = static_cast<const int32_t *>(a->in[0].data);
    c.rows = desc_numel(&a->in[0].desc);
    c.ignore = attr->ignore_index;
    if (a->n_in > 1) {
        c.weight = static_cast<const float *>(a->in[1].data);
        c.n = a->in[1].desc.shape[0];
    }
    cross_entropy_counts<<<1, 1024, 0, stream_of(a)>>>(static_cast<float *>(a->out[0].data), c);
    return launched();
}

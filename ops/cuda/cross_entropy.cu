/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy: a thread block per row, which is read once in each direction, in vectors
 * of 16 bytes.  Maximum and sum run side by side (Milakov & Gimelshein 2018); sums over threads and
 * rows are double, in an order that follows from the shapes.
 *
 * Loss and gradient together read a row once: it stays in shared memory between the two, while the
 * next row of the block comes in the background.  The bits are those of the two kernels.
 */
#include "attr.h"
#include "cuda/cp_async.cuh"
#include "cuda/kernels.h"
#include "cuda/report.cuh"
#include "cuda/rows.cuh"
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

/* Largest value of a row, and the sum of exp(x - largest), in every thread.  load(v, j) gives
 * vector j of those behind the first `skip` elements. */
template <typename T, typename LOAD>
static __device__ __forceinline__ double softmax_row(const T *x, int64_t n, int64_t skip,
                                                     LOAD load, float *largest)
{
    constexpr int N = wide<T>::n;
    const int64_t vectors = (n - skip) / N;
    struct running<T> r = {
        - INFINITY, 0.f
    };
    for (int64_t j = threadIdx.x; j < skip; j += blockDim.x)
        r.add({to_float(x[j])});
#pragma unroll 2
    for (int64_t j = threadIdx.x; j < vectors; j += blockDim.x) {
        float v[N];
        load(v, j);
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

/* What a row's loss is made of: the largest value, the sum of exp(x - largest), with smoothing the
 * sum over the classes of weight x and that of the weights. */
struct row_sums {
    float largest;
    double sum, smooth, all;
    float at; /* of the label; read before other threads write the gradient over it */
};

/* The loss of row b, by one thread; NaN, and a report, where its label is no class. */
static __device__ double row_loss(const struct cross_entropy &c, const struct row_sums &r,
                                  int64_t b, int32_t at, const struct index_reporter &reporter)
{
    if (at == c.ignore)
        return 0;
    if (!index_fits(reporter, b, at))
        return (double)NAN;
    const double lse = (double)r.largest + log(r.sum), w = (double)class_weight(c, at);
    const double e = (double)c.smoothing;
    double loss = (log(r.sum) + ((double)r.largest - (double)r.at)) * w;
    if (e > 0)
        loss = (1 - e) * loss + e / (double)c.n * (r.all * lse - r.smooth);
    if (c.z > 0.f)
        loss += (double)c.z * w * lse * lse;
    return loss;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_rows(double *each, float2 *stats, float *out, const T *x,
                       const __grid_constant__ struct cross_entropy c,
                       const __grid_constant__ struct index_reporter reporter)
{
    constexpr int N = wide<T>::n;
    for (int64_t b = blockIdx.x; b < c.rows; b += gridDim.x) {
        const T *row = x + b * c.n;
        const int64_t skip = before_vectors(row, c.n);
        const int32_t at = c.label[b];
        struct row_sums r = {};
        if (at != c.ignore) {
            if (threadIdx.x == 0 && at >= 0 && at < c.n)
                r.at = to_float(row[at]);
            auto load = [&](float (&v)[N], int64_t j) { load_floats(v, row + skip + j * N); };
            r.sum = softmax_row(row, c.n, skip, load, &r.largest);
            if (c.smoothing > 0.f)
                weighted_sums(c, row, &r.smooth, &r.all);
        }
        if (threadIdx.x)
            continue;
        stats[b] = make_float2(r.largest, (float)r.sum);
        each[b] = row_loss(c, r, b, at, reporter);
        if (out)
            out[b] = (float)each[b];
    }
}

/* By one block: what the loss of all rows is divided by, and the sum of the class weights. */
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

/* One block: the loss of all rows. */
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

/* dx = slope (scale p - at[label] - rest weight) */
struct slopes {
    float slope, scale, at, rest;
};

/* What reaches the loss of row b. */
static __device__ __forceinline__ float slope_of(const struct cross_entropy &c, const float *dloss,
                                                 const float *count, int64_t b)
{
    const float slope = dloss[c.reduction == CKPT_REDUCE_NONE ? b : 0];
    return c.reduction == CKPT_REDUCE_MEAN && count[0] > 0.f ? slope / count[0] : slope;
}

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

template <typename T, bool SMOOTH>
static __device__ __forceinline__ float slope_at(const struct cross_entropy &c,
                                                 const struct slopes &s, float x, float2 stats,
                                                 int64_t j, int32_t at)
{
    float p = power_of_e<T>(x - stats.x) * stats.y;
    float rest = SMOOTH ? s.rest * class_weight(c, j) : 0.f;
    return s.slope * (s.scale * p - (j == at ? s.at : 0.f) - rest);
}

/* The slopes of N elements from j on; the label, if it is one of them, is looked at once. */
template <typename T, bool SMOOTH, int N>
static __device__ __forceinline__ void slopes_at(const struct cross_entropy &c,
                                                 const struct slopes &s, float (&v)[N],
                                                 float2 stats, int64_t j, int32_t at)
{
    if (SMOOTH || (uint64_t)(at - j) < N) {
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = slope_at<T, SMOOTH>(c, s, v[k], stats, j + k, at);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = s.slope * (s.scale * (power_of_e<T>(v[k] - stats.x) * stats.y));
    }
}

/* 16 bytes in one access, which the compiler does not always make of a struct.  Nothing reads them
 * soon: they leave the cache first. */
static __device__ __forceinline__ void stream_floats(float *dst, const float (&v)[4])
{
    __stcs(reinterpret_cast<float4 *>(dst), make_float4(v[0], v[1], v[2], v[3]));
}

static __device__ __forceinline__ void stream_floats(bf16 *dst, const float (&v)[8])
{
    __stcs(reinterpret_cast<uint4 *>(dst),
           make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]),
                      bf16_pair(v[6], v[7])));
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
        float2 stats = all_stats[b];
        const struct slopes s = slopes_of(c, at, slope, stats, count[1]);
        stats.y = 1.f / stats.y;
        const bool vectors_fit = (((uintptr_t)row ^ (uintptr_t)to) & 15) == 0;
        const int64_t skip = vectors_fit ? before_vectors(row, c.n) : c.n;
        const int64_t vectors = (c.n - skip) / N;
        for (int64_t j = threadIdx.x; j < skip; j += blockDim.x)
            to[j] = from_float<T>(counts ? slope_at<T, SMOOTH>(c, s, to_float(row[j]), stats, j, at)
                                         : 0.f);
#pragma unroll 2
        for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
            const int64_t j = skip + i * N;
            float v[N] = {};
            if (counts) {
                load_floats(v, row + j);
                slopes_at<T, SMOOTH>(c, s, v, stats, j, at);
            }
            stream_floats(to + j, v);
        }
        for (int64_t j = skip + vectors * N + threadIdx.x; j < c.n; j += blockDim.x)
            to[j] = from_float<T>(counts ? slope_at<T, SMOOTH>(c, s, to_float(row[j]), stats, j, at)
                                         : 0.f);
    }
}

/* A row in shared memory: slot j holds vector j, and the thread that fills it is the one that reads
 * it. */
template <typename T> struct staged_row {
    const T *at;
    uint4 *slot;
    int64_t skip, vectors;

    __device__ __forceinline__ void open(const T *row, int64_t n, uint4 *stage)
    {
        at = row;
        slot = stage;
        skip = before_vectors(row, n);
        vectors = (n - skip) / wide<T>::n;
        for (int64_t j = threadIdx.x; j < vectors; j += blockDim.x)
            copy16(shared_address(slot + j), at + skip + j * wide<T>::n, true);
        copies_commit();
    }

    __device__ __forceinline__ void operator()(float (&v)[wide<T>::n], int64_t j) const
    {
        load_floats(v, reinterpret_cast<const T *>(slot + j));
    }
};

/* x and dx are multiples of 16 bytes, and may be one; room: vectors of a row, of which shared
 * memory has two. */
template <typename T, bool SMOOTH>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_both(double *each, float *out, T *dx, const T *x, const float *dloss,
                       const float *count, int64_t room,
                       const __grid_constant__ struct cross_entropy c,
                       const __grid_constant__ struct index_reporter reporter)
{
    constexpr int N = wide<T>::n;
    extern __shared__ uint4 stage[];
    struct staged_row<T> row, next;
    int64_t turn = 0;
    next.open(x + (int64_t)blockIdx.x * c.n, c.n, stage);
    for (int64_t b = blockIdx.x; b < c.rows; b += gridDim.x) {
        row = next;
        turn = room - turn;
        if (b + gridDim.x < c.rows)
            next.open(x + (b + gridDim.x) * c.n, c.n, stage + turn);
        else
            copies_commit();
        copies_wait_but<1>();
        const int32_t at = c.label[b];
        const bool counts = at != c.ignore;
        T *to = dx + b * c.n;
        struct row_sums r = {};
        if (counts) {
            if (threadIdx.x == 0 && at >= 0 && at < c.n)
                r.at = to_float(row.at[at]);
            r.sum = softmax_row(row.at, c.n, row.skip, row, &r.largest);
            if (c.smoothing > 0.f)
                weighted_sums(c, row.at, &r.smooth, &r.all);
        }
        if (threadIdx.x == 0) {
            each[b] = row_loss(c, r, b, at, reporter);
            if (out)
                out[b] = (float)each[b];
        }
        float2 stats = make_float2(r.largest, (float)r.sum);
        const struct slopes s =
            slopes_of(c, at, slope_of(c, dloss, count, b), stats, count[1]);
        stats.y = 1.f / stats.y;
        auto one = [&](int64_t j) {
            to[j] = from_float<T>(
                counts ? slope_at<T, SMOOTH>(c, s, to_float(row.at[j]), stats, j, at) : 0.f);
        };
        for (int64_t j = threadIdx.x; j < row.skip; j += blockDim.x)
            one(j);
#pragma unroll 2
        for (int64_t i = threadIdx.x; i < row.vectors; i += blockDim.x) {
            const int64_t j = row.skip + i * N;
            float v[N] = {};
            if (counts) {
                row(v, i);
                slopes_at<T, SMOOTH>(c, s, v, stats, j, at);
            }
            stream_floats(to + j, v);
        }
        for (int64_t j = row.skip + row.vectors * N + threadIdx.x; j < c.n; j += blockDim.x)
            one(j);
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

/* Blocks that the device has room for, each with two rows; 0: shared memory is too small. */
template <typename K> static int blocks_for(K kernel, int threads, int64_t bytes)
{
    int blocks = 0;
    if (bytes > device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - 1024)
        return 0;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, (size_t)bytes);
    return blocks * device_attribute(cudaDevAttrMultiProcessorCount);
}

/* A row that does not fit is read twice, by the kernels of the two ops. */
template <typename T>
static void launch_both(const struct ckpt_kernel_args *a, const struct cross_entropy &c,
                        double *each, float2 *stats, float *count)
{
    const struct index_reporter reporter = index_reporter_of(a, c.n);
    auto kernel = c.smoothing > 0.f ? cross_entropy_both<T, true> : cross_entropy_both<T, false>;
    auto slope = c.smoothing > 0.f ? cross_entropy_slope<T, true> : cross_entropy_slope<T, false>;
    const int64_t room = c.n / wide<T>::n;
    const unsigned threads = row_threads(c.n);
    const int blocks = blocks_for(kernel, (int)threads, 32 * room);
    const float *dloss = static_cast<const float *>(a->in[0].data);
    const T *x = static_cast<const T *>(a->in[1].data);
    T *dx = static_cast<T *>(a->out[1].data);
    float *out = c.reduction == CKPT_REDUCE_NONE ? static_cast<float *>(a->out[0].data) : NULL;
    if (blocks) {
        kernel<<<(unsigned)min_i64(c.rows, blocks), threads, (size_t)(32 * room), stream_of(a)>>>(
            each, out, dx, x, dloss, count, room, c, reporter);
        return;
    }
    cross_entropy_rows<<<row_blocks(c), threads, 0, stream_of(a)>>>(each, stats, out, x, c,
                                                                    reporter);
    slope<<<row_blocks(c), threads, 0, stream_of(a)>>>(dx, x, stats, dloss, count, c);
}

/* The workspace: a loss for each row, what its gradient needs, the counts. */
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

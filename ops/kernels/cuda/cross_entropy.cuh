/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy of rows: the arithmetic shared by its kernels.  A team of threads processes
 * one row.  The bits do not depend on the kind of team: the number of threads follows from the row
 * length, vector j belongs to thread j modulo that number, and sums over threads go warp by warp in
 * one order.
 */
#ifndef CKPT_CUDA_CROSS_ENTROPY_CUH
#define CKPT_CUDA_CROSS_ENTROPY_CUH

#include "attr.h"
#include "kernels/cuda/cp_async.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/report.cuh"
#include "kernels/cuda/rows.cuh"

constexpr int THREADS = 1024; /* most threads of a row */

/* The arguments common to all rows. */
struct cross_entropy {
    const int32_t *label;
    const float *weight; /* of the classes, or NULL */
    int64_t rows, n;
    int32_t ignore;
    int reduction;
    float smoothing, z;
};

/* exp(x).  The approximation is exact enough for bf16 results. */
template <typename T> static __device__ __forceinline__ float power_of_e(float x)
{
    return expf(x);
}

template <> __device__ __forceinline__ float power_of_e<bf16>(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}

/* The number of elements before the first address that is a multiple of 16 bytes. */
template <typename T>
static __device__ __forceinline__ int64_t before_vectors(const T *x, int64_t n)
{
    int64_t skip = (int64_t)((16 - ((uintptr_t)x & 15)) & 15) / (int64_t)sizeof(T);
    return skip < n ? skip : n;
}

/* Reductions of N values as a tree: a shorter chain of dependent operations. */
template <int N> static __device__ __forceinline__ float tree_max(const float (&x)[N])
{
    float y[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        y[i] = x[i];
#pragma unroll
    for (int apart = 1; apart < N; apart *= 2)
#pragma unroll
        for (int i = 0; i + apart < N; i += 2 * apart)
            y[i] = fmaxf(y[i], y[i + apart]);
    return y[0];
}

template <int N> static __device__ __forceinline__ float tree_sum(float (&x)[N])
{
#pragma unroll
    for (int apart = 1; apart < N; apart *= 2)
#pragma unroll
        for (int i = 0; i + apart < N; i += 2 * apart)
            x[i] += x[i + apart];
    return x[0];
}

/* One thread's part of a row: the maximum, and the sum of exp(x - maximum). */
template <typename T> struct running {
    float top, sum;

    template <int N> __device__ __forceinline__ void add(const float (&x)[N])
    {
        const float here = fmaxf(top, tree_max(x)), shift = here == -INFINITY ? 0.f : here;
        float e[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = power_of_e<T>(x[i] - shift);
        sum = fmaf(sum, power_of_e<T>(top - shift), tree_sum(e));
        top = here;
    }
};

/* The maximum over a block, in every thread. */
static __device__ __forceinline__ float block_max(float x)
{
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    x = part[0];
    for (int i = 1; i < warps; i++)
        x = fmaxf(x, part[i]);
    return x;
}

/* A team: the threads that process a row together.  It also says which rows are the team's.  This
 * team is a block; cross_entropy_hopper.cu defines clusters. */
struct row_block {
    __device__ __forceinline__ int thread(void) const
    {
        return threadIdx.x;
    }

    __device__ __forceinline__ int threads(void) const
    {
        return blockDim.x;
    }

    /* Where the block keeps vector j, which belongs to the calling thread. */
    __device__ __forceinline__ int64_t slot(int64_t j) const
    {
        return j;
    }

    __device__ __forceinline__ int64_t number(void) const
    {
        return blockIdx.x;
    }

    __device__ __forceinline__ int64_t count(void) const
    {
        return gridDim.x;
    }

    __device__ __forceinline__ float largest(float x)
    {
        return block_max(x);
    }

    __device__ __forceinline__ double sum(double x)
    {
        return block_sum(x);
    }
};

/* The maximum of a row, and the sum of exp(x - maximum), in every thread. load(v, j) loads vector j
 * of the elements after the first `skip`. */
template <typename T, typename TEAM, typename LOAD>
static __device__ __forceinline__ double softmax_row(TEAM &team, const T *x, int64_t n,
                                                     int64_t skip, LOAD load, float *largest)
{
    constexpr int N = wide<T>::n;
    const int64_t vectors = (n - skip) / N;
    struct running<T> r = {
        - INFINITY, 0.f
    };
    for (int64_t j = team.thread(); j < skip; j += team.threads())
        r.add({to_float(x[j])});
#pragma unroll 2
    for (int64_t j = team.thread(); j < vectors; j += team.threads()) {
        float v[N];
        load(v, j);
        r.add(v);
    }
    for (int64_t j = skip + vectors * N + team.thread(); j < n; j += team.threads())
        r.add({to_float(x[j])});
    float top = team.largest(r.top), shift = top == -INFINITY ? 0.f : top;
    *largest = top;
    return team.sum((double)r.sum * (double)expf(r.top - shift));
}

static __device__ __forceinline__ float class_weight(const struct cross_entropy &c, int64_t class_)
{
    return c.weight ? c.weight[class_] : 1.f;
}

/* *sum: the sum over the classes of weight * x; *all: the sum of the weights. */
template <typename T, typename TEAM>
static __device__ void weighted_sums(TEAM &team, const struct cross_entropy &c, const T *x,
                                     double *sum, double *all)
{
    double s = 0, w = 0;
    for (int64_t j = team.thread(); j < c.n; j += team.threads()) {
        s += (double)class_weight(c, j) * (double)to_float(x[j]);
        w += (double)class_weight(c, j);
    }
    *sum = team.sum(s);
    *all = team.sum(w);
}

/* The values from which a row's loss is computed: the maximum, the sum of exp(x - maximum) and,
 * with smoothing, the sum over the classes of weight * x and the sum of the weights. */
struct row_sums {
    float largest;
    double sum, smooth, all;
    float at; /* x at the label; read before other threads overwrite it with the gradient */
};

/* The loss of row b, computed by one thread; NaN, with a report, if its label is not a class. */
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

/* dx = scale exp(x - largest) - slope ([j == label] at + rest weight[j]) */
struct slopes {
    float slope, scale, at, rest, largest;
};

/* The gradient that reaches the loss of row b. */
static __device__ __forceinline__ float slope_of(const struct cross_entropy &c, const float *dloss,
                                                 const float *count, int64_t b)
{
    const float slope = dloss[c.reduction == CKPT_REDUCE_NONE ? b : 0];
    return c.reduction == CKPT_REDUCE_MEAN && count[0] > 0.f ? slope / count[0] : slope;
}

/* The coefficients of a row; sum: of exp(x - largest); all: the sum of the class weights. */
static __device__ struct slopes slopes_of(const struct cross_entropy &c, int32_t at, float slope,
                                          float largest, float sum, float all)
{
    const bool fits = at >= 0 && at < c.n;
    const float e = c.smoothing, w = fits ? class_weight(c, at) : 1.f;
    struct slopes s = {fits ? slope : NAN, (1 - e) * w, (1 - e) * w, 0.f, largest};
    if (e > 0.f) {
        s.rest = e / (float)c.n;
        s.scale += s.rest * all;
    }
    if (c.z > 0.f)
        s.scale += 2 * c.z * (largest + logf(sum)) * w;
    s.scale *= s.slope / sum;
    return s;
}

template <typename T, bool SMOOTH>
static __device__ __forceinline__ float slope_at(const struct cross_entropy &c,
                                                 const struct slopes &s, float x, int64_t j,
                                                 int32_t at)
{
    const float rest = SMOOTH ? s.rest * class_weight(c, j) : 0.f;
    return s.scale * power_of_e<T>(x - s.largest) - s.slope * ((j == at ? s.at : 0.f) + rest);
}

/* The gradients of N elements from j on.  Whether the label is one of them is tested once. */
template <typename T, bool SMOOTH, int N>
static __device__ __forceinline__ void slopes_at(const struct cross_entropy &c,
                                                 const struct slopes &s, float (&v)[N], int64_t j,
                                                 int32_t at)
{
    if (SMOOTH || (uint64_t)(at - j) < N) {
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = slope_at<T, SMOOTH>(c, s, v[k], j + k, at);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = s.scale * power_of_e<T>(v[k] - s.largest);
    }
}

/* Stores 16 bytes with one instruction, which the compiler does not always do for a struct.  The
 * hint evicts the line first, since the data is not read soon. */
static __device__ __forceinline__ void stream_floats(float *dst, const float (&v)[4])
{
    __stcs(reinterpret_cast<float4 *>(dst), make_float4(v[0], v[1], v[2], v[3]));
}

static __device__ __forceinline__ void stream_floats(bf16 *dst, const float (&v)[8])
{
    __stcs(reinterpret_cast<uint4 *>(dst),
           make_uint4(pack2(v[0], v[1]), pack2(v[2], v[3]), pack2(v[4], v[5]),
                      pack2(v[6], v[7])));
}

/* ---- loss and gradient together -------------------------------------------------------------- */

/* A row in shared memory; each block of a team keeps a part.  Every slot is filled and read by the
 * same thread. */
template <typename T> struct staged_row {
    const T *at;
    uint4 *slots;
    int64_t skip, vectors;

    __device__ __forceinline__ staged_row(const T *row, int64_t n, uint4 *stage)
        : at(row), slots(stage), skip(before_vectors(row, n)), vectors((n - skip) / wide<T>::n)
    {
    }

    template <typename TEAM> __device__ __forceinline__ void fill(const TEAM &team, int64_t j) const
    {
        copy16(shared_address(slots + team.slot(j)), at + skip + j * wide<T>::n, true);
    }

    template <typename TEAM>
    __device__ __forceinline__ void read(const TEAM &team, float (&v)[wide<T>::n], int64_t j) const
    {
        load_floats(v, reinterpret_cast<const T *>(slots + team.slot(j)));
    }
};

/* Threads for a row of n elements; a short row uses a single warp. */
static inline int row_threads(int64_t n)
{
    return n <= 256 ? 32 : n <= 4096 ? 128 : n <= 65536 ? THREADS / 2 : THREADS;
}

/* x and dx begin at the same place within 16 bytes, and may be the same tensor. */
template <typename T> struct both_operands {
    double *each;
    float *out; /* NULL: only the sum over all rows is requested */
    T *dx;
    const T *x;
    const float *dloss, *count;
};

/* Processes the rows of a team.  Each vector of the next row is loaded into its slot as soon as the
 * second read of the current row has freed it. */
template <typename T, bool SMOOTH, typename TEAM>
static __device__ __forceinline__ void both_rows(TEAM team, const struct both_operands<T> &o,
                                                 uint4 *stage, const struct cross_entropy &c,
                                                 const struct index_reporter &reporter)
{
    constexpr int N = wide<T>::n;
    const int threads = team.threads();
    struct staged_row<T> row(o.x + team.number() * c.n, c.n, stage);
    for (int64_t i = team.thread(); i < row.vectors; i += threads)
        row.fill(team, i);
    for (int64_t b = team.number(); b < c.rows; b += team.count()) {
        const int32_t at = c.label[b];
        const bool counts = at != c.ignore, more = b + team.count() < c.rows;
        const float slope = slope_of(c, o.dloss, o.count, b), all = o.count[1];
        T *to = o.dx + b * c.n;
        struct row_sums r = {};
        copies_wait();
        if (counts) {
            if (team.thread() == 0 && at >= 0 && at < c.n)
                r.at = to_float(row.at[at]);
            auto load = [&](float (&v)[N], int64_t j) { row.read(team, v, j); };
            r.sum = softmax_row(team, row.at, c.n, row.skip, load, &r.largest);
            if (c.smoothing > 0.f)
                weighted_sums(team, c, row.at, &r.smooth, &r.all);
        }
        const struct slopes s = slopes_of(c, at, slope, r.largest, (float)r.sum, all);
        auto one = [&](int64_t j) {
            to[j] =
                from_float<T>(counts ? slope_at<T, SMOOTH>(c, s, to_float(row.at[j]), j, at) : 0.f);
        };
        for (int64_t j = team.thread(); j < row.skip; j += threads)
            one(j);
        const struct staged_row<T> next(more ? row.at + team.count() * c.n : row.at, c.n, stage);
        const int64_t come = more ? next.vectors : 0;
        int64_t i = team.thread();
#pragma unroll 2
        for (; i < row.vectors; i += threads) {
            const int64_t j = row.skip + i * N;
            float v[N] = {};
            if (counts) {
                row.read(team, v, i);
                slopes_at<T, SMOOTH>(c, s, v, j, at);
            }
            stream_floats(to + j, v);
            if (i < come)
                next.fill(team, i);
        }
        if (i < come)
            next.fill(team, i);
        for (int64_t j = row.skip + row.vectors * N + team.thread(); j < c.n; j += threads)
            one(j);
        if (team.thread() == 0) {
            o.each[b] = row_loss(c, r, b, at, reporter);
            if (o.out)
                o.out[b] = (float)o.each[b];
        }
        row = next;
    }
}

/* Computes rows of which a multiprocessor cannot hold two, by clusters of blocks on Hopper.
 * Returns false if it launched nothing. */
bool cross_entropy_cluster(const struct both_operands<float> &o, const struct cross_entropy &c,
                           const struct index_reporter &reporter, cudaStream_t stream);
bool cross_entropy_cluster(const struct both_operands<bf16> &o, const struct cross_entropy &c,
                           const struct index_reporter &reporter, cudaStream_t stream);

#endif

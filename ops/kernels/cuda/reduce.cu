/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum and sum_to.  Sums are in double, and their order depends only on the shapes.  If the results
 * are contiguous in memory, a thread adds a column of vectors; if the summed elements are, a power
 * of 2 of threads share a result.  A long range is split into parts, whose sums form the rows of a
 * matrix in the workspace; these are then summed by columns.
 */
#include "attr.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/walk.cuh"
#include "kernels/cuda/workspace.h"

#define THREADS 256
#define FLIGHT  4 /* loads before the first is added */

static __device__ __forceinline__ double to_double(float x)
{
    return (double)x;
}

static __device__ __forceinline__ double to_double(bf16 x)
{
    return (double)to_float(x);
}

static __device__ __forceinline__ double to_double(double x)
{
    return x;
}

/* The destination of sums: the row of their part in the workspace, or y. */
struct target {
    double *partial; /* NULL: final results go to y */
    float *y;
    int64_t results;
    double scale;
    bool accumulate;
};

static __device__ __forceinline__ void put(const struct target &t, int64_t part, int64_t result,
                                           double sum)
{
    if (t.partial)
        t.partial[part * t.results + result] = sum;
    else
        t.y[result] = (float)((t.accumulate ? (double)t.y[result] : 0.0) + t.scale * sum);
}

/* The reduced range; positions are steps of a walk over x. */
struct range {
    int64_t length, part; /* positions of the range, and of one part */
    uint32_t parts;
    bool far; /* more positions than fit in 32 bits */
};

static __device__ __forceinline__ int64_t offset_in(const struct walk &w, const struct range &r,
                                                    int64_t i)
{
    int64_t at[1];
    if (r.far)
        walk_seek_far(w, i, at);
    else
        walk_seek(w, (uint32_t)i, at);
    return at[0];
}

/* sum[v] += element v of the vectors at positions i, i + step, ... below end. */
template <int V, typename T>
static __device__ __forceinline__ void add_up(double (&sum)[V], const T *x, const struct walk &w,
                                              const struct range &r, int64_t i, int64_t end,
                                              int64_t step)
{
    for (; i < end; i += FLIGHT * step) {
        vec<T, V> raw[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
            if (i + f * step < end)
                raw[f] = *reinterpret_cast<const vec<T, V> *>(x + offset_in(w, r, i + f * step));
#pragma unroll
        for (int f = 0; f < FLIGHT; f++)
            if (i + f * step < end)
#pragma unroll
                for (int v = 0; v < V; v++)
                    sum[v] += to_double(raw[f].at[v]);
    }
}

/*
 * Blocks: (columns / lanes) x parts.  `lanes` adjacent threads handle a vector of V results each;
 * each line of threads adds every (THREADS / lanes)-th position of the range; a tree adds the
 * lines.
 */
template <int V, typename T>
static __global__ void __launch_bounds__(THREADS)
    sum_columns(const T *x, const __grid_constant__ struct walk kept,
                const __grid_constant__ struct walk reduced, struct range r, int lanes,
                struct target t)
{
    __shared__ double share[V][THREADS];
    int lines = THREADS / lanes, line = threadIdx.x / lanes;
    uint32_t part = blockIdx.x % r.parts;
    int64_t column = (int64_t)(blockIdx.x / r.parts) * lanes + threadIdx.x % lanes;
    int64_t from = part * r.part, end = min(r.length, from + r.part);
    int64_t at[2] = {0, 0};
    double sum[V] = {};
    if (column < kept.count) {
        walk_seek(kept, (uint32_t)column, at);
        add_up(sum, x + at[1], reduced, r, from + line, end, lines);
    }
#pragma unroll
    for (int v = 0; v < V; v++)
        share[v][threadIdx.x] = sum[v];
    for (int half = lines / 2; half; half /= 2) {
        __syncthreads();
        if (line < half)
#pragma unroll
            for (int v = 0; v < V; v++)
                share[v][threadIdx.x] += share[v][threadIdx.x + half * lanes];
    }
    if (line == 0 && column < kept.count)
#pragma unroll
        for (int v = 0; v < V; v++)
            put(t, part, at[0] + v, share[v][threadIdx.x]);
}

/* Blocks: (results / (THREADS / lanes)) x parts; `lanes` threads add the vectors of one result. */
template <int V, typename T>
static __global__ void __launch_bounds__(THREADS)
    sum_rows(const T *x, const __grid_constant__ struct walk kept,
             const __grid_constant__ struct walk reduced, struct range r, int lanes,
             struct target t)
{
    __shared__ double share[THREADS];
    int lane = threadIdx.x % lanes;
    uint32_t part = blockIdx.x % r.parts;
    int64_t result = (int64_t)(blockIdx.x / r.parts) * (THREADS / lanes) + threadIdx.x / lanes;
    int64_t from = part * r.part, end = min(r.length, from + r.part);
    int64_t at[2] = {0, 0};
    double sum[V] = {}, all = 0;
    if (result < kept.count) {
        walk_seek(kept, (uint32_t)result, at);
        add_up(sum, x + at[1], reduced, r, from + lane, end, lanes);
    }
#pragma unroll
    for (int v = 0; v < V; v++)
        all += sum[v];
    share[threadIdx.x] = all;
    for (int half = lanes / 2; half; half /= 2) {
        __syncthreads();
        if (lane < half)
            share[threadIdx.x] += share[threadIdx.x + half];
    }
    if (lane == 0 && result < kept.count)
        put(t, part, at[0], share[threadIdx.x]);
}

/* ---- host ----------------------------------------------------------------------------------- */

struct job {
    struct reduction r;
    int64_t parts;
    struct target target;
    cudaStream_t stream;
};

/* Adjacent threads for a number of columns: a power of 2, at most 32. */
static int lanes_for(int64_t columns)
{
    int lanes = 1;
    while (lanes < 32 && lanes < columns)
        lanes *= 2;
    return lanes;
}

/* kept and reduced are already in steps of V; `first` is the index of the first result of the
 * piece. */
template <int V, typename T>
static void launch(const struct job *j, const struct loops *kept, const struct loops *reduced,
                   const T *x, int64_t first)
{
    struct walk k = walk_of(kept, kept->ndim), r = walk_of(reduced, reduced->ndim);
    struct target t = j->target;
    struct range range = {};
    int lanes = j->r.columns ? lanes_for(k.count) : (int)cuda_reduce_lanes(&j->r);
    range.length = loops_count(reduced, reduced->ndim);
    range.part = (range.length + j->parts - 1) / j->parts;
    range.parts = (uint32_t)j->parts;
    range.far = range.length > WALK_MOST;
    t.y += first;
    if (t.partial)
        t.partial += first;
    if (j->r.columns) {
        unsigned blocks = blocks_of(k.count, lanes) * (unsigned)j->parts;
        sum_columns<V, T><<<blocks, THREADS, 0, j->stream>>>(x, k, r, range, lanes, t);
    } else {
        unsigned blocks = blocks_of(k.count, THREADS / lanes) * (unsigned)j->parts;
        sum_rows<V, T><<<blocks, THREADS, 0, j->stream>>>(x, k, r, range, lanes, t);
    }
}

static bool strides_divide(const struct loops *l, int k, int64_t n)
{
    for (int i = 0; i < l->ndim; i++)
        if (l->stride[k][i] % n)
            return false;
    return true;
}

/* Launches with vectors along the dense axis if strides and alignment allow it. */
template <int V, typename T>
static void launch_piece(const struct job *j, const struct loops *piece, const T *x, int64_t first)
{
    struct loops kept = *piece, reduced = j->r.reduced;
    if (j->r.columns && walk_runs(&kept, 1, x, sizeof(T), V) && strides_divide(&reduced, 0, V)) {
        walk_by_vectors(&kept, V);
        launch<V, T>(j, &kept, &reduced, x, first);
    } else if (!j->r.columns && walk_runs(&reduced, 0, x, sizeof(T), V) &&
               strides_divide(&kept, 1, V)) {
        walk_by_vectors(&reduced, V);
        launch<V, T>(j, &kept, &reduced, x, first);
    } else {
        launch<1, T>(j, &kept, &reduced, x, first);
    }
}

template <typename T> static void sum_all(const struct job *j, const void *data)
{
    char *const base[] = {reinterpret_cast<char *>(j->target.y),
                          static_cast<char *>(const_cast<void *>(data))};
    const int64_t size[] = {sizeof(float), sizeof(T)};
    walk_pieces(&j->r.kept, base, size, [&](const struct loops *piece, char *const *at) {
        launch_piece<(int)(16 / sizeof(T)), T>(j, piece, reinterpret_cast<const T *>(at[1]),
                                               (at[0] - base[0]) / (int64_t)sizeof(float));
    });
}

/* Adds the rows of the workspace, in order. */
static void finish(const struct job *first)
{
    struct job j = *first;
    struct ckpt_desc rows = {};
    struct ckpt_desc y = {};
    rows.ndim = y.ndim = 2;
    rows.shape[0] = first->parts;
    y.shape[0] = 1;
    rows.shape[1] = y.shape[1] = first->r.results;
    desc_dense(&rows);
    desc_dense(&y);
    reduction_init(&j.r, &rows, &y);
    j.parts = 1;
    j.target.partial = NULL;
    sum_all<double>(&j, first->target.partial);
}

static int reduce(const struct ckpt_kernel_args *a, float scale)
{
    struct job j = {};
    reduction_init(&j.r, &a->in[0].desc, &a->out[0].desc);
    j.parts = cuda_reduce_parts(&j.r);
    j.stream = stream_of(a);
    j.target.y = static_cast<float *>(a->out[0].data);
    j.target.partial = j.parts > 1 ? static_cast<double *>(a->workspace) : NULL;
    j.target.results = j.r.results;
    j.target.scale = (double)scale;
    j.target.accumulate = a->accumulate;
    if (a->in[0].desc.dtype == CKPT_BF16)
        sum_all<bf16>(&j, a->in[0].data);
    else
        sum_all<float>(&j, a->in[0].data);
    if (j.parts > 1)
        finish(&j);
    return launched();
}

int cuda_sum(const struct ckpt_kernel_args *a)
{
    return reduce(a, static_cast<const struct sum_attr *>(a->attr)->scale);
}

int cuda_sum_to(const struct ckpt_kernel_args *a)
{
    return reduce(a, 1.f);
}

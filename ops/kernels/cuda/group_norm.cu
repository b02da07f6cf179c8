/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group norm and SiLU.  In every kernel over x a thread handles a few adjacent channels and goes
 * down the rows of a chunk (see struct group_norm_cut), so the values of its channels stay in
 * registers and rows are read in whole cache lines.  Partial results are combined in a fixed order.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/workspace.h"

namespace
{

enum {
    THREADS = 256,
    STEP = GROUP_NORM_STEP,
    PAIRS = 4,    /* rows of x, or x and dy, that are loaded together */
    PAIRS_DX = 2, /* the same in normalize_dx, whose channels have five numbers each */
    RESIDENT = 3  /* blocks of a multiprocessor: some wait for memory while others compute */
};

struct task {
    struct group_norm_shape s;
    struct group_norm_cut k;
    bool silu;
};

/* A thread's part: its sample, chunk and channels, and its rows first, first + at_once, ... */
struct place {
    int64_t n, chunk, rows, offset; /* rows of the chunk; offset of the thread's first element */
    int channel, first;
    bool active;
};

template <int V> __device__ __forceinline__ struct place place_of(const struct task &t)
{
    struct place p;
    int64_t block = blockIdx.x, tile = block % t.k.tiles;
    int lane = threadIdx.x % t.k.lanes;
    block /= t.k.tiles;
    p.chunk = block % t.k.chunks;
    p.n = block / t.k.chunks;
    p.first = threadIdx.x / t.k.lanes;
    p.channel = ((int)tile * t.k.lanes + lane) * V;
    p.active = p.channel < t.s.c;
    p.rows = min(t.k.chunk_rows, t.s.rows - p.chunk * t.k.chunk_rows);
    p.offset = (p.n * t.s.rows + p.chunk * t.k.chunk_rows) * t.s.c + p.channel;
    return p;
}

/* The adjacent elements of a thread in one row. */
template <typename T, int V> struct row_part {
    vec<T, V> v;
    __device__ __forceinline__ void load(const T *x, bool inside)
    {
        v = {};
        if (inside)
            v = *reinterpret_cast<const vec<T, V> *>(x);
    }
    __device__ __forceinline__ float at(int j) const
    {
        return to_float(v.at[j]);
    }
};

/* The same by words: of single bf16 the compiler makes four instructions where it needs one. */
template <> struct row_part<bf16, 8> {
    uint32_t word[4];
    __device__ __forceinline__ void load(const bf16 *x, bool inside)
    {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (inside)
            v = *reinterpret_cast<const uint4 *>(x);
        word[0] = v.x;
        word[1] = v.y;
        word[2] = v.z;
        word[3] = v.w;
    }
    __device__ __forceinline__ float at(int j) const
    {
        float2 pair = unpack2(word[j / 2]);
        return j % 2 ? pair.y : pair.x;
    }
};

/* Loads rows row, row + at_once, ... of the chunk; zeros past its end. */
template <typename T, int V, int N>
__device__ __forceinline__ void load_rows(row_part<T, V> (&v)[N], const T *x, const struct task &t,
                                          const struct place &p, int64_t row)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        int64_t at = row + i * t.k.at_once;
        v[i].load(x + p.offset + at * t.s.c, at < p.rows);
    }
}

/* ---- statistics ---------------------------------------------------------------------------- */

/* The mean and the sum of squared deviations of `count` values, for each channel. */
template <int V> struct moments {
    float mean[V], squares[V], count;
};

/* Combines b into a: Chan et al. 1983.  If a is empty, the squared difference, which may be
 * infinite, is not multiplied by its count of 0. */
template <int V>
__device__ __forceinline__ void join(struct moments<V> &a, const float (&mean)[V],
                                     const float (&squares)[V], float count)
{
    float total = a.count + count, share = total > 0.f ? count / total : 0.f;
#pragma unroll
    for (int j = 0; j < V; j++) {
        float deviation = mean[j] - a.mean[j];
        a.mean[j] += deviation * share;
        a.squares[j] +=
            squares[j] + (a.count * share > 0.f ? deviation * deviation * a.count * share : 0.f);
    }
    a.count = total;
}

/* Adds the moments of the rows in registers: first their mean, then the deviations from it.  FULL:
 * there are STEP rows, so that none is tested. */
template <bool FULL, typename T, int V>
__device__ __forceinline__ void add_rows(struct moments<V> &a, const row_part<T, V> (&v)[STEP],
                                         int rows)
{
    float mean[V], squares[V], share = 1.f / (float)rows;
#pragma unroll
    for (int j = 0; j < V; j++) {
        float sum = 0.f, square = 0.f;
#pragma unroll
        for (int i = 0; i < STEP; i++)
            sum += v[i].at(j);
        mean[j] = sum * share;
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            float d = v[i].at(j) - mean[j];
            square = __fadd_rn(square, FULL || i < rows ? __fmul_rn(d, d) : 0.f);
        }
        squares[j] = square;
    }
    join<V>(a, mean, squares, (float)rows);
}

/* Combines the moments of the threads that share channels; the first of them gets the result. */
template <int V>
__device__ __forceinline__ void join_threads(struct moments<V> &a, const struct task &t)
{
    __shared__ float mean[THREADS][V], squares[THREADS][V], count[THREADS];
    int i = threadIdx.x;
    for (int half = THREADS / 2; half >= t.k.lanes; half /= 2) {
        if (i >= half && i < 2 * half) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                mean[i][j] = a.mean[j];
                squares[i][j] = a.squares[j];
            }
            count[i] = a.count;
        }
        __syncthreads();
        if (i < half)
            join<V>(a, mean[i + half], squares[i + half], count[i + half]);
        __syncthreads();
    }
}

/* Writes, per sample and chunk, the means of all channels, then the sums of their squared
 * deviations. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    find_moments(const __grid_constant__ struct task t, const T *x, float *partial)
{
    struct place p = place_of<V>(t);
    struct moments<V> a = {
    };
    for (int64_t row = p.first; p.active && row < p.rows; row += STEP * t.k.at_once) {
        row_part<T, V> v[STEP];
        load_rows(v, x, t, p, row);
        int64_t left = (p.rows - row + t.k.at_once - 1) / t.k.at_once;
        if (left >= STEP)
            add_rows<true>(a, v, STEP);
        else
            add_rows<false>(a, v, (int)left);
    }
    join_threads<V>(a, t);
    if (p.first || !p.active)
        return;
    float *to = partial + (p.n * t.k.chunks + p.chunk) * 2 * t.s.c + p.channel;
#pragma unroll
    for (int j = 0; j < V; j++) {
        to[j] = a.mean[j];
        to[t.s.c + j] = a.squares[j];
    }
}

/* The mean and the sum of squared deviations of one group over all chunks and channels, computed by
 * a block.  Deviations are relative to the first mean, which is close to all others. */
struct group_moments {
    double mean, squares, count;
};

__device__ __forceinline__ struct group_moments moments_of_group(const struct task &t,
                                                                 const float *partial)
{
    int64_t n = blockIdx.x / t.s.groups, g = blockIdx.x % t.s.groups;
    const float *from = partial + n * t.k.chunks * 2 * t.s.c + g * t.s.width;
    double shift = 0, squares = 0, total = (double)(t.s.rows * t.s.width);
    float near = from[0];
    for (int64_t i = threadIdx.x; i < t.k.chunks * t.s.width; i += THREADS) {
        int64_t chunk = i / t.s.width;
        const float *at = from + chunk * 2 * t.s.c + i % t.s.width;
        double rows = (double)min(t.k.chunk_rows, t.s.rows - chunk * t.k.chunk_rows);
        double d = (double)at[0] - (double)near;
        shift += rows * d;
        squares += rows * d * d + (double)at[t.s.c];
    }
    shift = block_sum(shift) / total;
    squares = block_sum(squares) - total * shift * shift;
    return {(double)near + shift, squares < 0 ? 0 : squares, total};
}

__device__ __forceinline__ void store_stats(float *stats, const struct group_moments &m, float eps)
{
    stats[0] = (float)m.mean;
    stats[1] = (float)(1 / sqrt(m.squares / m.count + (double)eps));
}

__global__ void __launch_bounds__(THREADS)
    join_moments(const __grid_constant__ struct task t, const float *partial, float eps,
                 float *stats)
{
    struct group_moments m = moments_of_group(t, partial);
    if (threadIdx.x == 0)
        store_stats(stats + 2 * blockIdx.x, m, eps);
}

/* Combines b into a: Chan et al. 1983. */
__device__ __forceinline__ void join_groups(struct group_moments &a, const struct group_moments &b)
{
    double total = a.count + b.count, deviation = b.mean - a.mean;
    if (b.count <= 0)
        return;
    a.squares += b.squares + deviation * deviation * a.count * b.count / total;
    a.mean += deviation * b.count / total;
    a.count = total;
}

/* A thread combines the channels of one group in one row, in order. */
__global__ void __launch_bounds__(THREADS)
    join_channels(const __grid_constant__ struct task t, const float *partial, float *moments)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= t.s.n * t.s.groups)
        return;
    const float *from = partial + i / t.s.groups * 2 * t.s.c + i % t.s.groups * t.s.width;
    struct group_moments all = {0, 0, 0};
    for (int64_t j = 0; j < t.s.width; j++)
        join_groups(all, {(double)from[j], (double)from[t.s.c + j], (double)t.s.rows});
    float *to = moments + i * MOMENTS;
    to[MOMENT_MEAN] = (float)all.mean;
    to[MOMENT_SQUARES] = (float)all.squares;
    to[MOMENT_COUNT] = (float)all.count;
}

/* The parts of a tensor and the rows of each; a concat takes at most CKPT_MAX_PARTS. */
struct parts {
    const float *at[CKPT_MAX_PARTS];
    int32_t rows[CKPT_MAX_PARTS];
    int n;
};

/*
 * A warp combines the rows of one group.  A lane handles every 32nd row, counted from the first
 * part on; then the lanes are combined pairwise.  The order does not depend on the split into
 * parts.
 */
__global__ void __launch_bounds__(THREADS)
    join_parts(const __grid_constant__ struct parts p, int64_t n, int64_t groups, float eps,
               float *stats)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    int lane = threadIdx.x % 32, row = lane; /* row: within the part */
    struct group_moments all = {0, 0, 0};
    if (i >= n * groups)
        return;
    for (int k = 0; k < p.n; k++) {
        for (; row < p.rows[k]; row += 32) {
            const float *m =
                p.at[k] + ((i / groups * p.rows[k] + row) * groups + i % groups) * MOMENTS;
            join_groups(
                all, {(double)m[MOMENT_MEAN], (double)m[MOMENT_SQUARES], (double)m[MOMENT_COUNT]});
        }
        row -= p.rows[k];
    }
    for (int half = 16; half; half /= 2)
        join_groups(all, {__shfl_down_sync(~0u, all.mean, half),
                          __shfl_down_sync(~0u, all.squares, half),
                          __shfl_down_sync(~0u, all.count, half)});
    if (lane == 0)
        store_stats(stats + 2 * i, all, eps);
}

/* ---- the normalization ----------------------------------------------------------------------- */

/* z = slope (x - mean) + bias, for each channel. */
template <int V> struct channel_map {
    float mean[V], slope[V], bias[V];
};

template <typename T, int V>
__device__ __forceinline__ struct channel_map<V>
map_of(const struct task &t, const struct place &p, const T *w, const T *b, const float *stats) {
    struct channel_map<V> m = {
    };
#pragma unroll
    for (int j = 0; j < V; j++)
        if (p.active) {
            int g = (p.channel + j) / (int)t.s.width;
            const float *of_group = stats + 2 * (p.n * t.s.groups + g);
            m.mean[j] = of_group[0];
            m.slope[j] = of_group[1] * to_float(w[p.channel + j]);
            m.bias[j] = to_float(b[p.channel + j]);
        }
    return m;
}

/* Exponentials too small for a normal float are 0, which changes no sum with 1. */
__device__ __forceinline__ float
sigmoid(float z)
{
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(z * -1.44269504f));
    return __fdividef(1.f, 1.f + e); /* 0 for a large denominator */
}

template <typename T, int V, bool SILU>
__global__ void __launch_bounds__(THREADS)
    normalize(const __grid_constant__ struct task t, const T *x, const T *w, const T *b,
              const float *stats, T *y)
{
    struct place p = place_of<V>(t);
    struct channel_map<V> m = map_of<T, V>(t, p, w, b, stats);
    for (int64_t row = p.first; p.active && row < p.rows; row += PAIRS * t.k.at_once) {
        row_part<T, V> v[PAIRS];
        load_rows(v, x, t, p, row);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            int64_t at = row + i * t.k.at_once;
            float z[V];
#pragma unroll
            for (int j = 0; j < V; j++) {
                z[j] = (v[i].at(j) - m.mean[j]) * m.slope[j] + m.bias[j];
                if (SILU)
                    z[j] *= sigmoid(z[j]);
            }
            if (at < p.rows)
                store_floats(y + p.offset + at * t.s.c, z);
        }
    }
}

/* ---- backward ------------------------------------------------------------------------------ */

/* The gradient before SiLU. */
template <bool SILU> __device__ __forceinline__ float before_silu(float dy, float z)
{
    if (!SILU)
        return dy;
    float s = sigmoid(z);
    return dy * s * (1.f + z * (1.f - s));
}

/* Adds the sums of the threads that share channels; the first of them gets the result. */
template <int V>
__device__ __forceinline__ void add_threads(float (&a)[V], float (&b)[V], const struct task &t)
{
    __shared__ float left[THREADS][V], right[THREADS][V];
    int i = threadIdx.x;
    for (int half = THREADS / 2; half >= t.k.lanes; half /= 2) {
        if (i >= half && i < 2 * half) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                left[i][j] = a[j];
                right[i][j] = b[j];
            }
        }
        __syncthreads();
        if (i < half) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                a[j] += left[i + half][j];
                b[j] += right[i + half][j];
            }
        }
        __syncthreads();
    }
}

/* Writes, per sample and chunk, the sums of d, then of d (x - mean); d is the gradient before
 * SiLU, 0 in rows past the end, where dy is. */
template <typename T, int V, bool SILU>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    sum_gradients(const __grid_constant__ struct task t, const T *dy, const T *x, const T *w,
                  const T *b, const float *stats, float *partial)
{
    struct place p = place_of<V>(t);
    struct channel_map<V> m = map_of<T, V>(t, p, w, b, stats);
    float flat[V] = {}, tilted[V] = {};
    for (int64_t row = p.first; p.active && row < p.rows; row += PAIRS * t.k.at_once) {
        row_part<T, V> v[PAIRS], dv[PAIRS];
        load_rows(v, x, t, p, row);
        load_rows(dv, dy, t, p, row);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                float deviation = v[i].at(j) - m.mean[j];
                float d = before_silu<SILU>(dv[i].at(j), deviation * m.slope[j] + m.bias[j]);
                flat[j] = __fadd_rn(flat[j], d);
                tilted[j] = __fadd_rn(tilted[j], __fmul_rn(d, deviation));
            }
        }
    }
    add_threads<V>(flat, tilted, t);
    if (p.first || !p.active)
        return;
    float *to = partial + (p.n * t.k.chunks + p.chunk) * 2 * t.s.c + p.channel;
#pragma unroll
    for (int j = 0; j < V; j++) {
        to[j] = flat[j];
        to[t.s.c + j] = tilted[j];
    }
}

/* A block adds the chunks of 32 of the 2 c sums of a sample; each warp adds every 32nd chunk. */
__global__ void __launch_bounds__(1024)
    add_chunks(const __grid_constant__ struct task t, const float *partial, double *sums)
{
    __shared__ double part[32][33];
    int64_t columns = 2 * t.s.c, across = (columns + 31) / 32;
    int64_t n = blockIdx.x / across, column = blockIdx.x % across * 32 + threadIdx.x;
    double sum = 0;
    for (int64_t i = threadIdx.y; column < columns && i < t.k.chunks; i += 32)
        sum += (double)partial[(n * t.k.chunks + i) * columns + column];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = warp_sum(part[threadIdx.x][threadIdx.y]);
    column = blockIdx.x % across * 32 + threadIdx.y;
    if (threadIdx.x == 0 && column < columns)
        sums[n * columns + column] = sum;
}

/*
 * A warp handles a group of a sample; each thread of the warps after those handles a channel.  With
 * h = (x - mean) rstd, over the m elements of a group:
 *
 *   db = sum d,  dw = sum d h,  dx = rstd (w d - sum(w d) / m - h sum(w d h) / m)
 *
 * coefficients: rstd sum(w d) / m and rstd^2 sum(w d h) / m of each group.
 */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    join_gradients(const __grid_constant__ struct task t, const T *w, const float *stats,
                   const double *sums, float *coefficients, float *dw, float *db)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, group = i / 32;
    if (group < t.s.n * t.s.groups) {
        int64_t g = group % t.s.groups;
        const double *flat = sums + group / t.s.groups * 2 * t.s.c + g * t.s.width;
        double rstd = (double)stats[2 * group + 1], m = (double)(t.s.rows * t.s.width), a = 0,
               b = 0;
        for (int64_t j = i % 32; j < t.s.width; j += 32) {
            double weight = (double)to_float(w[g * t.s.width + j]);
            a += weight * flat[j];
            b += weight * flat[t.s.c + j];
        }
        a = warp_sum(a);
        b = warp_sum(b);
        if (i % 32 == 0) {
            coefficients[2 * group] = (float)(rstd * a / m);
            coefficients[2 * group + 1] = (float)(rstd * rstd * rstd * b / m);
        }
        return;
    }
    int64_t c = i - t.s.n * t.s.groups * 32;
    if (c >= t.s.c)
        return;
    double slope = 0, shift = 0;
    for (int64_t n = 0; n < t.s.n; n++) {
        double rstd = (double)stats[2 * (n * t.s.groups + c / t.s.width) + 1];
        shift += sums[n * 2 * t.s.c + c];
        slope += sums[n * 2 * t.s.c + t.s.c + c] * rstd;
    }
    dw[c] = (float)slope;
    db[c] = (float)shift;
}

template <typename T, int V, bool SILU>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    normalize_dx(const __grid_constant__ struct task t, const T *dy, const T *x, const T *w,
                 const T *b, const float *stats, const float *coefficients, T *dx)
{
    struct place p = place_of<V>(t);
    struct channel_map<V> m = map_of<T, V>(t, p, w, b, stats);
    float shift[V] = {}, curve[V] = {};
#pragma unroll
    for (int j = 0; j < V; j++)
        if (p.active) {
            int g = (p.channel + j) / (int)t.s.width;
            shift[j] = coefficients[2 * (p.n * t.s.groups + g)];
            curve[j] = coefficients[2 * (p.n * t.s.groups + g) + 1];
        }
    for (int64_t row = p.first; p.active && row < p.rows; row += PAIRS_DX * t.k.at_once) {
        row_part<T, V> v[PAIRS_DX], dv[PAIRS_DX];
        load_rows(v, x, t, p, row);
        load_rows(dv, dy, t, p, row);
#pragma unroll
        for (int i = 0; i < PAIRS_DX; i++) {
            int64_t at = row + i * t.k.at_once;
            float out[V];
#pragma unroll
            for (int j = 0; j < V; j++) {
                float deviation = v[i].at(j) - m.mean[j];
                float d = before_silu<SILU>(dv[i].at(j), deviation * m.slope[j] + m.bias[j]);
                out[j] = m.slope[j] * d - shift[j] - curve[j] * deviation;
            }
            if (at < p.rows)
                store_floats(dx + p.offset + at * t.s.c, out);
        }
    }
}

/* ---- launching ----------------------------------------------------------------------------- */

struct task task_of(const struct ckpt_kernel_args *a, const struct ckpt_view *x, int vector)
{
    const struct group_norm_attr *attr = (const struct group_norm_attr *)a->attr;
    struct task t = {};
    t.s = group_norm_shape(&x->desc, attr);
    t.k = group_norm_cut(&t.s, vector);
    t.silu = attr->silu;
    return t;
}

unsigned blocks_of(const struct task &t)
{
    return (unsigned)(t.s.n * t.k.chunks * t.k.tiles);
}

template <typename T, int V>
void launch_map(const struct ckpt_kernel_args *a, const struct task &t, const void *w,
                const void *b, const float *stats)
{
    const T *x = (const T *)a->in[0].data;
    T *y = (T *)a->out[0].data;
    if (t.silu)
        normalize<T, V, true><<<blocks_of(t), THREADS, 0, stream_of(a)>>>(t, x, (const T *)w,
                                                                          (const T *)b, stats, y);
    else
        normalize<T, V, false><<<blocks_of(t), THREADS, 0, stream_of(a)>>>(t, x, (const T *)w,
                                                                           (const T *)b, stats, y);
}

template <typename T, int V> int forward(const struct ckpt_kernel_args *a)
{
    const struct group_norm_attr *attr = (const struct group_norm_attr *)a->attr;
    struct task t = task_of(a, &a->in[0], V);
    float *stats = (float *)a->out[1].data, *partial = (float *)a->workspace;
    find_moments<T, V>
        <<<blocks_of(t), THREADS, 0, stream_of(a)>>>(t, (const T *)a->in[0].data, partial);
    join_moments<<<(unsigned)(t.s.n * t.s.groups), THREADS, 0, stream_of(a)>>>(t, partial,
                                                                               attr->eps, stats);
    launch_map<T, V>(a, t, a->in[1].data, a->in[2].data, stats);
    return launched();
}

template <typename T, int V> int find_parts(const struct ckpt_kernel_args *a)
{
    struct task t = task_of(a, &a->in[0], V);
    float *partial = (float *)a->workspace;
    t.s = group_norm_row_shape(&a->in[0].desc, (const struct group_norm_attr *)a->attr);
    t.k = group_norm_row_cut(&t.s, V);
    find_moments<T, V>
        <<<blocks_of(t), THREADS, 0, stream_of(a)>>>(t, (const T *)a->in[0].data, partial);
    unsigned blocks = (unsigned)((t.s.n * t.s.groups + THREADS - 1) / THREADS);
    join_channels<<<blocks, THREADS, 0, stream_of(a)>>>(t, partial, (float *)a->out[0].data);
    return launched();
}

template <typename T, int V> int apply(const struct ckpt_kernel_args *a)
{
    struct task t = task_of(a, &a->in[0], V);
    launch_map<T, V>(a, t, a->in[2].data, a->in[3].data, (const float *)a->in[1].data);
    return launched();
}

template <typename T, int V, bool SILU> int backward(const struct ckpt_kernel_args *a)
{
    struct task t = task_of(a, &a->in[1], V);
    const T *dy = (const T *)a->in[0].data, *x = (const T *)a->in[1].data;
    const T *w = (const T *)a->in[2].data, *b = (const T *)a->in[3].data;
    const float *stats = (const float *)a->in[4].data;
    float *partial = (float *)a->workspace;
    int64_t columns = 2 * t.s.c, groups = t.s.n * t.s.groups;
    double *sums = (double *)((char *)a->workspace +
                              round_up(t.s.n * t.k.chunks * columns * (int64_t)sizeof(float), 16));
    float *coefficients = (float *)(sums + t.s.n * columns);
    unsigned joins = (unsigned)((groups * 32 + t.s.c + THREADS - 1) / THREADS);
    sum_gradients<T, V, SILU>
        <<<blocks_of(t), THREADS, 0, stream_of(a)>>>(t, dy, x, w, b, stats, partial);
    add_chunks<<<(unsigned)(t.s.n * ((columns + 31) / 32)), dim3(32, 32), 0, stream_of(a)>>>(
        t, partial, sums);
    join_gradients<T><<<joins, THREADS, 0, stream_of(a)>>>(
        t, w, stats, sums, coefficients, (float *)a->out[1].data, (float *)a->out[2].data);
    normalize_dx<T, V, SILU><<<blocks_of(t), THREADS, 0, stream_of(a)>>>(
        t, dy, x, w, b, stats, coefficients, (T *)a->out[0].data);
    return launched();
}

/* Can channels be accessed in vectors of 16 bytes? */
bool is_wide(const struct ckpt_view *x, const void *y, const void *z)
{
    int64_t c = x->desc.shape[x->desc.ndim - 1];
    return c * ckpt_dtype_size(x->desc.dtype) % 16 == 0 && aligned16(x->data) && aligned16(y) &&
           aligned16(z);
}

template <bool SILU> int backward_as(const struct ckpt_kernel_args *a)
{
    bool wide = is_wide(&a->in[1], a->in[0].data, a->out[0].data);
    if (a->in[1].desc.dtype == CKPT_BF16)
        return wide ? backward<bf16, 8, SILU>(a) : backward<bf16, 1, SILU>(a);
    return wide ? backward<float, 4, SILU>(a) : backward<float, 1, SILU>(a);
}

} // namespace

int cuda_group_norm(const struct ckpt_kernel_args *a)
{
    bool wide = is_wide(&a->in[0], a->out[0].data, NULL);
    if (a->in[0].desc.dtype == CKPT_BF16)
        return wide ? forward<bf16, 8>(a) : forward<bf16, 1>(a);
    return wide ? forward<float, 4>(a) : forward<float, 1>(a);
}

int cuda_group_norm_moments(const struct ckpt_kernel_args *a)
{
    bool wide = is_wide(&a->in[0], NULL, NULL);
    if (a->in[0].desc.dtype == CKPT_BF16)
        return wide ? find_parts<bf16, 8>(a) : find_parts<bf16, 1>(a);
    return wide ? find_parts<float, 4>(a) : find_parts<float, 1>(a);
}

int cuda_group_norm_join(const struct ckpt_kernel_args *a)
{
    const struct group_norm_attr *attr = (const struct group_norm_attr *)a->attr;
    int64_t n = a->out[0].desc.shape[0], groups = a->out[0].desc.shape[1];
    struct parts p = {};
    for (p.n = 0; p.n < a->n_in; p.n++) {
        p.at[p.n] = (const float *)a->in[p.n].data;
        p.rows[p.n] = (int32_t)a->in[p.n].desc.shape[1];
    }
    unsigned blocks = (unsigned)((n * groups * 32 + THREADS - 1) / THREADS);
    join_parts<<<blocks, THREADS, 0, stream_of(a)>>>(p, n, groups, attr->eps,
                                                     (float *)a->out[0].data);
    return launched();
}

int cuda_group_norm_apply(const struct ckpt_kernel_args *a)
{
    bool wide = is_wide(&a->in[0], a->out[0].data, NULL);
    if (a->in[0].desc.dtype == CKPT_BF16)
        return wide ? apply<bf16, 8>(a) : apply<bf16, 1>(a);
    return wide ? apply<float, 4>(a) : apply<float, 1>(a);
}

int cuda_group_norm_dx(const struct ckpt_kernel_args *a)
{
    const struct group_norm_attr *attr = (const struct group_norm_attr *)a->attr;
    return attr->silu ? backward_as<true>(a) : backward_as<false>(a);
}

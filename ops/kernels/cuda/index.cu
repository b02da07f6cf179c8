/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index lookup and its gradients.  The gradients use no atomics: the indices are sorted stably, a
 * thread adds INDEX_CHUNK sorted positions of a few columns, and sums that cross the border of a
 * chunk go to the workspace and are added in order.
 */
#include "kernels/cuda/copy.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/report.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/segments.h"

namespace
{

constexpr int THREADS = 256, FLIGHT = 4; /* rows that are loaded before the first is added */

unsigned blocks_for(int64_t work)
{
    return (unsigned)((work + THREADS - 1) / THREADS);
}

__device__ __forceinline__ int64_t thread_of_grid(void)
{
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

/* Sets all bits, which is NaN: the result for an index out of range. */
__device__ __forceinline__ void set_bits(uint4 &u)
{
    u = make_uint4(~0u, ~0u, ~0u, ~0u);
}

template <typename U> __device__ __forceinline__ void set_bits(U &u)
{
    u = (U)~0u;
}

/* A thread copies one unit of a row. */
template <typename U>
__global__ void __launch_bounds__(THREADS)
    select_rows(U *y, const U *x, const int32_t *index, struct index_shape s, int64_t units,
                struct index_reporter reporter)
{
    int64_t t = thread_of_grid(), row = quotient(t, units), u = t - row * units;
    if (row >= s.outer * s.n)
        return;
    int64_t o = quotient(row, s.n), place = row - o * s.n;
    int32_t from = index[place];
    U value;
    set_bits(value);
    if (index_fits(reporter, place, from))
        value = x[(o * s.size + from) * units + u];
    y[t] = value;
}

template <typename U>
void launch_select(const struct ckpt_kernel_args *a, const struct index_shape *s, int64_t bytes)
{
    int64_t units = bytes / (int64_t)sizeof(U);
    select_rows<U><<<blocks_for(s->outer * s->n * units), THREADS, 0, stream_of(a)>>>(
        (U *)a->out[0].data, (const U *)a->in[0].data, (const int32_t *)a->in[1].data, *s, units,
        index_reporter_of(a, s->size));
}

template <typename U>
__global__ void __launch_bounds__(THREADS)
    gather_elements(U *y, const U *x, const int32_t *index, struct index_shape s,
                    struct index_reporter reporter)
{
    int64_t t = thread_of_grid();
    if (t >= s.outer * s.n * s.inner)
        return;
    int64_t row = quotient(t, s.inner), c = t - row * s.inner, o = quotient(row, s.n);
    int32_t at = index[t];
    U value;
    set_bits(value);
    if (index_fits(reporter, t, at))
        value = x[(o * s.size + at) * s.inner + c];
    y[t] = value;
}

/* ---- sums by destination --------------------------------------------------------------------- */

/* Sorted positions: the destination of each, and its row in x [outer, n, inner].  Keys >= `size`,
 * which are last, are dropped. */
struct segments {
    const uint32_t *key, *row;
    int64_t outer, n, inner, chunks;
    uint32_t size;
    float *y, *partial;
    bool accumulate;
};

/* A thread's part: N columns of one chunk. */
struct share {
    int64_t o, chunk, column, begin, end;
    bool valid;
};

template <int N> __device__ __forceinline__ struct share share_of(const struct segments &g)
{
    struct share s;
    int64_t units = g.inner / N, t = thread_of_grid(), rest = quotient(t, units);
    s.column = (t - rest * units) * N;
    s.o = quotient(rest, g.chunks);
    s.chunk = rest - s.o * g.chunks;
    s.begin = s.chunk * INDEX_CHUNK;
    s.end = min(g.n, s.begin + INDEX_CHUNK);
    s.valid = s.o < g.outer;
    return s;
}

__device__ __forceinline__ float *partial_of(const struct segments &g, const struct share &s,
                                             int64_t chunk, int side)
{
    return g.partial + ((s.o * g.chunks + chunk) * 2 + side) * g.inner + s.column;
}

template <int N>
__device__ __forceinline__ void put(const struct segments &g, const struct share &s, uint32_t key,
                                    const float (&sum)[N])
{
    float *y = g.y + (s.o * (int64_t)g.size + key) * g.inner + s.column;
    float all[N];
    if (g.accumulate)
        load_floats<float, N>(all, y);
#pragma unroll
    for (int j = 0; j < N; j++)
        all[j] = g.accumulate ? all[j] + sum[j] : sum[j];
    store_floats<float, N>(y, all);
}

/* Stores the sum of a run of equal keys: to its destination, or as a partial sum if the run
 * continues in a neighbouring chunk. */
template <int N>
__device__ __forceinline__ void end_run(const struct segments &g, const struct share &s,
                                        uint32_t key, bool before, bool after,
                                        const float (&sum)[N])
{
    if (before || after) {
        store_floats<float, N>(partial_of(g, s, s.chunk, before ? 0 : 1), sum);
    } else {
        put<N>(g, s, key, sum);
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) sum_chunks(const T *x, const struct segments g)
{
    struct share s = share_of<N>(g);
    if (!s.valid)
        return;
    const T *from = x + s.o * g.n * g.inner + s.column;
    uint32_t current = g.key[s.begin];
    bool before = s.begin > 0 && g.key[s.begin - 1] == current;
    float sum[N] = {};
    for (int64_t i = s.begin; i < s.end && current < g.size; i += FLIGHT) {
        uint32_t key[FLIGHT];
        vec<T, N> raw[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            key[f] = i + f < s.end ? g.key[i + f] : g.size;
            if (key[f] < g.size)
                raw[f] = *reinterpret_cast<const vec<T, N> *>(from + g.row[i + f] * g.inner);
        }
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            if (i + f >= s.end || current >= g.size)
                break;
            if (key[f] != current) {
                end_run<N>(g, s, current, before, false, sum);
                before = false;
                current = key[f];
#pragma unroll
                for (int j = 0; j < N; j++)
                    sum[j] = 0.f;
            }
            if (key[f] < g.size)
#pragma unroll
                for (int j = 0; j < N; j++)
                    sum[j] += to_float(raw[f].at[j]);
        }
    }
    if (current < g.size)
        end_run<N>(g, s, current, before, s.end < g.n && g.key[s.end] == current, sum);
}

/* The first position after a run of `key` that includes position from - 1. */
__device__ __forceinline__ int64_t end_of(const struct segments &g, uint32_t key, int64_t from)
{
    int64_t to = g.n;
    while (from < to) {
        int64_t middle = (from + to) / 2;
        if (g.key[middle] == key)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Completes runs that begin in this chunk and continue after it. */
template <int N> __global__ void __launch_bounds__(THREADS) join_chunks(const struct segments g)
{
    struct share s = share_of<N>(g);
    if (!s.valid || s.end >= g.n)
        return;
    uint32_t key = g.key[s.end - 1];
    if (key >= g.size || g.key[s.end] != key)
        return;
    if (g.key[s.begin] == key && s.begin > 0 && g.key[s.begin - 1] == key)
        return;
    int64_t last = (end_of(g, key, s.end) - 1) / INDEX_CHUNK;
    float sum[N];
    load_floats<float, N>(sum, partial_of(g, s, s.chunk, 1));
#pragma unroll 8
    for (int64_t chunk = s.chunk + 1; chunk <= last; chunk++) {
        float more[N];
        load_floats<float, N>(more, partial_of(g, s, chunk, 0));
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] += more[j];
    }
    put<N>(g, s, key, sum);
}

template <typename T, int N>
void launch_segments(const void *x, const struct segments *g, cudaStream_t stream)
{
    unsigned blocks = blocks_for(g->outer * g->chunks * (g->inner / N));
    sum_chunks<T, N><<<blocks, THREADS, 0, stream>>>((const T *)x, *g);
    if (g->chunks > 1)
        join_chunks<N><<<blocks, THREADS, 0, stream>>>(*g);
}

template <typename T>
void sum_segments(const void *x, const struct segments *g, cudaStream_t stream)
{
    if (g->inner % 4 == 0 && aligned16(x) && aligned16(g->y) && aligned16(g->partial))
        launch_segments<T, 4>(x, g, stream);
    else
        launch_segments<T, 1>(x, g, stream);
}

/* g has outer, inner, n and size; the keys are in the first buffer of the workspace. */
int run_segments(const struct ckpt_kernel_args *a, struct segments *g)
{
    struct sort_buffers b = sort_buffers_of(a->workspace, 1, g->n);
    int bits = 32 - __builtin_clz(g->size | 1);
    int side = cuda_sort_rows(&b, 1, g->n, bits, a->stream);
    g->key = b.key[side];
    g->row = b.value[side];
    g->chunks = (g->n + INDEX_CHUNK - 1) / INDEX_CHUNK;
    g->y = (float *)a->out[0].data;
    g->partial = (float *)((char *)a->workspace + cuda_sort_workspace(1, g->n));
    g->accumulate = a->accumulate;
    int rc = a->accumulate ? CKPT_OK : cuda_fill_view(a, &a->out[0], 0.f);
    if (rc)
        return rc;
    if (view_half(&a->in[0]))
        sum_segments<bf16>(a->in[0].data, g, stream_of(a));
    else
        sum_segments<float>(a->in[0].data, g, stream_of(a));
    return launched();
}

/* ---- keys ------------------------------------------------------------------------------------ */

__global__ void __launch_bounds__(THREADS) row_keys(uint32_t *key, const int32_t *index, int64_t n,
                                                    int64_t skip, struct index_reporter reporter)
{
    int64_t i = thread_of_grid();
    if (i >= n)
        return;
    int32_t at = index[i];
    key[i] = (uint32_t)(index_fits(reporter, i, at) && at != skip ? at : reporter.size);
}

/* The element of y that each index of a lane refers to. */
__global__ void __launch_bounds__(THREADS)
    element_keys(uint32_t *key, const int32_t *index, struct index_shape s,
                 struct index_reporter reporter)
{
    int64_t t = thread_of_grid();
    if (t >= s.outer * s.n * s.inner)
        return;
    int64_t row = quotient(t, s.inner), c = t - row * s.inner, o = quotient(row, s.n);
    int32_t at = index[t];
    bool valid = index_fits(reporter, t, at);
    key[t] = (uint32_t)((valid ? o * s.size + at : s.outer * s.size) * s.inner + (valid ? c : 0));
}

/* A thread processes a whole lane; no other thread writes to its elements. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    scatter_lanes(float *y, const T *x, const int32_t *index, struct index_shape s,
                  struct index_reporter reporter)
{
    int64_t lane = thread_of_grid();
    if (lane >= s.outer * s.inner)
        return;
    int64_t o = quotient(lane, s.inner), c = lane - o * s.inner;
    for (int64_t i = 0; i < s.n; i++) {
        int64_t from = (o * s.n + i) * s.inner + c;
        int32_t at = index[from];
        if (index_fits(reporter, from, at))
            y[(o * s.size + at) * s.inner + c] += to_float(x[from]);
    }
}

} // namespace

int cuda_index_select(const struct ckpt_kernel_args *a)
{
    const struct index_attr *attr = (const struct index_attr *)a->attr;
    const struct ckpt_desc *x = &a->in[0].desc;
    struct index_shape s = index_rows(x, &a->in[1].desc, attr->axis, x->shape[attr->axis], 1);
    int64_t bytes = s.inner * ckpt_dtype_size(x->dtype);
    if (bytes % 16 == 0 && aligned16(a->in[0].data) && aligned16(a->out[0].data))
        launch_select<uint4>(a, &s, bytes);
    else if (bytes % 4 == 0)
        launch_select<uint32_t>(a, &s, bytes);
    else
        launch_select<uint16_t>(a, &s, bytes);
    return launched();
}

int cuda_index_add(const struct ckpt_kernel_args *a)
{
    const struct index_attr *attr = (const struct index_attr *)a->attr;
    const struct ckpt_desc *index = &a->in[1].desc;
    struct index_shape s = index_rows(&a->in[0].desc, index, attr->axis, attr->size, index->ndim);
    struct segments g = {};
    g.outer = s.outer;
    g.n = s.n;
    g.inner = s.inner;
    g.size = (uint32_t)s.size;
    row_keys<<<blocks_for(s.n), THREADS, 0, stream_of(a)>>>(
        sort_buffers_of(a->workspace, 1, s.n).key[0], (const int32_t *)a->in[1].data, s.n,
        attr->skip, index_reporter_of(a, s.size));
    return run_segments(a, &g);
}

int cuda_gather(const struct ckpt_kernel_args *a)
{
    const struct index_attr *attr = (const struct index_attr *)a->attr;
    const struct ckpt_desc *x = &a->in[0].desc, *y = &a->out[0].desc;
    struct index_shape s = index_lanes(y, attr->axis, x->shape[attr->axis]);
    const int32_t *index = (const int32_t *)a->in[1].data;
    unsigned blocks = blocks_for(desc_numel(y));
    if (ckpt_dtype_size(x->dtype) == 4)
        gather_elements<<<blocks, THREADS, 0, stream_of(a)>>>(
            (uint32_t *)a->out[0].data, (const uint32_t *)a->in[0].data, index, s,
            index_reporter_of(a, s.size));
    else
        gather_elements<<<blocks, THREADS, 0, stream_of(a)>>>(
            (uint16_t *)a->out[0].data, (const uint16_t *)a->in[0].data, index, s,
            index_reporter_of(a, s.size));
    return launched();
}

static int scatter_sorted(const struct ckpt_kernel_args *a, const struct index_shape *s)
{
    int64_t n = s->outer * s->n * s->inner;
    struct segments g = {};
    g.outer = g.inner = 1;
    g.n = n;
    g.size = (uint32_t)(s->outer * s->size * s->inner);
    element_keys<<<blocks_for(n), THREADS, 0, stream_of(a)>>>(
        sort_buffers_of(a->workspace, 1, n).key[0], (const int32_t *)a->in[1].data, *s,
        index_reporter_of(a, s->size));
    return run_segments(a, &g);
}

int cuda_scatter(const struct ckpt_kernel_args *a)
{
    const struct index_attr *attr = (const struct index_attr *)a->attr;
    struct index_shape s = index_lanes(&a->in[1].desc, attr->axis, attr->size);
    const int32_t *index = (const int32_t *)a->in[1].data;
    if (cuda_scatter_sorts(&s))
        return scatter_sorted(a, &s);
    int rc = a->accumulate ? CKPT_OK : cuda_fill_view(a, &a->out[0], 0.f);
    if (rc)
        return rc;
    float *y = (float *)a->out[0].data;
    unsigned blocks = blocks_for(s.outer * s.inner);
    if (view_half(&a->in[0]))
        scatter_lanes<<<blocks, THREADS, 0, stream_of(a)>>>(y, (const bf16 *)a->in[0].data, index,
                                                            s, index_reporter_of(a, s.size));
    else
        scatter_lanes<<<blocks, THREADS, 0, stream_of(a)>>>(y, (const float *)a->in[0].data, index,
                                                            s, index_reporter_of(a, s.size));
    return launched();
}

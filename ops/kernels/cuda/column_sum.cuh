/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the rows of a matrix that is read from memory or computed on the fly. */
#ifndef CKPT_CUDA_COLUMN_SUM_CUH
#define CKPT_CUDA_COLUMN_SUM_CUH

#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/workspace.h"

enum {
    COLUMN_ACROSS = 16, /* threads of a block along a row, S::n columns each */
    COLUMN_DOWN = 16    /* threads along the columns */
};

/* N contiguous elements as they were loaded.  Whole 16-byte words stay packed: as single elements
 * in flight each would take a register. */
template <typename T, int N, bool WORDS = N * sizeof(T) % 16 == 0> struct loaded {
    T at[N];

    __device__ __forceinline__ void load(const T *src)
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            at[i] = src[i];
    }

    __device__ __forceinline__ void floats(float (&v)[N]) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = to_float(at[i]);
    }
};

template <typename T, int N> struct loaded<T, N, true> {
    static constexpr int each = 16 / sizeof(T);
    uint4 at[N / each];

    __device__ __forceinline__ void load(const T *src)
    {
#pragma unroll
        for (int i = 0; i < N / each; i++)
            at[i] = reinterpret_cast<const uint4 *>(src)[i];
    }

    __device__ __forceinline__ void floats(float (&v)[N]) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = to_float(reinterpret_cast<const vec<T, each> &>(at[i / each]).at[i % each]);
    }
};

/*
 * A source supplies the elements of a matrix.  A thread takes S::n contiguous elements at a time:
 * load() fetches the operands, `ahead` rows before values() computes the elements.  All threads of
 * a block call end() after their last row.  This source is a matrix in memory.
 */
template <typename T, int N> struct matrix_source {
    static constexpr int n = N;
    static constexpr int ahead = 6;
    typedef loaded<T, N> raw;
    const T *src;

    __device__ __forceinline__ void load(raw &r, int64_t at) const
    {
        r.load(src + at);
    }

    __device__ __forceinline__ void values(float (&v)[N], const raw &r, int64_t) const
    {
        r.floats(v);
    }

    __device__ __forceinline__ void end(void) const
    {
    }
};

/* sum += `left` rows of a thread, from `at` on.  Loads of S::ahead rows are in flight while a row
 * is added. */
template <typename S>
static __device__ __forceinline__ void add_rows(float (&sum)[S::n], const S &src, int64_t at,
                                                int64_t step, int left)
{
    constexpr int A = S::ahead;
    typename S::raw raw[A];
    int64_t next = at; /* the next row to load */
#pragma unroll
    for (int k = 0; k < A; k++, next += step)
        if (k < left)
            src.load(raw[k], next);
    for (; left > 0; left -= A)
#pragma unroll
        for (int k = 0; k < A; k++, at += step, next += step) {
            float v[S::n];
            if (k >= left)
                break;
            src.values(v, raw[k], at);
            if (k + A < left)
                src.load(raw[k], next);
#pragma unroll
            for (int i = 0; i < S::n; i++)
                sum[i] += v[i];
        }
}

/*
 * Each block sums one chunk of rows (blockIdx.y of gridDim.y) in COLUMN_ACROSS * S::n columns.  A
 * thread goes down its columns in steps of COLUMN_DOWN rows; then one thread per column adds the
 * COLUMN_DOWN sums in order.  The order of additions does not depend on S::n.  The same kernel adds
 * the sums of chunks.
 */
template <typename S>
static __global__ void __launch_bounds__(COLUMN_ACROSS *COLUMN_DOWN, 4)
    column_sum_kernel(float *dst, const S src, int64_t rows, int64_t cols, bool accumulate)
{
    constexpr int N = S::n;
    __shared__ float part[COLUMN_DOWN][COLUMN_ACROSS * N];
    const int across = threadIdx.x % COLUMN_ACROSS, down = threadIdx.x / COLUMN_ACROSS;
    const int64_t first = (int64_t)blockIdx.x * (COLUMN_ACROSS * N), col = first + across * N;
    const int64_t row = blockIdx.y * rows / gridDim.y + down, step = COLUMN_DOWN * cols;
    const int64_t end = (blockIdx.y + 1) * rows / gridDim.y;
    float sum[N] = {};
    wait_for_previous_kernel();
    launch_dependents();
    if (col < cols)
        add_rows(sum, src, row * cols + col, step,
                 (int)((end - row + COLUMN_DOWN - 1) / COLUMN_DOWN));
    src.end();
#pragma unroll
    for (int i = 0; i < N; i++)
        part[down][across * N + i] = sum[i];
    __syncthreads();
    for (int i = threadIdx.x; i < COLUMN_ACROSS * N && first + i < cols;
         i += COLUMN_ACROSS * COLUMN_DOWN) {
        float *to = dst + (int64_t)blockIdx.y * cols + first + i;
        float total = part[0][i];
#pragma unroll
        for (int k = 1; k < COLUMN_DOWN; k++)
            total += part[k][i];
        *to = accumulate ? *to + total : total;
    }
}

static inline dim3 column_grid(int64_t cols, int strip, int64_t chunks)
{
    return dim3((unsigned)((cols + strip - 1) / strip), (unsigned)chunks);
}

/* out [cols] = or += the sums over the chunks of partial [chunks, cols].  The kernel that writes
 * `partial` must be the previous one of the stream. */
template <int N>
static void add_partial(float *out, const float *partial, int64_t chunks, int64_t cols,
                        bool accumulate, cudaStream_t stream)
{
    launch_dependent(stream, column_grid(cols, COLUMN_ACROSS * N, 1), COLUMN_ACROSS * COLUMN_DOWN,
                     column_sum_kernel<matrix_source<float, N>>, out,
                     matrix_source<float, N>{partial}, chunks, cols, accumulate);
}

/* out [cols] = or += the sums over all rows; scratch has cuda_column_sum_workspace bytes. */
template <typename S>
static void column_sums(float *out, const S &src, int64_t rows, int64_t cols, bool accumulate,
                        void *scratch, cudaStream_t stream)
{
    const int64_t chunks = cuda_column_sum_chunks(rows, cols);
    float *partial = static_cast<float *>(scratch);
    column_sum_kernel<<<column_grid(cols, COLUMN_ACROSS * S::n, chunks),
                        COLUMN_ACROSS * COLUMN_DOWN, 0, stream>>>(
        chunks == 1 ? out : partial, src, rows, cols, chunks == 1 && accumulate);
    if (chunks == 1)
        return;
    if (cols % 4 == 0 && aligned16(out)) /* the scratch is aligned, too */
        add_partial<4>(out, partial, chunks, cols, accumulate, stream);
    else
        add_partial<1>(out, partial, chunks, cols, accumulate, stream);
}

/* The rows of a tensor seen as a matrix of its last axis. */
static inline int64_t column_rows(const struct ckpt_desc *d)
{
    int64_t rows = 1;
    for (int i = 0; i < d->ndim - 1; i++)
        rows *= d->shape[i];
    return rows;
}

#endif

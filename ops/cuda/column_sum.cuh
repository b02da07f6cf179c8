/* Sums over the rows of a matrix, which is read or made on the way. */
#ifndef CKPT_CUDA_COLUMN_SUM_CUH
#define CKPT_CUDA_COLUMN_SUM_CUH

#include "cuda/cuda.cuh"
#include "cuda/workspace.h"

enum {
    COLUMN_ACROSS = 16, /* threads of a block along a row, S::n columns each */
    COLUMN_DOWN = 16    /* threads along the columns */
};

/*
 * A source gives the elements of a matrix.  A thread asks for S::n elements side by side at a time:
 * load() fetches what they take, batch of them at once, and values() makes them of it: zeros of
 * zeros, for rows that are not there.
 *
 * This one is a matrix as it stands.
 */
template <typename T, int N> struct matrix_source {
    static constexpr int n = N;
    static constexpr int batch = 8;
    typedef vec<T, N> raw;
    const T *src;

    __device__ __forceinline__ raw load(int64_t at) const
    {
        return *reinterpret_cast<const raw *>(src + at);
    }

    __device__ __forceinline__ void values(float (&v)[N], const raw &r, int64_t, bool) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = to_float(r.at[i]);
    }
};

/* v[0] = the sum of all v[k], in pairs: that keeps the rounding error small. */
template <int B, int N> static __device__ __forceinline__ void add_in_pairs(float (&v)[B][N])
{
#pragma unroll
    for (int step = 1; step < B; step *= 2)
#pragma unroll
        for (int k = 0; k + step < B; k += 2 * step)
#pragma unroll
            for (int i = 0; i < N; i++)
                v[k][i] += v[k + step][i];
}

/* sum += the next rows of a thread: S::batch of them if FULL, else what is left. */
template <bool FULL, typename S>
static __device__ __forceinline__ void add_batch(float (&sum)[S::n], const S &src, int64_t at,
                                                 int64_t step, int left)
{
    typename S::raw raw[S::batch];
    float v[S::batch][S::n];
#pragma unroll
    for (int k = 0; k < S::batch; k++)
        raw[k] = FULL || k < left ? src.load(at + k * step) : typename S::raw{};
#pragma unroll
    for (int k = 0; k < S::batch; k++)
        src.values(v[k], raw[k], at + k * step, FULL || k < left);
    add_in_pairs(v);
#pragma unroll
    for (int i = 0; i < S::n; i++)
        sum[i] += v[0][i];
}

/*
 * Each block sums one chunk of rows (blockIdx.y of gridDim.y) in COLUMN_ACROSS * S::n columns: a
 * thread walks down its columns in steps of COLUMN_DOWN rows, then one thread per column adds the
 * COLUMN_DOWN sums in order.  Which rows meet in which sum does not depend on S::n.
 */
template <typename S>
static __global__ void __launch_bounds__(COLUMN_ACROSS *COLUMN_DOWN, 4)
    column_sum_kernel(float *dst, const S src, int64_t rows, int64_t cols, bool accumulate)
{
    constexpr int N = S::n, B = S::batch;
    __shared__ float part[COLUMN_DOWN][COLUMN_ACROSS * N];
    const int across = threadIdx.x % COLUMN_ACROSS, down = threadIdx.x / COLUMN_ACROSS;
    const int64_t first = (int64_t)blockIdx.x * (COLUMN_ACROSS * N), col = first + across * N;
    const int64_t row = blockIdx.y * rows / gridDim.y + down, step = COLUMN_DOWN * cols;
    const int64_t end = (blockIdx.y + 1) * rows / gridDim.y;
    float sum[N] = {};
    if (col < cols) {
        int left = (int)((end - row + COLUMN_DOWN - 1) / COLUMN_DOWN);
        int64_t at = row * cols + col;
        for (; left >= B; left -= B, at += B * step)
            add_batch<true>(sum, src, at, step, left);
        if (left > 0)
            add_batch<false>(sum, src, at, step, left);
    }
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

/* dst [chunks, cols] = the sums over chunks of rows of a matrix [rows, cols]. */
template <typename S>
static void sum_chunks(float *dst, const S &src, int64_t rows, int64_t cols, int64_t chunks,
                       bool accumulate, cudaStream_t stream)
{
    const int64_t strip = COLUMN_ACROSS * S::n;
    dim3 grid((unsigned)((cols + strip - 1) / strip), (unsigned)chunks);
    column_sum_kernel<<<grid, COLUMN_ACROSS * COLUMN_DOWN, 0, stream>>>(dst, src, rows, cols,
                                                                       accumulate);
}

/* out [cols] = or += the sums over all rows; scratch has cuda_column_sum_workspace bytes. */
template <typename S>
static void column_sums(float *out, const S &src, int64_t rows, int64_t cols, bool accumulate,
                        void *scratch, cudaStream_t stream)
{
    const int64_t chunks = cuda_column_sum_chunks(rows, cols);
    float *partial = static_cast<float *>(scratch);
    if (chunks == 1) {
        sum_chunks(out, src, rows, cols, 1, accumulate, stream);
        return;
    }
    sum_chunks(partial, src, rows, cols, chunks, false, stream);
    if (cols % 4 == 0 && aligned16(out)) /* and so is the scratch */
        sum_chunks(out, matrix_source<float, 4>{partial}, chunks, cols, 1, accumulate, stream);
    else
        sum_chunks(out, matrix_source<float, 1>{partial}, chunks, cols, 1, accumulate, stream);
}

/* A tensor as a matrix of its last axis; its rows. */
static inline int64_t column_rows(const struct ckpt_desc *d)
{
    int64_t rows = 1;
    for (int i = 0; i < d->ndim - 1; i++)
        rows *= d->shape[i];
    return rows;
}

#endif

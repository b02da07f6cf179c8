/* Sums over the rows of a matrix, the gradient of a bias; and a row copied to all rows. */
#include "cuda/cuda.cuh"
#include "cuda/gemm.h"
#include "cuda/kernels.h"
#include "cuda/workspace.h"

enum {
    ACROSS = 16, /* threads of a block along a row, N columns each */
    DOWN = 16,   /* threads along the columns */
    BATCH = 8    /* rows that a thread loads before it adds them */
};

template <typename T, int N> __device__ __forceinline__ vec<T, N> read(const T *src)
{
    return *reinterpret_cast<const vec<T, N> *>(src);
}

/* v[0] = the sum of v[0 .. BATCH - 1], in pairs: that keeps the rounding error small. */
template <int N> __device__ __forceinline__ void add_in_pairs(float (&v)[BATCH][N])
{
#pragma unroll
    for (int step = 1; step < BATCH; step *= 2)
#pragma unroll
        for (int k = 0; k + step < BATCH; k += 2 * step)
#pragma unroll
            for (int i = 0; i < N; i++)
                v[k][i] += v[k + step][i];
}

/*
 * Each block sums one chunk of rows (blockIdx.y of gridDim.y) in ACROSS * N columns: a thread walks
 * down its N columns in steps of DOWN rows, then one thread per column adds the DOWN sums in order.
 * Which rows meet in which sum depends on the number of rows alone, not on N.
 */
template <typename T, int N>
__global__ void __launch_bounds__(ACROSS *DOWN, 4)
    column_sum_kernel(float *dst, const T *src, int64_t rows, int64_t cols, bool accumulate)
{
    __shared__ float part[DOWN][ACROSS * N];
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    const int64_t first = (int64_t)blockIdx.x * (ACROSS * N), col = first + across * N;
    const int64_t end = (blockIdx.y + 1) * rows / gridDim.y;
    float sum[N] = {};
    if (col < cols) {
        for (int64_t row = blockIdx.y * rows / gridDim.y + down; row < end; row += BATCH * DOWN) {
            vec<T, N> raw[BATCH];
            float v[BATCH][N];
#pragma unroll
            for (int k = 0; k < BATCH; k++)
                raw[k] = row + k * DOWN < end ? read<T, N>(src + (row + k * DOWN) * cols + col)
                                              : vec<T, N>{};
#pragma unroll
            for (int k = 0; k < BATCH; k++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    v[k][i] = to_float(raw[k].at[i]);
            add_in_pairs(v);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i] += v[0][i];
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        part[down][across * N + i] = sum[i];
    __syncthreads();
    for (int i = threadIdx.x; i < ACROSS * N && first + i < cols; i += ACROSS * DOWN) {
        float *to = dst + (int64_t)blockIdx.y * cols + first + i;
        float total = part[0][i];
#pragma unroll
        for (int k = 1; k < DOWN; k++)
            total += part[k][i];
        *to = accumulate ? *to + total : total;
    }
}

template <typename T, int N>
static void launch(float *dst, const void *src, int64_t rows, int64_t cols, int64_t chunks,
                   bool accumulate, cudaStream_t stream)
{
    dim3 grid((unsigned)((cols + ACROSS * N - 1) / (ACROSS * N)), (unsigned)chunks);
    column_sum_kernel<T, N><<<grid, ACROSS * DOWN, 0, stream>>>(dst, (const T *)src, rows, cols,
                                                               accumulate);
}

/* dst [chunks, cols] = the sums over chunks of rows of src [rows, cols]. */
template <typename T>
static void sum_chunks(float *dst, const void *src, int64_t rows, int64_t cols, int64_t chunks,
                       bool accumulate, cudaStream_t stream)
{
    if (aligned16(src) && cols % wide<T>::n == 0)
        launch<T, wide<T>::n>(dst, src, rows, cols, chunks, accumulate, stream);
    else
        launch<T, 1>(dst, src, rows, cols, chunks, accumulate, stream);
}

int cuda_column_sum(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *x = &a->in[0];
    const int64_t cols = x->desc.shape[x->desc.ndim - 1];
    int64_t rows = 1;
    for (int i = 0; i < x->desc.ndim - 1; i++)
        rows *= x->desc.shape[i];
    const int64_t chunks = cuda_column_sum_chunks(rows);
    float *out = (float *)a->out[0].data, *dst = chunks > 1 ? (float *)a->workspace : out;
    const bool accumulate = chunks == 1 && a->accumulate;
    if (x->desc.dtype == CKPT_BF16)
        sum_chunks<bf16>(dst, x->data, rows, cols, chunks, accumulate, stream_of(a));
    else
        sum_chunks<float>(dst, x->data, rows, cols, chunks, accumulate, stream_of(a));
    if (chunks > 1)
        sum_chunks<float>(out, dst, chunks, cols, 1, a->accumulate, stream_of(a));
    return launched();
}

/* A thread walks down its column; blocks take strips of columns and of rows. */
template <typename T>
__global__ void spread_row_kernel(T *dst, const T *row, int64_t rows, int64_t cols)
{
    const int64_t col = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols)
        return;
    const T value = row[col];
    for (int64_t r = blockIdx.y; r < rows; r += gridDim.y)
        dst[r * cols + col] = value;
}

int cuda_spread_row(void *dst, const void *row, int64_t rows, int64_t cols, enum ckpt_dtype dtype,
                    void *stream)
{
    dim3 grid((unsigned)((cols + 127) / 128), (unsigned)min_i64(rows, 1024));
    if (dtype == CKPT_BF16)
        spread_row_kernel<<<grid, 128, 0, (cudaStream_t)stream>>>((bf16 *)dst, (const bf16 *)row,
                                                                 rows, cols);
    else
        spread_row_kernel<<<grid, 128, 0, (cudaStream_t)stream>>>((float *)dst, (const float *)row,
                                                                 rows, cols);
    return launched();
}

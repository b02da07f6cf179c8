/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of a bias (the sum over the rows of a matrix), and a kernel that copies a row to all
 * rows. */
#include "kernels/cuda/column_sum.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kernels.h"

template <typename T> static int sum_matrix(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *d = &a->in[0].desc;
    const int64_t rows = column_rows(d), cols = d->shape[d->ndim - 1];
    const T *x = static_cast<const T *>(a->in[0].data);
    float *out = static_cast<float *>(a->out[0].data);
    if (aligned16(x) && cols % wide<T>::n == 0)
        column_sums(out, matrix_source<T, wide<T>::n>{x}, rows, cols, a->accumulate, a->workspace,
                    stream_of(a));
    else
        column_sums(out, matrix_source<T, 1>{x}, rows, cols, a->accumulate, a->workspace,
                    stream_of(a));
    return launched();
}

CUDA_FLOATS(column_sum, in[0], sum_matrix)

/* A thread writes one column; blocks cover strips of columns and of rows. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over rows: the sums of chunks of rows added in order. */
#ifndef CKPT_CUDA_ROW_SUMS_CUH
#define CKPT_CUDA_ROW_SUMS_CUH

#include "cuda/rows.cuh"

/*
 * Sum s of vector v is the sum over chunks of partial[v][chunk][s], in an order that depends on
 * their number alone; it goes to the row of operand first + s that belongs to the vector.  A block
 * takes 32 columns, each of its warps every ADDERS-th chunk: a launch is little more than the time
 * of two rounds of loads, one after the other.  The kernel that makes the partial sums comes right
 * before.
 */
constexpr int ADDERS = 32;

static __global__ void __launch_bounds__(32 * ADDERS)
    add_chunks(const __grid_constant__ struct rows r, int64_t rows_each, int64_t chunks, int64_t c,
               int first, const float *partial)
{
    __shared__ double total[ADDERS][32];
    int64_t column = (int64_t)blockIdx.x * 32 + threadIdx.x, stride = gridDim.y * c;
    wait_for_kernel_before();
    for (int64_t v = blockIdx.z; v * rows_each < r.count; v += gridDim.z) {
        const float *from = partial + v * chunks * stride + blockIdx.y * c + column;
        double sum = 0;
        if (column < c) {
#pragma unroll 8
            for (int64_t i = threadIdx.y; i < chunks; i += ADDERS)
                sum += (double)from[i * stride];
        }
        __syncthreads();
        total[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y || column >= c)
            continue;
#pragma unroll
        for (int i = 1; i < ADDERS; i++)
            sum += total[i][threadIdx.x];
        char *to = rows_seek_one(r, v * rows_each, first + (int)blockIdx.y);
        reinterpret_cast<float *>(to)[column] = (float)sum;
    }
}

static inline void launch_add_chunks(const struct rows *r, int64_t rows_each, int64_t chunks,
                                     int64_t c, int first, int n_sums, const float *partial,
                                     cudaStream_t stream)
{
    int64_t vectors = min_i64(r->count / rows_each, 65535);
    dim3 grid((unsigned)((c + 31) / 32), (unsigned)n_sums, (unsigned)vectors);
    launch_behind(stream, grid, dim3(32, ADDERS), add_chunks, *r, rows_each, chunks, c, first,
                  partial);
}

#endif

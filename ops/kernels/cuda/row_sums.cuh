/* SPDX-License-Identifier: Apache-2.0 */
/* Second stage of sums over rows: adds the partial sums of chunks in order. */
#ifndef CKPT_CUDA_ROW_SUMS_CUH
#define CKPT_CUDA_ROW_SUMS_CUH

#include "kernels/cuda/rows.cuh"

/* One more sum: over all rows, from `parts` partial sums. */
struct total {
    const float *partial; /* [parts][c] */
    float *to;            /* NULL: not requested */
    int64_t parts;
};

/*
 * Sum s of vector v is the sum over chunks of partial[v][chunk][s], in an order that depends only
 * on the number of chunks.  It is written to the row of operand first + s that belongs to the
 * vector.  The total follows the n_sums sums.
 *
 * A block sums 32 columns; each of its warps adds every ADDERS-th chunk, so a launch takes little
 * more than two consecutive rounds of loads.  The kernel that writes the partial sums must be the
 * previous one of the stream.
 */
constexpr int ADDERS = 32, ADD_AHEAD = 8;

/* Sums rows first, first + ADDERS, ... of `parts` rows in one column, with ADD_AHEAD loads in
 * flight. */
__device__ __forceinline__ double add_column(const float *from, int64_t first, int64_t parts,
                                             int64_t stride)
{
    double sum = 0;
    for (int64_t i = first; i < parts; i += ADD_AHEAD * ADDERS) {
        float part[ADD_AHEAD];
#pragma unroll
        for (int k = 0; k < ADD_AHEAD; k++)
            part[k] = i + k * ADDERS < parts ? from[(i + k * ADDERS) * stride] : 0.f;
#pragma unroll
        for (int k = 0; k < ADD_AHEAD; k++)
            sum += (double)part[k];
    }
    return sum;
}

static __global__ void __launch_bounds__(32 * ADDERS)
    add_chunks(const __grid_constant__ struct rows r, int64_t rows_each, int64_t chunks, int64_t c,
               int first, int n_sums, const float *partial, struct total all)
{
    __shared__ double sums[ADDERS][32 + 1];
    const int64_t begin = (int64_t)blockIdx.x * 32, column = begin + threadIdx.x;
    const bool is_total = (int)blockIdx.y == n_sums;
    const int64_t stride = is_total ? c : n_sums * c, parts = is_total ? all.parts : chunks;
    for (int64_t v = blockIdx.z; v * rows_each < r.count; v += gridDim.z) {
        const float *from = is_total ? all.partial : partial + v * chunks * stride + blockIdx.y * c;
        float *to = is_total ? all.to
                             : reinterpret_cast<float *>(
                                   rows_seek_one(r, v * rows_each, first + (int)blockIdx.y));
        double sum = 0;
        if (is_total && v > 0)
            return;
        wait_for_previous_kernel();
        if (column < c)
            sum = add_column(from + column, threadIdx.y, parts, stride);
        __syncthreads();
        sums[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        sum = warp_sum(sums[threadIdx.x][threadIdx.y]);
        if (threadIdx.x == 0 && begin + threadIdx.y < c)
            to[begin + threadIdx.y] = (float)sum;
    }
}

static inline void launch_add_chunks(const struct rows *r, int64_t rows_each, int64_t chunks,
                                     int64_t c, int first, int n_sums, const float *partial,
                                     struct total all, cudaStream_t stream)
{
    int64_t vectors = n_sums ? min_i64(r->count / rows_each, 65535) : 1;
    dim3 grid((unsigned)((c + 31) / 32), (unsigned)(n_sums + (all.to ? 1 : 0)), (unsigned)vectors);
    launch_dependent(stream, grid, dim3(32, ADDERS), add_chunks, *r, rows_each, chunks, c, first,
                     n_sums, partial, all);
}

#endif

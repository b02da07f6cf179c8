/* SPDX-License-Identifier: Apache-2.0 */
/* A separate pass that finds the largest magnitude of a result whose kernel cannot do it. */
#include "kernels/cuda/largest_find.cuh"
#include "kernels/cuda/rows.cuh"

namespace
{

enum { THREADS = 512, BLOCKS = 512 }; /* they fill a large GPU */

/* Rows of n pieces of 16 bytes. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    find_in_pieces(const __grid_constant__ struct rows r, int64_t n, uint32_t *to)
{
    largest<T> amax;
#pragma unroll 4
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < r.count * n;
         i += (int64_t)BLOCKS * THREADS) {
        const int64_t row = quotient(i, n);
        amax.see(piece_load<T>(rows_seek_one(r, row, 0), (int)(i - row * n)).word);
    }
    leave_largest(to, amax);
}

/* Rows of c elements. */
__global__ void __launch_bounds__(THREADS)
    find_in_elements(const __grid_constant__ struct rows r, int64_t c, bool half, uint32_t *to)
{
    largest<float> amax;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < r.count * c;
         i += (int64_t)BLOCKS * THREADS) {
        const int64_t row = quotient(i, c);
        amax.see(__float_as_uint(row_get(rows_seek_one(r, row, 0), i - row * c, half)));
    }
    leave_largest(to, amax);
}

} // namespace

void largest_find(const struct ckpt_view &x, uint32_t *to, cudaStream_t stream)
{
    const bool half = view_half(&x);
    const int64_t c = row_width(&x);
    struct rows r;
    rows_begin(&r, &x);
    rows_finish(&r);
    if (!rows_in_pieces(&r, 1, c, half))
        find_in_elements<<<BLOCKS, THREADS, 0, stream>>>(r, c, half, to);
    else if (half)
        find_in_pieces<bf16><<<BLOCKS, THREADS, 0, stream>>>(r, c / 8, to);
    else
        find_in_pieces<float><<<BLOCKS, THREADS, 0, stream>>>(r, c / 4, to);
}

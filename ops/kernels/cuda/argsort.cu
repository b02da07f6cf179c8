/* SPDX-License-Identifier: Apache-2.0 */
/* argsort of rows: a block sorts several short rows in shared memory; long rows use radix sort. */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/sort.h"
#include "argsort.h"

namespace
{

constexpr int THREADS = 256;

template <typename T> __device__ __forceinline__ uint32_t key_of(T x, bool descending)
{
    return sort_key(__float_as_uint(to_float(x)), descending);
}

/*
 * Bitonic sort (Batcher 1968) of SORT_TILE / width rows.  Each has `width` slots, a power of 2, for
 * pairs key << 32 | index, which are all different.  Slots past the end of a row have the largest
 * key.
 */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    sort_short(int32_t *index, const T *x, int64_t rows, int n, int width, bool descending)
{
    __shared__ uint64_t pair[SORT_TILE];
    int64_t first = (int64_t)blockIdx.x * (SORT_TILE / width);
    for (int i = threadIdx.x; i < SORT_TILE; i += THREADS) {
        int64_t row = first + i / width;
        int at = i % width;
        uint32_t key = row < rows && at < n ? key_of(x[row * n + at], descending) : ~0u;
        pair[i] = (uint64_t)key << 32 | (uint32_t)at;
    }
    for (int size = 2; size <= width; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < SORT_TILE / 2; i += THREADS) {
                int low = 2 * i - (i & (step - 1)), high = low + step;
                bool up = (low % width & size) == 0;
                uint64_t a = pair[low], b = pair[high];
                if ((a > b) == up) {
                    pair[low] = b;
                    pair[high] = a;
                }
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < SORT_TILE; i += THREADS) {
        int64_t row = first + i / width;
        if (row < rows && i % width < n)
            index[row * n + i % width] = (int32_t)(uint32_t)pair[i];
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    make_keys(uint32_t *key, const T *x, int64_t n, bool descending)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        key[i] = key_of(x[i], descending);
}

template <typename T> int argsort(const struct ckpt_kernel_args *a)
{
    int64_t n = row_width(&a->in[0]), all = desc_numel(&a->in[0].desc), rows = all / n;
    bool descending = static_cast<const struct sort_attr *>(a->attr)->descending;
    const T *x = static_cast<const T *>(a->in[0].data);
    int32_t *index = static_cast<int32_t *>(a->out[0].data);
    if (n <= SORT_TILE) {
        int width = 2;
        while (width < n)
            width *= 2;
        int64_t each = SORT_TILE / width;
        sort_short<<<(unsigned)((rows + each - 1) / each), THREADS, 0, stream_of(a)>>>(
            index, x, rows, (int)n, width, descending);
        return launched();
    }
    struct sort_buffers b = sort_buffers_of(a->workspace, rows, n);
    make_keys<<<(unsigned)((all + THREADS - 1) / THREADS), THREADS, 0, stream_of(a)>>>(
        b.key[0], x, all, descending);
    int side = cuda_sort_rows(&b, rows, n, 32, a->stream);
    cudaMemcpyAsync(index, b.value[side], (size_t)all * sizeof *index, cudaMemcpyDeviceToDevice,
                    stream_of(a));
    return launched();
}

} // namespace

int cuda_argsort(const struct ckpt_kernel_args *a)
{
    return view_half(&a->in[0]) ? argsort<bf16>(a) : argsort<float>(a);
}

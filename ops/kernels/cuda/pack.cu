/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack and unpack.  Rows are numbered over the whole batch; the packed position of an unmasked row
 * is its rank among the unmasked rows.  The first launch counts the unmasked rows in groups of 32.
 * The second one sums the counts before its group and copies its rows.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/walk.cuh"
#include "kernels/cuda/workspace.h"

#define THREADS 256
#define WARPS   (THREADS / 32)
#define STRIP   512 /* bytes of a row that one thread block copies: 16 per lane */

/* One warp per 32 rows. */
static __global__ void __launch_bounds__(THREADS)
    count_rows(int32_t *count, const int32_t *mask, int64_t rows)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    unsigned set = __ballot_sync(0xffffffffu, i < rows && mask[i]);
    if (threadIdx.x % 32 == 0 && i < rows)
        count[i / CUDA_PACK_ROWS] = __popc(set);
}

/* One thread block per sample. */
static __global__ void __launch_bounds__(THREADS)
    count_sample(int32_t *lens, const int32_t *mask, int64_t length)
{
    int64_t n = 0;
    for (int64_t i = threadIdx.x; i < length; i += THREADS)
        n += mask[blockIdx.x * length + i] != 0;
    n = block_sum(n);
    if (threadIdx.x == 0)
        lens[blockIdx.x] = (int32_t)n;
}

/* Copies a strip of a row, or clears it if `from` is NULL; `size` bytes in units of T. */
template <typename T>
static __device__ __forceinline__ void move_strip(char *to, const char *from, int64_t begin,
                                                  int64_t size)
{
    int64_t end = min(size, begin + STRIP);
    for (int64_t at = begin + threadIdx.x % 32 * sizeof(T); at < end; at += 32 * sizeof(T)) {
        T unit = {};
        if (from)
            unit = *reinterpret_cast<const T *>(from + at);
        *reinterpret_cast<T *>(to + at) = unit;
    }
}

/*
 * Blocks: groups of 32 rows x strips of `size` bytes; a warp handles every WARPS-th row.  Packing
 * copies unmasked rows to their rank and clears as many rows at the end as are masked.
 */
template <typename T, bool PACK>
static __global__ void __launch_bounds__(THREADS)
    move_rows(char *y, const char *x, const int32_t *mask, const int32_t *count, int64_t rows,
              int64_t size, unsigned strips)
{
    int64_t group = blockIdx.x / strips, begin = (int64_t)(blockIdx.x % strips) * STRIP;
    int64_t before = 0, all = 0, groups = (rows + CUDA_PACK_ROWS - 1) / CUDA_PACK_ROWS;
    for (int64_t i = threadIdx.x; i < (PACK ? groups : group); i += THREADS) {
        all += count[i];
        before += i < group ? count[i] : 0;
    }
    before = block_sum(before);
    if (PACK)
        all = block_sum(all);
    int64_t first = group * CUDA_PACK_ROWS, mine = first + threadIdx.x % 32;
    unsigned set = __ballot_sync(0xffffffffu, mine < rows && mask[mine]);
    for (int i = threadIdx.x / 32; i < CUDA_PACK_ROWS && first + i < rows; i += WARPS) {
        bool in = set >> i & 1;
        int64_t row = first + i, rank = before + __popc(set & ((1u << i) - 1));
        if (PACK)
            move_strip<T>(y + (in ? rank : all + row - rank) * size, in ? x + row * size : NULL,
                          begin, size);
        else
            move_strip<T>(y + row * size, in ? x + rank * size : NULL, begin, size);
    }
}

template <typename T, bool PACK>
static void launch_move(const struct ckpt_kernel_args *a, const int32_t *mask, int64_t rows,
                        int64_t size)
{
    unsigned strips = blocks_of(size, STRIP);
    move_rows<T, PACK><<<blocks_of(rows, CUDA_PACK_ROWS) * strips, THREADS, 0, stream_of(a)>>>(
        static_cast<char *>(a->out[0].data), static_cast<const char *>(a->in[0].data), mask,
        static_cast<const int32_t *>(a->workspace), rows, size, strips);
}

template <bool PACK> static int move(const struct ckpt_kernel_args *a, const struct ckpt_desc *x)
{
    const int32_t *mask = static_cast<const int32_t *>(a->in[1].data);
    int64_t rows = x->shape[0] * x->shape[1], size = x->shape[2] * ckpt_dtype_size(x->dtype);
    count_rows<<<blocks_of(rows, THREADS), THREADS, 0, stream_of(a)>>>(
        static_cast<int32_t *>(a->workspace), mask, rows);
    if (PACK)
        count_sample<<<(unsigned)x->shape[0], THREADS, 0, stream_of(a)>>>(
            static_cast<int32_t *>(a->out[1].data), mask, x->shape[1]);
    if (size % 16 == 0 && aligned16(a->in[0].data) && aligned16(a->out[0].data))
        launch_move<uint4, PACK>(a, mask, rows, size);
    else if (x->dtype == CKPT_BF16)
        launch_move<uint16_t, PACK>(a, mask, rows, size);
    else
        launch_move<uint32_t, PACK>(a, mask, rows, size);
    return launched();
}

int cuda_pack(const struct ckpt_kernel_args *a)
{
    return move<true>(a, &a->in[0].desc);
}

int cuda_unpack(const struct ckpt_kernel_args *a)
{
    return move<false>(a, &a->out[0].desc);
}

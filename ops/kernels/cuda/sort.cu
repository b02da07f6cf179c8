/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stable radix sort, eight bits per pass: count the digits of each tile, scan the counts for the
 * destination of each tile's keys of each digit, move the keys.  A warp owns 256 consecutive keys
 * of a tile, so the rank of a key among equal digits follows from the keys before it: the result
 * depends on the keys alone.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/sort.h"

namespace
{

constexpr int WARPS = 8, THREADS = 32 * WARPS, ROUNDS = SORT_TILE / THREADS;
static_assert(THREADS == SORT_DIGITS, "a thread to a digit");

/* Sets *at to the position of one of this lane's keys; returns whether it exists. */
__device__ __forceinline__ bool key_at(int64_t tile, int round, int64_t n, int64_t *at)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    *at = tile * SORT_TILE + (warp * ROUNDS + round) * 32 + lane;
    return *at < n;
}

/* The lanes of the warp with the same digit; 0 for absent lanes. */
__device__ __forceinline__ unsigned same_digit(uint32_t digit, bool present)
{
    unsigned with = __ballot_sync(0xffffffffu, present);
    unsigned same = __match_any_sync(0xffffffffu, digit);
    return present ? same & with : 0;
}

/* counts[warp][digit] of this block's tile. */
__device__ __forceinline__ void count_tile(uint32_t (&counts)[WARPS][SORT_DIGITS],
                                           const uint32_t *key, int64_t tile, int64_t n, int shift)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int d = lane; d < SORT_DIGITS; d += 32)
        counts[warp][d] = 0;
    __syncwarp();
    for (int round = 0; round < ROUNDS; round++) {
        int64_t at;
        bool present = key_at(tile, round, n, &at);
        uint32_t digit = present ? key[at] >> shift & 255 : 0;
        unsigned same = same_digit(digit, present);
        if (present && lane == __ffs((int)same) - 1)
            counts[warp][digit] += (uint32_t)__popc(same);
        __syncwarp();
    }
    __syncthreads();
}

/* Blocks: rows x tiles. count[row][digit][tile]. */
__global__ void __launch_bounds__(THREADS)
    count_digits(const uint32_t *keys, uint32_t *count, int64_t n, int64_t tiles, int shift)
{
    __shared__ uint32_t counts[WARPS][SORT_DIGITS];
    int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    count_tile(counts, keys + row * n, tile, n, shift);
    uint32_t sum = 0;
    for (int w = 0; w < WARPS; w++)
        sum += counts[w][threadIdx.x];
    count[(row * SORT_DIGITS + threadIdx.x) * tiles + tile] = sum;
}

/* One block per row: an exclusive scan of the counts. */
__global__ void __launch_bounds__(1024) add_counts(uint32_t *count, int64_t n)
{
    __shared__ uint32_t sums[32];
    __shared__ uint32_t carry;
    uint32_t *c = count + blockIdx.x * n;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0)
        carry = 0;
    for (int64_t base = 0; base < n; base += 1024) {
        int64_t i = base + threadIdx.x;
        uint32_t own = i < n ? c[i] : 0, sum = own;
        for (int step = 1; step < 32; step *= 2) {
            uint32_t before = __shfl_up_sync(0xffffffffu, sum, step);
            sum += lane >= step ? before : 0;
        }
        if (lane == 31)
            sums[warp] = sum;
        __syncthreads();
        uint32_t before = carry;
        for (int w = 0; w < warp; w++)
            before += sums[w];
        if (i < n)
            c[i] = before + sum - own;
        __syncthreads();
        if (threadIdx.x == 1023)
            carry = before + sum;
    }
}

/* Blocks as in count_digits. value_in NULL: values are the positions of the keys. */
__global__ void __launch_bounds__(THREADS)
    move_keys(const uint32_t *key_in, const uint32_t *value_in, uint32_t *key_out,
              uint32_t *value_out, const uint32_t *count, int64_t n, int64_t tiles, int shift)
{
    __shared__ uint32_t next[WARPS][SORT_DIGITS];
    int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    key_in += row * n;
    count_tile(next, key_in, tile, n, shift);
    uint32_t to = count[(row * SORT_DIGITS + threadIdx.x) * tiles + tile];
    for (int w = 0; w < WARPS; w++) {
        uint32_t own = next[w][threadIdx.x];
        next[w][threadIdx.x] = to;
        to += own;
    }
    __syncthreads();
    for (int round = 0; round < ROUNDS; round++) {
        int64_t at;
        bool present = key_at(tile, round, n, &at);
        uint32_t key = present ? key_in[at] : 0, digit = present ? key >> shift & 255 : 0;
        unsigned same = same_digit(digit, present);
        uint32_t first = next[warp][digit];
        __syncwarp();
        if (present) {
            int64_t place = row * n + first + (uint32_t)__popc(same & ((1u << lane) - 1));
            key_out[place] = key;
            value_out[place] = value_in ? value_in[row * n + at] : (uint32_t)at;
            if (lane == __ffs((int)same) - 1)
                next[warp][digit] = first + (uint32_t)__popc(same);
        }
        __syncwarp();
    }
}

} // namespace

int cuda_sort_rows(const struct sort_buffers *b, int64_t rows, int64_t n, int bits, void *stream)
{
    cudaStream_t s = (cudaStream_t)stream;
    int64_t tiles = sort_tiles(n);
    unsigned blocks = (unsigned)(rows * tiles);
    int from = 0;
    for (int shift = 0; shift < bits || shift == 0; shift += 8, from ^= 1) {
        count_digits<<<blocks, THREADS, 0, s>>>(b->key[from], b->count, n, tiles, shift);
        add_counts<<<(unsigned)rows, 1024, 0, s>>>(b->count, SORT_DIGITS * tiles);
        move_keys<<<blocks, THREADS, 0, s>>>(b->key[from], shift ? b->value[from] : NULL,
                                             b->key[from ^ 1], b->value[from ^ 1], b->count, n,
                                             tiles, shift);
    }
    return from;
}

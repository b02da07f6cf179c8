/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel of accumulate_narrow: adds to a bf16 sum with stochastic rounding, four elements a
 * thread. */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/walk.cuh"
#include "optim/update_math.h"

namespace
{

enum { THREADS = 256, LANES = 4 };

template <typename T> struct narrow_sum {
    bf16 *sum;
    const T *x;
    int64_t n;
    int64_t first; /* Philox blocks (four words each) used by earlier micro-steps */
    uint32_t stream;
    bool add;
};

/* Adds N elements, with the words of one draw. */
template <typename T, int N>
__device__ __forceinline__ void add_some(const struct narrow_sum<T> &s, int64_t at,
                                         const uint32_t (&word)[LANES])
{
    float x[N], before[N];
    load_floats(x, s.x + at);
    if (s.add)
        load_floats(before, s.sum + at);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float total = s.add ? before[i] + x[i] : x[i];
        x[i] = update_round(total, update_noise(word[i], NOISE_VALUE));
    }
    store_floats(s.sum + at, x);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    accumulate(const __grid_constant__ struct narrow_sum<T> s, const struct ckpt_run *run)
{
    const int64_t block = (int64_t)blockIdx.x * THREADS + threadIdx.x, at = block * LANES;
    if (at >= s.n)
        return;
    const uint4 w =
        philox(philox_counter(PHILOX_WORDS, s.first + block, (uint64_t)run->opt_step, s.stream),
               run->seed);
    const uint32_t word[LANES] = {w.x, w.y, w.z, w.w};
    if (at + LANES <= s.n) {
        add_some<T, LANES>(s, at, word);
        return;
    }
#pragma unroll
    for (int i = 0; i < LANES; i++) {
        const uint32_t one[LANES] = {word[i]};
        if (at + i < s.n)
            add_some<T, 1>(s, at + i, one);
    }
}

template <typename T> int launch(const struct ckpt_kernel_args *a)
{
    const int64_t n = desc_numel(&a->out[0].desc), draws = (n + LANES - 1) / LANES;
    const struct narrow_sum<T> s = {
        static_cast<bf16 *>(a->out[0].data),
            static_cast<const T *>(a->in[1].data), n, a->run->micro *draws,
            (uint32_t)a->number, a->accumulate
    };
    if (n)
        accumulate<<<blocks_of(draws, THREADS), THREADS, 0, stream_of(a)>>>(s, a->run_device);
    return launched();
}

} // namespace

CUDA_FLOATS(accumulate_narrow, in[1], launch)

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the kernels of updates: the parameters of a launch, and the part of a parameter that an
 * element is rounded with. */
#ifndef CKPT_CUDA_UPDATE_PARAM_CUH
#define CKPT_CUDA_UPDATE_PARAM_CUH

#include "attr.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/philox.cuh"
#include "optim/update_math.h"

#define THREADS 256
#define CHUNK   (4 * THREADS) /* elements of a thread block: one vector a thread */

/* w, m and v are fp32, or bf16 where the state is, or bf16 with m and v in 8 bits; value is bf16
 * beside a master, else NULL; m, v and ema may be NULL. */
struct update_param {
    void *w, *m, *v;
    float *ema;
    bf16 *value;
    const void *g;
    int64_t numel;
    uint32_t first; /* of its thread blocks */
    bool half;      /* the gradient is bf16 */
    bool vectors;   /* all addresses are good for vectors of 4 elements, of 8 beside 8-bit means */
};

struct update_all {
    int n;
    struct update_param of[UPDATE_PARAMS];
};

/* The parameter that a block belongs to: the last whose first block is not behind it. */
static __device__ __forceinline__ int param_of(const struct update_all &all, uint32_t block)
{
    int low = 0, high = all.n - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (all.of[middle].first <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The part that element i of parameter k belongs to: the last that does not begin behind it. */
static __device__ __forceinline__ const struct rounding_part &part_at(const struct rounding &r,
                                                                      int k, int64_t i)
{
    int low = r.begin[k], high = r.begin[k + 1] - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (r.part[middle].first <= i)
            low = middle;
        else
            high = middle - 1;
    }
    return r.part[low];
}

#endif

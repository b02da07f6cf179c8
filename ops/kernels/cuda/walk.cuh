/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Iteration over views of any strides on the device: struct loops with precomputed divisions.
 *
 * A walk covers at most WALK_MOST positions, so that positions fit in 32 bits; the host splits
 * larger ones (walk_pieces).  Offsets are 64-bit.
 */
#ifndef CKPT_CUDA_WALK_CUH
#define CKPT_CUDA_WALK_CUH

#include "kernels/cuda/cuda.cuh"
#include "loops.h"

#define WALK_MOST    ((int64_t)1 << 30)
#define WALK_THREADS 256
#define WALK_OPERANDS 4

/* One axis: its size, the constants for division by it, and the stride of each operand. */
struct walk_axis {
    int64_t size;
    uint32_t magic, shift;
    int64_t step[WALK_OPERANDS];
};

struct walk {
    int32_t ndim;
    uint32_t count; /* positions of the whole walk */
    struct walk_axis axis[CKPT_MAX_DIMS];
};

/* Division by an invariant (Granlund & Montgomery 1994): n / size for n below 2^31. */
static __device__ __forceinline__ uint32_t walk_divide(uint32_t n, const struct walk_axis &a)
{
    return (__umulhi(n, a.magic) + n) >> a.shift;
}

/* The offsets of the first N operands at position `at`, in row-major order. */
template <int N>
static __device__ __forceinline__ void walk_seek(const struct walk &w, uint32_t at,
                                                 int64_t (&offset)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        offset[k] = 0;
    for (int i = w.ndim - 1; i > 0; i--) {
        uint32_t above = walk_divide(at, w.axis[i]);
        uint32_t here = at - above * (uint32_t)w.axis[i].size;
#pragma unroll
        for (int k = 0; k < N; k++)
            offset[k] += (int64_t)here * w.axis[i].step[k];
        at = above;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        offset[k] += (int64_t)at * w.axis[0].step[k];
}

/* The same for a walk of any length, whose count does not fit in 32 bits; slower. */
template <int N>
static __device__ __forceinline__ void walk_seek_far(const struct walk &w, int64_t at,
                                                     int64_t (&offset)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++)
        offset[k] = 0;
    for (int i = w.ndim - 1; i >= 0; i--) {
        int64_t above = i ? at / w.axis[i].size : 0;
        int64_t here = at - above * w.axis[i].size;
#pragma unroll
        for (int k = 0; k < N; k++)
            offset[k] += here * w.axis[i].step[k];
        at = above;
    }
}

static inline struct walk_axis walk_axis_of(int64_t size)
{
    struct walk_axis a = {};
    a.size = size;
    if (size > WALK_MOST)
        return a;
    while ((int64_t)1 << a.shift < size)
        a.shift++;
    a.magic = (uint32_t)(((((int64_t)1 << a.shift) - size) << 32) / size + 1);
    return a;
}

/* The first `axes` axes of loops. */
static inline struct walk walk_of(const struct loops *l, int axes)
{
    struct walk w = {};
    w.ndim = axes > 0 ? axes : 1;
    w.axis[0] = walk_axis_of(1);
    for (int i = 0; i < axes; i++) {
        w.axis[i] = walk_axis_of(l->shape[i]);
        for (int k = 0; k < l->n; k++)
            w.axis[i].step[k] = l->stride[k][i];
    }
    w.count = (uint32_t)loops_count(l, axes);
    return w;
}

/* Can operand k be accessed in vectors of n elements: contiguous, and aligned to their size? */
static inline bool walk_runs(const struct loops *l, int k, const void *base, int64_t element,
                             int64_t n)
{
    int last = l->ndim - 1;
    if (l->shape[last] % n || l->stride[k][last] != 1 || (uintptr_t)base % (uintptr_t)(n * element))
        return false;
    for (int i = 0; i < last; i++)
        if (l->stride[k][i] % n)
            return false;
    return true;
}

/* Makes the last axis advance by n elements; strides are still in elements. */
static inline void walk_by_vectors(struct loops *l, int64_t n)
{
    l->shape[l->ndim - 1] /= n;
    for (int k = 0; k < l->n; k++)
        l->stride[k][l->ndim - 1] *= n;
}

static inline unsigned blocks_of(int64_t n, int64_t per_block)
{
    return (unsigned)((n + per_block - 1) / per_block);
}

/*
 * Calls launch(loops, base) for consecutive parts of at most WALK_MOST positions. base[k] is the
 * start of operand k, whose elements have size[k] bytes.
 */
template <typename F>
static void walk_pieces(const struct loops *l, char *const *base, const int64_t *size, F launch)
{
    if (loops_count(l, l->ndim) <= WALK_MOST) {
        launch(l, base);
        return;
    }
    struct loops part = *l;
    char *at[LOOPS_OPERANDS] = {};
    int axis = 0;
    while (l->shape[axis] == 1)
        axis++;
    /* a multiple of any vector length, if the axis is long enough */
    int64_t half = l->shape[axis] / 2;
    if (half > 64)
        half = half / 64 * 64;
    part.shape[axis] = half;
    walk_pieces(&part, base, size, launch);
    for (int k = 0; k < l->n; k++)
        at[k] = base[k] + half * l->stride[k][axis] * size[k];
    part.shape[axis] = l->shape[axis] - half;
    walk_pieces(&part, at, size, launch);
}

#endif

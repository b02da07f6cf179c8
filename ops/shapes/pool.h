/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling: attributes and sizes, for the shape rules and the kernels of all devices. */
#ifndef CKPT_SHAPES_POOL_H
#define CKPT_SHAPES_POOL_H

#include "core/base.h"

#ifdef __CUDACC__
#define POOL_INLINE static __host__ __device__ __forceinline__
#else
#define POOL_INLINE static inline
#endif

/* Always three spatial axes, outermost first; absent ones have windows of 1. */
struct pool_attr {
    int64_t window[3], stride[3], before[3], after[3];
    int64_t count_include_pad; /* 0 or 1 */
};

/* Positions of a sample and of a window are fewer than 2^31: see pool_rule. */
struct pool_shape {
    int64_t n, c;
    int32_t from[3], size[3]; /* sizes of x and of the result */
    int32_t window[3], stride[3], before[3];
    int32_t count_include_pad;
};

/* Positions begin .. end - 1 along an axis. */
struct pool_range {
    int32_t begin, end;
};

/* Computed from the shape of x. */
static inline struct pool_shape pool_shape(const struct ckpt_desc *x, const struct pool_attr *a)
{
    struct pool_shape s = {.n = x->shape[0], .c = x->shape[x->ndim - 1]};
    int absent = 5 - x->ndim;
    for (int i = 0; i < 3; i++) {
        int64_t from = i < absent ? 1 : x->shape[1 + i - absent];
        int64_t rest = from + a->before[i] + a->after[i] - a->window[i];
        s.from[i] = (int32_t)from;
        s.window[i] = (int32_t)a->window[i];
        s.stride[i] = (int32_t)a->stride[i];
        s.before[i] = (int32_t)a->before[i];
        s.size[i] = (int32_t)(rest / a->stride[i] + 1);
    }
    s.count_include_pad = (int32_t)a->count_include_pad;
    return s;
}

POOL_INLINE int64_t pool_volume(const int32_t *size)
{
    return (int64_t)size[0] * size[1] * size[2];
}

/* The index of a position in a sample. */
POOL_INLINE int32_t pool_place(const int32_t *size, int32_t d, int32_t h, int32_t w)
{
    return (d * size[1] + h) * size[2] + w;
}

/* Whether no position of x is in two windows. */
static inline bool pool_is_disjoint(const struct pool_shape *s)
{
    return s->stride[0] >= s->window[0] && s->stride[1] >= s->window[1] &&
           s->stride[2] >= s->window[2];
}

/* Whether every position of x is in exactly one window. */
static inline bool pool_is_tiling(const struct pool_shape *s)
{
    for (int i = 0; i < 3; i++)
        if (s->stride[i] != s->window[i] || s->before[i] || s->size[i] * s->window[i] < s->from[i])
            return false;
    return true;
}

/* The part of window o that lies inside x; never empty. */
POOL_INLINE struct pool_range pool_window(const struct pool_shape *s, int axis, int32_t o)
{
    int64_t begin = (int64_t)o * s->stride[axis] - s->before[axis], end = begin + s->window[axis];
    struct pool_range r = {begin < 0 ? 0 : (int32_t)begin,
                           end < s->from[axis] ? (int32_t)end : s->from[axis]};
    return r;
}

/* The windows that contain position q of x; possibly none. */
POOL_INLINE struct pool_range pool_windows_of(const struct pool_shape *s, int axis, int32_t q)
{
    const uint32_t stride = (uint32_t)s->stride[axis]; /* 64-bit division is slow */
    int64_t at = (int64_t)q + s->before[axis], last = (uint32_t)at / stride;
    int64_t over = at - s->window[axis]; /* windows that begin here or earlier end before q */
    struct pool_range r = {over < 0 ? 0 : (int32_t)((uint32_t)over / stride) + 1, s->size[axis]};
    if (last + 1 < r.end)
        r.end = (int32_t)last + 1;
    return r;
}

/* The divisor of the sum over a window. */
POOL_INLINE float pool_count(const struct pool_shape *s, const struct pool_range *r)
{
    if (s->count_include_pad)
        return (float)(s->window[0] * s->window[1] * s->window[2]);
    return (float)((r[0].end - r[0].begin) * (r[1].end - r[1].begin) * (r[2].end - r[2].begin));
}

#endif

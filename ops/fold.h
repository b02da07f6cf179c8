/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions other than sums: amax, amin, prod, logsumexp, argmax.  A dense operand is viewed as
 * [outer, n, inner] and reduced over n.  n is split into parts by a rule that depends on the shape
 * alone and is the same on both devices.
 */
#ifndef CKPT_OPS_FOLD_H
#define CKPT_OPS_FOLD_H

#include "core/base.h"

#ifdef __CUDACC__
#define FOLD_INLINE static __host__ __device__ __forceinline__
#else
#define FOLD_INLINE static inline
#endif

/* Reduces the axes [first, first + count). */
struct fold_attr {
    int32_t first, count;
};

enum fold_kind { FOLD_MAX, FOLD_MIN, FOLD_PROD, FOLD_LSE, FOLD_ARGMAX };

struct fold_shape {
    int64_t outer, n, inner, parts;
};

/* The partial result over some elements.  Extremes: value (negated for a minimum) and index in
 * `other`.  Product: value.  logsumexp: maximum in value, sum of exp(x - maximum) in `other`. */
struct fold {
    double value, other;
};

static inline struct fold_shape fold_shape_of(const struct ckpt_desc *x, const struct fold_attr *a)
{
    struct fold_shape s = {1, 1, 1, 1};
    for (int i = 0; i < x->ndim; i++)
        *(i < a->first ? &s.outer : i < a->first + a->count ? &s.n : &s.inner) *= x->shape[i];
    int64_t results = s.outer * s.inner;
    s.parts =
        s.inner == 1 ? min_i64(s.n / 4096, 512 / results) : min_i64(s.n / 64, 32768 / results);
    s.parts = max_i64(1, s.parts);
    return s;
}

static inline int64_t fold_workspace(const struct fold_shape *s)
{
    return s->parts > 1 ? s->outer * s->inner * s->parts * (int64_t)sizeof(struct fold) : 0;
}

FOLD_INLINE struct fold fold_begin(int kind)
{
    struct fold f = {kind == FOLD_PROD ? 1. : -INFINITY, 0.};
    if (kind != FOLD_PROD && kind != FOLD_LSE)
        f.other = -1.; /* no index yet */
    return f;
}

/* Whether b replaces a: it is larger, or equal with a smaller index.  NaN is larger than any
 * number. */
FOLD_INLINE bool fold_larger(struct fold a, struct fold b)
{
    if (a.other < 0. || b.other < 0.)
        return b.other >= 0.;
    bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan)
        return b_nan && (!a_nan || b.other < a.other);
    return b.value > a.value || (b.value == a.value && b.other < a.other);
}

/* Adds element i with value x. */
FOLD_INLINE void fold_add(int kind, struct fold *f, float x, int64_t i)
{
    if (kind == FOLD_PROD) {
        f->value *= (double)x;
    } else if (kind == FOLD_LSE) {
        float top = (float)f->value;
        if (x > top) {
            f->other = f->other * (double)expf(top - x) + 1.;
            f->value = (double)x;
        } else if (x == top) {
            f->other += x == -INFINITY ? 0. : 1.;
        } else {
            f->other += (double)expf(x - top);
        }
    } else {
        struct fold one = {kind == FOLD_MIN ? -(double)x : (double)x, (double)i};
        if (fold_larger(*f, one))
            *f = one;
    }
}

FOLD_INLINE struct fold fold_join(int kind, struct fold a, struct fold b)
{
    if (kind == FOLD_PROD) {
        a.value *= b.value;
        return a;
    }
    if (kind != FOLD_LSE)
        return fold_larger(a, b) ? b : a;
    struct fold top = b.value > a.value ? b : a, low = b.value > a.value ? a : b;
    if (low.value == top.value)
        top.other += low.other;
    else if (low.other != 0.)
        top.other += low.other * (double)expf((float)(low.value - top.value));
    return top;
}

FOLD_INLINE float fold_value(int kind, struct fold f)
{
    if (kind == FOLD_LSE)
        return f.other == 0. ? -INFINITY : (float)(f.value + log(f.other));
    return (float)(kind == FOLD_MIN ? -f.value : f.value);
}

#endif

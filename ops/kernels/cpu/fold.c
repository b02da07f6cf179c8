/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: amax, amin, prod, logsumexp, argmax; see fold.h. */
#include "cpu.h"
#include "fold.h"
#include "kernels.h"
#include "rows.h"

ROWS_INLINE struct fold fold_part(int kind, const struct fold_shape *s, const void *x, int64_t r,
                                  int64_t part, bool half)
{
    const int64_t from = s->n * part / s->parts, to = s->n * (part + 1) / s->parts;
    const int64_t at = r / s->inner * s->n * s->inner + r % s->inner;
    struct fold f = fold_begin(kind);
    for (int64_t i = from; i < to; i++)
        fold_add(kind, &f, row_get(x, at + i * s->inner, half), i);
    return f;
}

ROWS_INLINE int fold_all(const struct ckpt_kernel_args *a, int kind)
{
    const struct fold_shape s = fold_shape_of(&a->in[0].desc, a->attr);
    const bool half = view_half(&a->in[0]);
    const int64_t results = s.outer * s.inner;
    struct fold *partial = a->workspace;
    float *y = a->out[0].data;
#pragma omp parallel for schedule(static) if (results * s.n > ROWS_CHUNK)
    for (int64_t i = 0; i < results * s.parts; i++) {
        int64_t r = i / s.parts;
        struct fold f = half ? fold_part(kind, &s, a->in[0].data, r, i % s.parts, true)
                             : fold_part(kind, &s, a->in[0].data, r, i % s.parts, false);
        if (s.parts > 1)
            partial[i] = f;
        else if (kind == FOLD_ARGMAX)
            ((int32_t *)y)[r] = (int32_t)f.other;
        else
            y[r] = fold_value(kind, f);
    }
    for (int64_t r = 0; r < results && s.parts > 1; r++) {
        struct fold f = partial[r * s.parts];
        for (int64_t part = 1; part < s.parts; part++)
            f = fold_join(kind, f, partial[r * s.parts + part]);
        if (kind == FOLD_ARGMAX)
            ((int32_t *)y)[r] = (int32_t)f.other;
        else
            y[r] = fold_value(kind, f);
    }
    return CKPT_OK;
}

#define FOLD(op, kind)                                                                             \
    int cpu_##op(const struct ckpt_kernel_args *a)                                                 \
    {                                                                                              \
        return fold_all(a, kind);                                                                  \
    }
FOLD(amax, FOLD_MAX)
FOLD(amin, FOLD_MIN)
FOLD(prod, FOLD_PROD)
FOLD(logsumexp, FOLD_LSE)
FOLD(argmax, FOLD_ARGMAX)

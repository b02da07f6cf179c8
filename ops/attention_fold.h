/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bias of attention that is broadcast over sequences or heads gets the sum of their gradients.
 * A fold says which: its units are the matrices of the gradient, each the sum over its members.
 */
#ifndef CKPT_ATTENTION_FOLD_H
#define CKPT_ATTENTION_FOLD_H

#include "ckpt.h"

#ifdef __CUDACC__
#define FOLD_INLINE static __host__ __device__ __forceinline__
#else
#define FOLD_INLINE static inline
#endif

struct attention_fold {
    int n;                       /* axes: the leading ones of q, then the heads */
    int64_t size[CKPT_MAX_DIMS]; /* of q */
    int64_t kept[CKPT_MAX_DIMS]; /* of the gradient: the same, or 1 where it is a sum */
    int64_t units, members;
};

/* q [..., L, H, D]; bias broadcasts to [..., H, L, M]. */
FOLD_INLINE struct attention_fold attention_fold_of(const struct ckpt_desc *q,
                                                    const struct ckpt_desc *bias)
{
    struct attention_fold f = {0};
    f.n = q->ndim - 2;
    f.units = f.members = 1;
    for (int i = 0; i < f.n; i++) {
        int at = bias->ndim - q->ndim + i; /* the same axis of the bias */
        f.size[i] = q->shape[i + 1 == f.n ? q->ndim - 2 : i];
        f.kept[i] = at >= 0 ? bias->shape[at] : 1;
        f.units *= f.kept[i];
        f.members *= f.kept[i] == 1 ? f.size[i] : 1;
    }
    return f;
}

/* The number of a head, over all sequences: of a unit, and of one of its members. */
FOLD_INLINE int64_t attention_fold_head(const struct attention_fold *f, int64_t unit,
                                        int64_t member)
{
    int64_t head = 0, step = 1;
    for (int i = f->n - 1; i >= 0; i--) {
        int64_t *from = f->kept[i] == 1 ? &member : &unit;
        head += *from % f->size[i] * step;
        *from /= f->size[i];
        step *= f->size[i];
    }
    return head;
}

#endif

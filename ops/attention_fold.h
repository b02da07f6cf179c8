/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attention bias that broadcasts over sequences or heads gets the sum of their gradients.  A
 * fold describes this sum: each unit is one matrix of the bias gradient, and its members are the
 * heads whose gradients are added to it.
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
    int64_t size[CKPT_MAX_DIMS]; /* sizes of these axes in q */
    int64_t kept[CKPT_MAX_DIMS]; /* sizes in the gradient: the same, or 1 where it is summed */
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
        int at = bias->ndim - q->ndim + i; /* the corresponding axis of the bias */
        f.size[i] = q->shape[i + 1 == f.n ? q->ndim - 2 : i];
        f.kept[i] = at >= 0 ? bias->shape[at] : 1;
        f.units *= f.kept[i];
        f.members *= f.kept[i] == 1 ? f.size[i] : 1;
    }
    return f;
}

/* The index of a head, counted over all sequences, from the index of its unit and its member. */
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

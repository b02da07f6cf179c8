/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extra outputs: what a kernel writes beside the results of its op's rule, because it has the
 * values at hand.  They are the last outputs of a call, which lists them with four bits each, the
 * first one lowest.  The row of a kernel says what it can write (kernels/kernel.h); a pass asks
 * for it, or adds an op that computes the same (passes/extra.c).
 */
#ifndef CKPT_OPS_EXTRA_H
#define CKPT_OPS_EXTRA_H

#include "ckpt_op.h"

enum extra {
    EXTRA_SUMS = 1,     /* fp32 column sums of result 0, or of what to_fp8 rounds */
    EXTRA_GELU,         /* GELU of the operand of its gradient, computed again */
    EXTRA_GELU_LARGEST, /* the largest magnitude of GELU of result 0 */
    EXTRA_LARGEST       /* that of result 0; EXTRA_LARGEST + k: of result k */
};

/* The number of extra outputs in a list, and the k-th of them. */
static inline int extra_count(uint32_t list)
{
    int n = 0;
    while (list >> 4 * n)
        n++;
    return n;
}

static inline int extra_at(uint32_t list, int k)
{
    return (int)(list >> 4 * k & 15);
}

/* The number of the output that is `what`, of a call with n outputs in all, or -1. */
static inline int extra_index(uint32_t list, int n, int what)
{
    const int count = extra_count(list);
    for (int k = 0; k < count; k++)
        if (extra_at(list, k) == what)
            return n - count + k;
    return -1;
}

static inline bool extra_has(uint32_t list, int what)
{
    return extra_index(list, extra_count(list), what) >= 0;
}

/* Where a kernel writes an extra output; NULL if it was not asked for. */
static inline void *extra_output(const struct ckpt_kernel_args *a, int what)
{
    const int k = extra_index(a->extra, a->n_out, what);
    return k < 0 ? NULL : a->out[k].data;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that all ranks run together, on flat tensors of one axis.  A kernel is given how to reach the
 * other ranks in args->device; all else about them is the executor's.
 */
#ifndef CKPT_OPS_COLLECTIVE_H
#define CKPT_OPS_COLLECTIVE_H

#include "core/base.h"

enum collective { COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_REDUCE };

/* Runs the collective of a kernel: in[0] to out[0].  Returns 0 or a code. */
struct ops_ranks {
    int (*run)(struct ops_ranks *r, enum collective kind, const struct ckpt_kernel_args *a);
    /* NULL, or host memory where a device writes which op it is in, plus 1, or 0, and how often it
     * has written that. */
    int32_t *noted;
};

struct collective_attr {
    int64_t ranks;
    bool drop_after_forward; /* of a gather: its result is dropped between forward and backward */
    int64_t replicas; /* of a sum of shares: so many groups of ranks have one each; 0 for one */
};

/* Is an op one of these? */
bool collective_is(const struct ckpt_op_def *def);

/* [n] of every rank to [ranks * n]; the second is never run again.  The third has [ranks * n] for
 * an operand, of which each rank has its [n], and fills in the others'. */
extern const struct ckpt_op_def op_all_gather, op_all_gather_once, op_all_gather_in_place;
/* Sums: [ranks * n] to the [n] of this rank, over the copies as well, and [n] to [n]. */
extern const struct ckpt_op_def op_reduce_scatter, op_all_reduce;

/* [CKPT_REQUESTS]: what this rank requests in this step (struct ckpt_run). */
extern const struct ckpt_op_def op_requests;

/* Tensors one behind the other, each at an offset of its own, as [numel]; zeros between. */
enum { FLATTEN_PARTS = 60 };
struct flatten_attr {
    enum ckpt_dtype dtype; /* of the result: fp32 or bf16 */
    int64_t numel;
    int64_t offset[FLATTEN_PARTS]; /* rising */
};
extern const struct ckpt_op_def op_flatten;

#endif

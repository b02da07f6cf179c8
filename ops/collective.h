/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that all ranks run together, on flat tensors of one axis.  A kernel gets the function that
 * reaches the other ranks in args->device; the executor knows everything else about them.
 */
#ifndef CKPT_OPS_COLLECTIVE_H
#define CKPT_OPS_COLLECTIVE_H

#include "core/base.h"

enum collective { COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_REDUCE };

/* The executor's side of a kernel: run does the collective from in[0] to out[0].  Returns 0 or a
 * code. */
struct ops_ranks {
    int (*run)(struct ops_ranks *r, enum collective kind, const struct ckpt_kernel_args *a);
    /* NULL, or two words of host memory to which the device writes the index of the op it is in,
     * plus 1, or 0; and how often it has written that. */
    int32_t *noted;
};

struct collective_attr {
    int64_t ranks;
    bool drop_after_forward; /* all_gather: its result is freed between forward and backward */
    int64_t replicas;        /* a sum over shard groups: the number of groups, 0 for one */
};

/* Whether an op is one of these. */
bool collective_is(const struct ckpt_op_def *def);

/* all_gather: [n] of every rank to [ranks * n]; `once` is never recomputed.  `in_place`: the
 * operand is [ranks * n], of which each rank has its own [n]; the others' are filled in. */
extern const struct ckpt_op_def op_all_gather, op_all_gather_once, op_all_gather_in_place;
/* Sums over ranks: reduce_scatter from [ranks * n] to the [n] of this rank, over the replicas as
 * well; all_reduce from [n] to [n]. */
extern const struct ckpt_op_def op_reduce_scatter, op_all_reduce;

/* [CKPT_REQUESTS]: the requests of this rank in this step (struct ckpt_run). */
extern const struct ckpt_op_def op_requests;

/* Copies tensors into one of [numel], each at its own offset; zeros between them. */
enum { FLATTEN_PARTS = 60 };
struct flatten_attr {
    enum ckpt_dtype dtype; /* of the result: fp32 or bf16 */
    int64_t numel;
    int64_t offset[FLATTEN_PARTS]; /* increasing */
};
extern const struct ckpt_op_def op_flatten;

#endif

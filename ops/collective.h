/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective ops, on 1-D tensors.  A kernel reaches the other ranks through args->device, a struct
 * ops_ranks that the executor provides.
 */
#ifndef CKPT_OPS_COLLECTIVE_H
#define CKPT_OPS_COLLECTIVE_H

#include "core/base.h"

enum collective {
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_TO_ALL,
    COLLECTIVE_SEND,
    COLLECTIVE_RECEIVE
};

enum { NOTED_OP, NOTED_COUNT, NOTED_LAST, NOTED_BYTES = 16 };

/* run: performs a collective from in[0] to out[0].  Returns 0 or an error code. */
struct ops_ranks {
    int (*run)(struct ops_ranks *r, enum collective kind, const struct ckpt_kernel_args *a);
    /* NULL, or host memory in which a device records the current op: noted[NOTED_OP] is its index
     * plus 1, or 0 between ops; NOTED_COUNT counts the writes; NOTED_LAST is the op before, plus 1.
     */
    int32_t *noted;
};

/* The ranks of a collective: by their number all, those of a replica, or of a sequence; those with
 * the other parts of split parameters; those with the same parts, or the same stage. */
enum collective_group { GROUP_BY_NUMBER, GROUP_TENSOR, GROUP_DATA };

struct collective_attr {
    int64_t ranks;
    bool drop_after_forward; /* all_gather: the result is freed between forward and backward */
    uint8_t group;           /* enum collective_group; in what was padding, which keys hash */
    int64_t replicas; /* reduce_scatter: groups of ranks with a copy of the shares each; 0: one */
};

/* The ranks that share a bucket; 1: this one has a part of split parameters for itself. */
struct collective_attr collective_of_bucket(const ckpt_tape *t, int32_t bucket);

/* Of send and receive. */
struct stage_attr {
    struct collective_attr all; /* ranks: the stages of the pipeline */
    int64_t back;               /* it is a gradient, which goes to the stage before */
    int64_t graded;             /* send: a gradient of what it sends comes back */
    struct ckpt_desc desc;      /* receive: the result */
};

/* Whether def is a collective op, and whether it gathers the shares of parameters as a model reads
 * them. */
bool collective_is(const struct ckpt_op_def *def);
bool collective_gathers(const struct ckpt_op_def *def);

/*
 * - all_gather: the [n] of every rank becomes [ranks * n].  all_gather_once is never recomputed.
 *   all_gather_in_place has the operand [ranks * n]; each rank provides its own [n] in it and
 *   receives the others.
 * - reduce_scatter sums [ranks * n] to the [n] of this rank, over replicas as well; all_reduce
 *   sums [n] to [n].
 * - tensor_sum: all_reduce over the ranks with other parts of split parameters, in the forward
 *   pass.  Each rank's result depends on all operands, and the loss on all results, so it is its
 *   own adjoint.
 * - all_to_all: part p of the [ranks * n] goes to rank p of the ranks that split a sequence, and
 *   the result has the parts that they sent, in order of ranks.  It is its own adjoint.
 * - send gives its operand, of any shape, to the next stage of a pipeline, or a gradient to the one
 *   before; its result, a token of one value, orders what must follow.  receive reads a token and
 *   has what the stage before, or the next one, sent.  Each is the adjoint of the other.
 * - requests: [CKPT_REQUESTS], those of this rank in this step (struct ckpt_run).
 */

/* flatten: copies tensors to given offsets of a 1-D tensor [numel], with zeros in the gaps. */
enum { FLATTEN_PARTS = 60 };
struct flatten_attr {
    enum ckpt_dtype dtype; /* dtype of the result: fp32 or bf16 */
    int64_t numel;
    int64_t offset[FLATTEN_PARTS]; /* in elements, ascending */
};

#endif

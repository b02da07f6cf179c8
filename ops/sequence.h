/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences that several ranks share (ckpt_sequence): which part of each tensor a rank has, and the
 * exchange of one split axis for another.
 */
#ifndef CKPT_OPS_SEQUENCE_H
#define CKPT_OPS_SEQUENCE_H

#include <math.h>
#include "tape/tape.h"

/* Sets what a rank has of the results of the op that was recorded last, from what it has of its
 * operands; fails the tape if the op would compute something else than with all tokens. */
void sequence_follow(ckpt_tape *t, int32_t op);

/* Fails the tape if the mean of this loss over the ranks is not the loss of all tokens, or if the
 * recorder called ckpt_sequence for nothing.  The tape is no longer followed. */
int sequence_check(ckpt_tape *t, ckpt_tensor loss);

/* Whether a rank has its tokens of x, along this axis. */
static inline bool sequence_is_split(ckpt_tape *t, ckpt_tensor x, int axis)
{
    const struct tensor *v = t->splits && x.id > 0 ? tape_tensor(t, x) : NULL;
    return v && v->part == PART_TOKENS && v->part_axis == axis;
}

/* What a rank has of a tensor. */
struct tokens {
    enum part part;
    int axis;
    int64_t first; /* how many tokens all ranks have, before those of this rank */
};

/* While it is hidden, x counts as what all ranks have: what is recorded of it is one op to those
 * who follow.  Returns what it was, which sequence_show sets for a tensor. */
struct tokens sequence_hide(ckpt_tape *t, ckpt_tensor x);
void sequence_show(ckpt_tape *t, ckpt_tensor x, struct tokens was);

/*
 * x, of which a rank has the elements of its place on axis `from`, as a tensor with all of `from`
 * and its part of axis `to`: one all_to_all, whose gradient is the reverse exchange.  What the rank
 * then has counts as everything: only ops that treat the elements of `to` alike may read it.  `to`
 * must divide among the ranks, and x have fewer than CKPT_MAX_DIMS axes.
 * sequence_return is the reverse, from part of `from` to its tokens on `to`, with the first ones of
 * all ranks.
 */
ckpt_tensor sequence_exchange(ckpt_tape *t, ckpt_tensor x, int from, int to);
ckpt_tensor sequence_return(ckpt_tape *t, ckpt_tensor x, int from, int to, int64_t first);

/* This rank's part of an axis of x, which it all has, after the first elements of all ranks. */
ckpt_tensor sequence_part(ckpt_tape *t, ckpt_tensor x, int axis, int64_t first);

/* x with each of its heads, along `axis`, as often as they must be there to divide among the ranks;
 * and the elements of x, which all ranks have, for the heads that an exchange gives this rank. */
ckpt_tensor sequence_repeat(ckpt_tape *t, ckpt_tensor x, int axis);
ckpt_tensor sequence_own(ckpt_tape *t, ckpt_tensor x, int axis);

/* What a sum over tokens is if `terms`, the number of its terms by its scale, is 1: a mean. */
static inline enum part sequence_part_of_sum(double terms)
{
    return fabs(terms - 1) < 1e-5 ? PART_MEAN : PART_SUM;
}

/* The same of x, a sum that was recorded in several ops. */
static inline void sequence_total(ckpt_tape *t, ckpt_tensor x, double terms)
{
    if (t->splits && x.id > 0 && t->tensors.data[x.id].part == PART_SUM)
        t->tensors.data[x.id].part = (uint8_t)sequence_part_of_sum(terms);
}

/* While it is set, axes of tokens may be joined with others and cut: for sums of functions of rows,
 * to which the order of rows and the rank of each do not matter.  Returns what was set before. */
static inline bool sequence_as_rows(ckpt_tape *t, bool rows)
{
    const bool was = t->as_rows;
    t->as_rows = rows;
    return was;
}

#endif

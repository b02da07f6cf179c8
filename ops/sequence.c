/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequence parallelism: the ranks of a group have the same samples and split their tokens.
 *
 * A model is recorded as for one rank.  ckpt_sequence gives a rank its tokens of an input, and from
 * then on each op is followed: what a rank has of the results is deduced from what it has of the
 * operands (enum part in tape.h).  Ops that treat tokens alike compute on the shorter axis what
 * they compute on all.  Attention exchanges tokens for heads, and back (Jacobs et al. 2023).  A sum
 * over tokens becomes the part of one; the loss must be a mean of such parts, since a step takes
 * the mean over all ranks.  Everything else is refused where it is recorded, so no result silently
 * depends on the split.
 *
 * Gradients need no rule: a step differentiates the mean over the ranks of what each computes, by
 * its own tokens, from its own copy of the parameters, and sums that over the ranks.  A tensor that
 * all ranks have and all read has a gradient that is a part, too, and so has each parameter.
 */
#include "call.h"
#include "ckpt_dist.h"
#include "collective.h"
#include "ops.h"
#include "recorders.h"
#include "sequence.h"

static void set_part(ckpt_tape *t, ckpt_tensor x, enum part part, int axis)
{
    if (x.id <= 0 || t->error.code)
        return;
    t->tensors.data[x.id].part = (uint8_t)part;
    t->tensors.data[x.id].part_axis = (int8_t)axis;
}

/* This rank's part of an axis of x, which it all has. */
static ckpt_tensor part_of(ckpt_tape *t, ckpt_tensor x, int axis)
{
    const struct sharing *s = &t->env.sharing;
    const int32_t number = tape_number(t);
    const int64_t part = ckpt_desc_of(t, x).shape[axis] / s->sequence;
    const int64_t begin = s->sequence_place * part;
    x = ckpt_slice(t, x, axis, begin, begin + part);
    tape_set_number(t, number);
    return x;
}

static bool may_split(ckpt_tape *t, ckpt_tensor x, int axis)
{
    const int64_t n = t->env.sharing.sequence;
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const struct tensor *v = tape_tensor(t, x);
    if (!v || axis < 0 || axis >= d.ndim) {
        ops_refuse(t, 1, &x, "there is no axis %d", axis);
        return false;
    }
    if (v->part > PART_COUNTS)
        ops_refuse(t, 1, &x, "its tokens are split already");
    else if (d.shape[axis] % n || d.shape[axis] / n < 2)
        ops_refuse(t, 1, &x,
                   "axis %d of %lld tokens does not divide into %lld equal parts of two or more "
                   "(--sequence)",
                   axis, (long long)d.shape[axis], (long long)n);
    return !t->error.code;
}

ckpt_tensor ckpt_sequence(ckpt_tape *t, ckpt_tensor x, int axis)
{
    if (!t || t->error.code)
        return CKPT_NONE;
    OPS_CALL(t);
    const struct sharing *s = &t->env.sharing;
    if (!x.id || s->sequence < 2 || !t->trains)
        return x;
    if (!may_split(t, x, axis))
        return CKPT_NONE;
    ckpt_tensor own = part_of(t, x, axis);
    t->splits = true;
    set_part(t, own, PART_TOKENS, axis);
    return own;
}

ckpt_tensor sequence_own(ckpt_tape *t, ckpt_tensor x, int axis)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const bool divides = d.ndim > axis && d.shape[axis] % t->env.sharing.sequence == 0;
    return x.id && divides ? part_of(t, x, axis) : x; /* the shape rule fails */
}

ckpt_tensor sequence_repeat(ckpt_tape *t, ckpt_tensor x, int axis)
{
    const int64_t n = t->env.sharing.sequence;
    struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t heads = d.ndim > axis && d.ndim < CKPT_MAX_DIMS ? d.shape[axis] : n;
    if (heads >= n || n % heads)
        return x;
    const int32_t number = tape_number(t);
    x = ckpt_unsqueeze(t, x, axis + 1);
    struct ckpt_desc wide = ckpt_desc_of(t, x);
    wide.shape[axis + 1] = n / heads;
    d.shape[axis] = n;
    x = ckpt_reshape(t, ckpt_expand(t, x, wide.ndim, wide.shape), d.ndim, d.shape);
    tape_set_number(t, number);
    return x;
}

/*
 * The parts of `to` become the first axis, which all_to_all exchanges: part p of rank r becomes
 * part r of rank p.  Then the first axis are the parts of `from`.
 */
static ckpt_tensor exchange(ckpt_tape *t, ckpt_tensor x, int from, int to)
{
    const struct collective_attr attr = {.ranks = t->env.sharing.sequence};
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int axes[CKPT_MAX_DIMS], back[CKPT_MAX_DIMS], n = 0;
    int64_t shape[CKPT_MAX_DIMS];
    for (int i = 0; i < d.ndim; i++) { /* to becomes [ranks, part] */
        if (i == to)
            shape[n++] = attr.ranks;
        shape[n++] = i == to ? d.shape[i] / attr.ranks : d.shape[i];
    }
    axes[0] = to;
    for (int i = 0, k = 1; i < n; i++)
        if (i != to)
            axes[k++] = i;
    x = ckpt_permute(t, ckpt_reshape(t, x, n, shape), axes);
    x = ckpt_reshape(t, x, 1, (int64_t[]){desc_numel(&d)});
    x = OPS_RECORD(t, &op_all_to_all, &attr, x);
    shape[0] = attr.ranks;
    for (int i = 0; i < d.ndim; i++)
        shape[i + 1] = d.shape[i] = i == to ? d.shape[i] / attr.ranks : d.shape[i];
    for (int i = 0; i < n; i++) /* the ranks before the axis that they had parts of */
        back[i] = i < from ? i + 1 : i == from ? 0 : i;
    d.shape[from] *= attr.ranks;
    x = ckpt_permute(t, ckpt_reshape(t, x, n, shape), back);
    return ckpt_reshape(t, x, n - 1, d.shape);
}

/* Records an exchange; the part of the result is `part` on axis `to`.  It does not change the
 * random numbers of later ops. */
static ckpt_tensor record_exchange(ckpt_tape *t, ckpt_tensor x, int from, int to, enum part part)
{
    const int64_t n = t->env.sharing.sequence;
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const int32_t number = tape_number(t);
    if (t->error.code)
        return CKPT_NONE;
    if (d.ndim >= CKPT_MAX_DIMS || d.shape[to] % n) {
        ops_refuse(t, 1, &x, "%lld heads do not divide into %lld equal parts (--sequence %lld)",
                   (long long)d.shape[to], (long long)n, (long long)n);
        return CKPT_NONE;
    }
    struct tensor *v = &t->tensors.data[tape_resolve(t, x).id];
    const uint8_t was = v->part;
    const int32_t id = (int32_t)(v - t->tensors.data);
    v->part = PART_ALL; /* what follows is one op to those who follow */
    x = exchange(t, x, from, to);
    t->tensors.data[id].part = was;
    tape_set_number(t, number);
    set_part(t, x, part, to);
    return x;
}

ckpt_tensor sequence_exchange(ckpt_tape *t, ckpt_tensor x, int from, int to)
{
    return record_exchange(t, x, from, to, PART_ALL);
}

ckpt_tensor sequence_return(ckpt_tape *t, ckpt_tensor x, int from, int to)
{
    return record_exchange(t, x, from, to, PART_TOKENS);
}

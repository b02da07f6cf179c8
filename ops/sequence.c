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
 * All ranks compute the first tokens where the others divide and these do not, and those that are
 * of no place in the sequence, such as a text beside a video: before the tokens of a rank there are
 * some that all have.  Only a sum over tokens could count them twice, and is refused.
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

static void set_tokens(ckpt_tape *t, ckpt_tensor x, int axis, int64_t first)
{
    if (x.id <= 0 || t->error.code)
        return;
    struct tensor *v = &t->tensors.data[x.id];
    v->part = PART_TOKENS;
    v->part_axis = (int8_t)axis;
    v->part_first = (int32_t)first;
}

/* x without the first elements of an axis. */
static ckpt_tensor after(ckpt_tape *t, ckpt_tensor x, int axis, int64_t first)
{
    return first ? ckpt_slice(t, x, axis, first, ckpt_desc_of(t, x).shape[axis]) : x;
}

static ckpt_tensor behind(ckpt_tape *t, ckpt_tensor first, ckpt_tensor rest, int axis)
{
    return ckpt_concat(t, axis, 2, (const ckpt_tensor[]){first, rest});
}

/* The part is cut from the rest, so that the gradients of both cuts join without gaps: the programs
 * of all ranks have the same ops. */
ckpt_tensor sequence_part(ckpt_tape *t, ckpt_tensor x, int axis, int64_t first)
{
    const struct sharing *s = &t->env.sharing;
    const int32_t number = tape_number(t);
    const int64_t part = (ckpt_desc_of(t, x).shape[axis] - first) / s->sequence;
    const int64_t begin = s->sequence_place * part;
    ckpt_tensor own = ckpt_slice(t, after(t, x, axis, first), axis, begin, begin + part);
    if (first)
        own = behind(t, ckpt_slice(t, x, axis, 0, first), own, axis);
    tape_set_number(t, number);
    return own;
}

static bool may_split(ckpt_tape *t, ckpt_tensor x, int axis, int64_t first)
{
    const int64_t n = t->env.sharing.sequence;
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const struct tensor *v = tape_tensor(t, x);
    if (!v || axis < 0 || axis >= d.ndim || first < 0 || first > d.shape[axis]) {
        ops_refuse(t, 1, &x, "there is no axis %d with %lld elements and more", axis,
                   (long long)first);
        return false;
    }
    if (v->part > PART_COUNTS)
        ops_refuse(t, 1, &x, "its tokens are split already");
    else if ((d.shape[axis] - first) / n < 2)
        ops_refuse(t, 1, &x,
                   "axis %d of %lld tokens does not divide into %lld equal parts of two or more "
                   "(--sequence)",
                   axis, (long long)(d.shape[axis] - first), (long long)n);
    return !t->error.code;
}

ckpt_tensor ckpt_sequence_after(ckpt_tape *t, ckpt_tensor x, int axis, int64_t first)
{
    if (!t || t->error.code)
        return CKPT_NONE;
    OPS_CALL(t);
    const struct sharing *s = &t->env.sharing;
    if (!x.id || s->sequence < 2 || !t->trains)
        return x;
    if (!may_split(t, x, axis, first))
        return CKPT_NONE;
    const int32_t feed = t->storages.data[tape_tensor(t, x)->storage].feed;
    if (feed >= 0) /* an op that has a number, as on one rank */
        tape_use_feed(t, feed);
    const int32_t number = tape_number(t);
    first += (ckpt_desc_of(t, x).shape[axis] - first) % s->sequence;
    ckpt_tensor own =
        ckpt_contiguous(t, sequence_part(t, x, axis, first)); /* else a reader copies it */
    tape_set_number(t, number);
    t->splits = true;
    set_tokens(t, own, axis, first);
    return own;
}

ckpt_tensor ckpt_sequence(ckpt_tape *t, ckpt_tensor x, int axis)
{
    if (!t || t->error.code)
        return CKPT_NONE;
    OPS_CALL(t);
    return ckpt_sequence_after(t, x, axis, 0);
}

ckpt_tensor sequence_own(ckpt_tape *t, ckpt_tensor x, int axis)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const bool divides = d.ndim > axis && d.shape[axis] % t->env.sharing.sequence == 0;
    return x.id && divides ? sequence_part(t, x, axis, 0) : x; /* the shape rule fails */
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

/* ---- exchanges ------------------------------------------------------------------------------- */

/* What the ranks have, [ranks, d], as one tensor: their parts are after each other along an axis.
 */
static ckpt_tensor unpack(ckpt_tape *t, ckpt_tensor x, const struct ckpt_desc *d, int axis)
{
    const int n = d->ndim + 1;
    int64_t shape[CKPT_MAX_DIMS], whole[CKPT_MAX_DIMS];
    int back[CKPT_MAX_DIMS];
    shape[0] = t->env.sharing.sequence;
    for (int i = 0; i < d->ndim; i++) {
        shape[i + 1] = d->shape[i];
        whole[i] = i == axis ? d->shape[i] * shape[0] : d->shape[i];
    }
    for (int i = 0; i < n; i++) /* the ranks before the axis that they had parts of */
        back[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    x = ckpt_permute(t, ckpt_reshape(t, x, n, shape), back);
    return ckpt_reshape(t, x, d->ndim, whole);
}

/* x with an axis as [ranks, part], where each part begins with the first elements. */
static ckpt_tensor cut(ckpt_tape *t, ckpt_tensor x, int axis, int64_t first)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t n = t->env.sharing.sequence, part = (d.shape[axis] - first) / n;
    ckpt_tensor rest = after(t, x, axis, first);
    for (int i = d.ndim++; i > axis; i--)
        d.shape[i] = d.shape[i - 1];
    d.shape[axis] = n;
    d.shape[axis + 1] = part;
    rest = ckpt_reshape(t, rest, d.ndim, d.shape);
    if (!first)
        return rest;
    d.shape[axis + 1] = first;
    ckpt_tensor all = ckpt_unsqueeze(t, ckpt_slice(t, x, axis, 0, first), axis);
    return behind(t, ckpt_expand(t, all, d.ndim, d.shape), rest, axis + 1);
}

/*
 * The parts of `to` become the first axis, which all_to_all exchanges: part p of rank r becomes
 * part r of rank p.  Then the first axis are the parts of `from`.  All ranks get the first elements
 * of `to`.
 */
static ckpt_tensor exchange(ckpt_tape *t, ckpt_tensor x, int from, int to, int64_t first)
{
    const struct collective_attr attr = {.ranks = t->env.sharing.sequence};
    int axes[CKPT_MAX_DIMS];
    x = cut(t, x, to, first);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    axes[0] = to;
    for (int i = 0, k = 1; i < d.ndim; i++)
        if (i != to)
            axes[k++] = i;
    x = ckpt_reshape(t, ckpt_permute(t, x, axes), 1, (int64_t[]){desc_numel(&d)});
    x = OPS_RECORD(t, &op_all_to_all, &attr, x);
    for (int i = to; i < d.ndim - 1; i++)
        d.shape[i] = d.shape[i + 1];
    d.ndim--;
    return unpack(t, x, &d, from);
}

/* The parts that ranks have of an axis, on each: every rank sends its own to all. */
static ckpt_tensor gather(ckpt_tape *t, ckpt_tensor x, int axis)
{
    const struct collective_attr attr = {.ranks = t->env.sharing.sequence};
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t n = desc_numel(&d), copies[] = {attr.ranks, n};
    x = ckpt_expand(t, ckpt_reshape(t, x, 2, (int64_t[]){1, n}), 2, copies);
    x = ckpt_reshape(t, x, 1, (int64_t[]){attr.ranks * n});
    return unpack(t, OPS_RECORD(t, &op_all_to_all, &attr, x), &d, axis);
}

struct tokens sequence_hide(ckpt_tape *t, ckpt_tensor x)
{
    if (!t->splits || x.id <= 0 || t->error.code)
        return (struct tokens){.part = PART_ALL};
    struct tensor *v = &t->tensors.data[tape_resolve(t, x).id];
    const struct tokens was = {(enum part)v->part, v->part_axis, v->part_first};
    v->part = PART_ALL;
    return was;
}

void sequence_show(ckpt_tape *t, ckpt_tensor x, struct tokens was)
{
    if (was.part == PART_ALL || x.id <= 0 || t->error.code)
        return;
    struct tensor *v = &t->tensors.data[tape_resolve(t, x).id];
    v->part = (uint8_t)was.part;
    v->part_axis = (int8_t)was.axis;
    v->part_first = (int32_t)was.first;
}

/* Exchanges a tensor that may have tokens. */
static ckpt_tensor exchange_hidden(ckpt_tape *t, ckpt_tensor x, int from, int to, int64_t first)
{
    const struct tokens was = sequence_hide(t, x);
    ckpt_tensor y = exchange(t, x, from, to, first);
    sequence_show(t, x, was);
    return y;
}

/* Exchanges do not change the random numbers of later ops. */
ckpt_tensor sequence_exchange(ckpt_tape *t, ckpt_tensor x, int from, int to)
{
    const int32_t number = tape_number(t);
    if (t->error.code)
        return CKPT_NONE;
    const int64_t first = tape_tensor(t, x)->part_first;
    ckpt_tensor y = exchange_hidden(t, after(t, x, from, first), from, to, 0);
    if (first)
        y = behind(t, sequence_part(t, ckpt_slice(t, x, from, 0, first), to, 0), y, from);
    tape_set_number(t, number);
    return y;
}

ckpt_tensor sequence_return(ckpt_tape *t, ckpt_tensor x, int from, int to, int64_t first)
{
    const int32_t number = tape_number(t);
    if (t->error.code)
        return CKPT_NONE;
    ckpt_tensor y = exchange_hidden(t, x, from, to, first);
    set_tokens(t, y, to, first);
    tape_set_number(t, number);
    return y;
}

/* x and what a rank has of it, if that are tokens; else NULL. */
static const struct tensor *tokens_of(ckpt_tape *t, ckpt_tensor x)
{
    const struct tensor *v =
        t && !t->error.code && t->splits && x.id > 0 ? tape_tensor(t, x) : NULL;
    return v && v->part == PART_TOKENS ? v : NULL;
}

/* How many of the first of n elements all ranks get so that the others divide, or -1: parts would
 * have one element alone, or all ranks together more than a tenth too many. */
static int64_t first_of(int64_t n, int64_t ranks)
{
    const int64_t first = n % ranks, part = n / ranks;
    return part < 2 || 10 * ranks * (first + part) > 11 * n ? -1 : first;
}

/* Tokens on `from` become tokens on `to`, of which all ranks get the first elements; a rank has all
 * of the first `own` tokens, and takes its part. */
static ckpt_tensor turn(ckpt_tape *t, ckpt_tensor x, int from, int to, int64_t own, int64_t first)
{
    ckpt_tensor y = exchange_hidden(t, after(t, x, from, own), from, to, first);
    set_tokens(t, y, to, first);
    if (own) {
        ckpt_tensor lead = sequence_part(t, ckpt_slice(t, x, from, 0, own), to, first);
        set_tokens(t, lead, to, first);
        y = behind(t, lead, y, from);
    }
    return y;
}

ckpt_tensor ckpt_sequence_along(ckpt_tape *t, ckpt_tensor x, int axis)
{
    const struct tensor *v = tokens_of(t, x);
    if (!v)
        return x;
    OPS_CALL(t);
    const int32_t number = tape_number(t);
    const int64_t n = t->env.sharing.sequence, own = v->part_first;
    const int from = v->part_axis;
    if (axis < 0 || axis >= v->desc.ndim) {
        ops_refuse(t, 1, &x, "there is no axis %d", axis);
        return CKPT_NONE;
    }
    const int64_t first = first_of(v->desc.shape[axis], n);
    const int64_t was = first_of(n * (v->desc.shape[from] - own) + own, n);
    if (axis != from && v->desc.ndim < CKPT_MAX_DIMS && first >= 0 && was == own)
        x = turn(t, x, from, axis, own, first);
    tape_set_number(t, number);
    return x;
}

ckpt_tensor ckpt_sequence_all(ckpt_tape *t, ckpt_tensor x)
{
    const struct tensor *v = tokens_of(t, x);
    if (!v)
        return x;
    OPS_CALL(t);
    const int32_t number = tape_number(t);
    const int axis = v->part_axis;
    const int64_t first = v->part_first;
    if (v->desc.ndim >= CKPT_MAX_DIMS) {
        ops_refuse(t, 1, &x, "%d axes leave no room for that of the ranks", v->desc.ndim);
        return CKPT_NONE;
    }
    ckpt_tensor rest = after(t, x, axis, first);
    const struct tokens was = sequence_hide(t, rest);
    ckpt_tensor y = gather(t, rest, axis);
    sequence_show(t, rest, was);
    if (first)
        y = behind(t, ckpt_slice(t, x, axis, 0, first), y, axis);
    tape_set_number(t, number);
    return y;
}

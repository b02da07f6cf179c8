/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of tokens that ranks split.  Where the heads divide among the ranks, tokens are
 * exchanged for heads: each rank attends from all tokens to all, for its part of the heads.  Where
 * they do not, each rank gathers the keys and values of all and attends from its own tokens, with
 * all heads.  The gradient of a gathered key is the sum of those that the ranks have of it, in
 * order of ranks.  A query has the bits of one rank in the first, and products of fewer rows in the
 * second.
 */
#include "attention_sequence.h"
#include "ckpt_dist.h"
#include "sequence.h"

/* A call that the ranks split. */
struct call {
    ckpt_tensor q, k, v, bias;
    struct ckpt_attention_spec spec;
    int axis; /* of the tokens */
    attention_recorder *attend;
};

/* ---- heads ----------------------------------------------------------------------------------- */

/* Heads of k and v that are fewer than the ranks are there for each. */
static bool heads_divide(ckpt_tape *t, const struct call *c)
{
    const struct ckpt_desc q = ckpt_desc_of(t, c->q), k = ckpt_desc_of(t, c->k);
    const int64_t n = t->env.sharing.sequence, heads = q.shape[c->axis + 1],
                  groups = k.ndim == q.ndim ? k.shape[c->axis + 1] : 0;
    return q.ndim < CKPT_MAX_DIMS && heads % n == 0 && groups > 0 &&
           (groups % n == 0 || n % groups == 0);
}

static ckpt_tensor attend_exchanged(ckpt_tape *t, struct call c)
{
    const int axis = c.axis, of_bias = ckpt_desc_of(t, c.bias).ndim - 3;
    const int64_t first = tape_tensor(t, c.q)->part_first;
    const ckpt_tensor q = sequence_exchange(t, c.q, axis, axis + 1);
    const ckpt_tensor k = sequence_exchange(t, sequence_repeat(t, c.k, axis + 1), axis, axis + 1);
    const ckpt_tensor v = sequence_exchange(t, sequence_repeat(t, c.v, axis + 1), axis, axis + 1);
    c.spec.sink = sequence_own(t, c.spec.sink, 0);
    if (c.bias.id && of_bias >= 0 && ckpt_desc_of(t, c.bias).shape[of_bias] > 1)
        c.bias = sequence_own(t, c.bias, of_bias);
    return sequence_return(t, c.attend(t, q, k, v, c.bias, &c.spec), axis + 1, axis, first);
}

/* ---- keys and values of all ranks ------------------------------------------------------------ */

/* Of x, whose axis `from` from the end may have a row for each query: those of this rank. */
static ckpt_tensor own_rows(ckpt_tape *t, ckpt_tensor x, int from, int64_t first)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const int axis = d.ndim - from;
    return x.id && axis >= 0 && d.shape[axis] > 1 ? sequence_part(t, x, axis, first) : x;
}

/* The lengths of sequences without the last `after` keys.  The number is not an attribute of an
 * op, since the programs of all ranks have the same ops. */
static ckpt_tensor lengths_without(ckpt_tape *t, const struct call *c, int64_t after)
{
    const struct ckpt_desc d = ckpt_desc_of(t, c->q);
    const int64_t keys = ckpt_desc_of(t, c->k).shape[c->axis];
    const int32_t n = (int32_t)(c->spec.lengths.id ? -after : keys - after);
    const ckpt_tensor one = ckpt_constant(t, NULL, CKPT_I32, 0, NULL, &n);
    if (!c->spec.lengths.id)
        return ckpt_contiguous(t, ckpt_expand(t, one, c->axis, d.shape));
    return ckpt_add(t, ckpt_clamp(t, c->spec.lengths, 0, (float)keys), one);
}

/* Queries [begin, end) of those of this rank, after which all ranks together have `after` more.
 * The last query is at the last key, so each sequence is shortened by as many. */
static ckpt_tensor attend_causal(ckpt_tape *t, struct call c, int64_t begin, int64_t end,
                                 int64_t after)
{
    const int32_t number = tape_number(t);
    const int64_t n = ckpt_desc_of(t, c.q).shape[c.axis];
    if (end - begin < n) {
        c.q = ckpt_slice(t, c.q, c.axis, begin, end);
        if (c.spec.first.id)
            c.spec.first = ckpt_slice(t, c.spec.first, c.axis, begin, end);
        const struct ckpt_desc d = ckpt_desc_of(t, c.bias);
        if (c.bias.id && d.ndim > 1 && d.shape[d.ndim - 2] > 1)
            c.bias = ckpt_slice(t, c.bias, d.ndim - 2, begin, end);
    }
    c.spec.lengths = lengths_without(t, &c, after);
    tape_set_number(t, number);
    return c.attend(t, c.q, c.k, c.v, c.bias, &c.spec);
}

/* The first tokens, which all ranks have, are not beside those of this rank. */
static ckpt_tensor attend_parts(ckpt_tape *t, const struct call *c, int64_t first)
{
    const struct sharing *s = &t->env.sharing;
    const int64_t n = ckpt_desc_of(t, c->q).shape[c->axis];
    const int64_t after = (s->sequence - 1 - s->sequence_place) * (n - first);
    const int32_t number = tape_number(t);
    if (!first)
        return attend_causal(t, *c, 0, n, after);
    ckpt_tensor part[2] = {attend_causal(t, *c, 0, first, s->sequence * (n - first))};
    tape_set_number(t, number);
    part[1] = attend_causal(t, *c, first, n, after);
    const int32_t next = tape_number(t);
    ckpt_tensor y = ckpt_concat(t, c->axis, 2, part);
    tape_set_number(t, next);
    return y;
}

static ckpt_tensor attend_gathered(ckpt_tape *t, struct call c)
{
    const int32_t number = tape_number(t);
    const int64_t first = tape_tensor(t, c.q)->part_first;
    c.k = ckpt_sequence_all(t, c.k);
    c.v = ckpt_sequence_all(t, c.v);
    c.bias = own_rows(t, c.bias, 2, first);
    c.spec.first = own_rows(t, c.spec.first, 1, first);
    tape_set_number(t, number);
    const struct tokens was = sequence_hide(t, c.q);
    ckpt_tensor y =
        c.spec.causal ? attend_parts(t, &c, first) : c.attend(t, c.q, c.k, c.v, c.bias, &c.spec);
    sequence_show(t, c.q, was);
    sequence_show(t, y, was);
    return y;
}

ckpt_tensor attention_of_sequence(ckpt_tape *t, const ckpt_tensor qkv[3], ckpt_tensor bias,
                                  const struct ckpt_attention_spec *spec,
                                  attention_recorder *attend)
{
    const int axis = ckpt_desc_of(t, qkv[0]).ndim - 3;
    const struct call c = {qkv[0], qkv[1], qkv[2], bias, *spec, axis, attend};
    return heads_divide(t, &c) ? attend_exchanged(t, c) : attend_gathered(t, c);
}

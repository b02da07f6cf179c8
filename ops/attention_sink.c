/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with sinks: a logit per head that every query sees and that has no value.
 *
 * It is the score of one more key, the first, whose value is 0.  More columns of q and k make that
 * score: q has the sink of its head there, the first key 1 / scale, all other keys 0.  So the
 * kernels of ckpt_attention compute it on every device, with gradients, and no query sees fewer
 * than two keys, which is why the rule for single keys does not apply.  In bf16 the number 1 /
 * scale has two columns, its rounded value and the rest.  Columns are filled up to a multiple of 8.
 *
 * Only the end of a window hides the first key from a query, so windows become a bias.
 */
#include <math.h>
#include <string.h>
#include "attention.h"
#include "call.h"
#include "core/bf16.h"

enum { SINK_COLUMNS = 2, SINK_ALIGNED = 8 };

/* The axes of q [..., L, H, D], and what is put beside it. */
struct sinking {
    ckpt_tape *t;
    struct ckpt_desc q, k;
    int ndim;
    int64_t width, more; /* columns before, and the added ones */
    double scale;
};

static bool check_sink(const struct sinking *s, ckpt_tensor bias,
                       const struct ckpt_attention_spec *spec)
{
    const struct ckpt_desc d = ckpt_desc_of(s->t, spec->sink);

    if (s->ndim < 3 || s->k.ndim != s->ndim)
        ckpt_tape_fail(s->t, CKPT_ESHAPE, "attention: q must be [..., L, H, D], and so must k");
    else if (d.ndim != 1 || d.shape[0] != s->q.shape[s->ndim - 2] || d.dtype == CKPT_I32)
        ckpt_tape_fail(s->t, CKPT_ESHAPE, "attention: sink must be a float for each head, [%lld]",
                       (long long)s->q.shape[s->ndim - 2]);
    else if (bias.id || spec->first.id || spec->cap > 0)
        ckpt_tape_fail(s->t, CKPT_EINVAL, "attention: a sink with %s",
                       bias.id          ? "a bias"
                       : spec->first.id ? "first keys of documents"
                                        : "a cap of scores");
    else
        return true;
    return false;
}

/* x expanded to the shape of d with another size of the axis `axis` from the end. */
static ckpt_tensor expand_to(ckpt_tape *t, ckpt_tensor x, struct ckpt_desc d, int from_end,
                             int64_t size)
{
    d.shape[d.ndim - from_end] = size;
    return ckpt_expand(t, x, d.ndim, d.shape);
}

/* 1 in the two columns of the sink, else 0: [more]. */
static ckpt_tensor sink_columns(const struct sinking *s)
{
    ckpt_tape *t = s->t;
    ckpt_tensor column = ckpt_iota(t, CKPT_F32, 1, &s->more, 0);
    ckpt_tensor end = ckpt_full(t, SINK_COLUMNS, CKPT_F32, 0, NULL);

    return ckpt_cast(t, ckpt_lt(t, column, end), CKPT_F32);
}

static ckpt_tensor queries_with_sink(const struct sinking *s, ckpt_tensor q, ckpt_tensor sink)
{
    ckpt_tape *t = s->t;
    struct ckpt_desc d = s->q;
    ckpt_tensor rows = ckpt_unsqueeze(t, ckpt_cast(t, sink, CKPT_F32), 1); /* [H, 1] */

    rows = ckpt_cast(t, ckpt_mul(t, rows, sink_columns(s)), d.dtype);
    return ckpt_concat(t, d.ndim - 1, 2, (ckpt_tensor[]){q, expand_to(t, rows, d, 1, s->more)});
}

/* The first key: 1 / scale in two parts, behind `width` zeros. */
static ckpt_tensor sink_key(const struct sinking *s)
{
    ckpt_tape *t = s->t;
    const int64_t all = s->width + s->more;
    const float whole = (float)(1 / s->scale);
    const float high = s->q.dtype == CKPT_BF16 ? bf16_load(bf16_round(whole)) : whole;
    ckpt_tensor column = ckpt_iota(t, CKPT_F32, 1, &all, 0), x = ckpt_full(t, 0, CKPT_F32, 0, NULL);
    const float part[SINK_COLUMNS] = {high, (float)(1 / s->scale - (double)high)};

    for (int i = SINK_COLUMNS; i-- > 0;) {
        ckpt_tensor here = ckpt_full(t, (float)(s->width + i), CKPT_F32, 0, NULL);
        x = ckpt_where(t, ckpt_eq(t, column, here), ckpt_full(t, part[i], CKPT_F32, 0, NULL), x);
    }
    return ckpt_cast(t, x, s->q.dtype);
}

static ckpt_tensor keys_with_sink(const struct sinking *s, ckpt_tensor k)
{
    ckpt_tape *t = s->t;
    struct ckpt_desc d = s->k;

    k = ckpt_pad(t, k, d.ndim - 1, 0, s->more, CKPT_PAD_CONSTANT, 0);
    d.shape[d.ndim - 1] += s->more;
    ckpt_tensor first = expand_to(t, sink_key(s), d, 3, 1);
    return ckpt_concat(t, d.ndim - 3, 2, (ckpt_tensor[]){first, k});
}

static ckpt_tensor values_with_sink(const struct sinking *s, ckpt_tensor v)
{
    v = ckpt_pad(s->t, v, s->ndim - 1, 0, s->more, CKPT_PAD_CONSTANT, 0);
    return ckpt_pad(s->t, v, s->ndim - 3, 1, 0, CKPT_PAD_CONSTANT, 0);
}

/* The lengths as ckpt_attention clamps them, and the first key. */
static ckpt_tensor with_first_key(const struct sinking *s, ckpt_tensor lengths)
{
    lengths = ckpt_clamp(s->t, lengths, 0, (float)s->k.shape[s->ndim - 3]);
    return ckpt_affine(s->t, lengths, 1, 1);
}

/* -INFINITY for keys that the window hides, except the first: [..., 1, L, M + 1].  lengths counts
 * the first key, too. */
static ckpt_tensor window_bias(const struct sinking *s, int64_t window, ckpt_tensor lengths)
{
    ckpt_tape *t = s->t;
    const int64_t L = s->q.shape[s->ndim - 3], M = s->k.shape[s->ndim - 3] + 1;
    ckpt_tensor key = ckpt_iota(t, CKPT_F32, 2, (int64_t[]){1, M}, 1);
    ckpt_tensor query = ckpt_iota(t, CKPT_F32, 2, (int64_t[]){L, 1}, 0);
    ckpt_tensor place = ckpt_affine(t, query, 1, (float)(M - L)); /* of the query among the keys */
    ckpt_tensor zero = ckpt_full(t, 0, CKPT_F32, 0, NULL);

    if (lengths.id) {
        struct ckpt_desc d = ckpt_desc_of(t, lengths);
        for (int i = 0; i < 3; i++)
            d.shape[d.ndim + i] = 1;
        ckpt_tensor n = ckpt_cast(t, ckpt_reshape(t, lengths, d.ndim + 3, d.shape), CKPT_F32);
        place = ckpt_add(t, ckpt_affine(t, query, 1, -(float)L), n);
    }
    ckpt_tensor seen = ckpt_gt(t, key, ckpt_affine(t, place, 1, -(float)window));
    seen = ckpt_or(t, seen, ckpt_eq(t, key, zero));
    return ckpt_where(t, seen, zero, ckpt_full(t, -INFINITY, CKPT_F32, 0, NULL));
}

ckpt_tensor attention_with_sink(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                ckpt_tensor bias, const struct ckpt_attention_spec *spec,
                                attention_recorder *attend)
{
    struct sinking s = {.t = t, .q = ckpt_desc_of(t, q), .k = ckpt_desc_of(t, k)};
    struct ckpt_attention_spec inner = *spec;

    OPS_CALL(t);
    s.ndim = s.q.ndim;
    if (!check_sink(&s, bias, spec))
        return CKPT_NONE;
    s.width = s.q.shape[s.ndim - 1];
    s.more = round_up(s.width + SINK_COLUMNS, SINK_ALIGNED) - s.width;
    s.scale = spec->scale != 0.f ? (double)spec->scale : 1 / sqrt((double)s.width);
    inner.sink = inner.bias = CKPT_NONE;
    inner.scale = (float)s.scale;
    inner.window = 0;
    if (spec->lengths.id)
        inner.lengths = with_first_key(&s, spec->lengths);
    if (spec->window && spec->window < s.k.shape[s.ndim - 3])
        bias = window_bias(&s, spec->window, inner.lengths);
    ckpt_tensor y = attend(t, queries_with_sink(&s, q, spec->sink), keys_with_sink(&s, k),
                           values_with_sink(&s, v), bias, &inner);
    return ckpt_slice(t, y, s.ndim - 1, 0, s.width);
}

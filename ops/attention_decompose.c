/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention decomposed into matrix products, softmax and expressions, for second gradients
 * (decompose.h) and for capped scores, which have no kernel.  The scores of all sequences are
 * tensors: [..., H, L, M], or for packed text [B, H, L, R].
 */
#include "attention_decompose.h"
#include "decompose.h"
#include "ops.h"

/* The score of a hidden key.  Unlike with -INFINITY, a softmax of hidden keys only is finite. */
#define HIDDEN (-1e30f)

struct sizes {
    int64_t sequences, queries, keys, groups, shared, width; /* shared: heads of q per head of k */
};

static struct sizes sizes_of(const struct ckpt_desc *q, const struct ckpt_desc *k)
{
    struct sizes s = {.sequences = 1,
                      .queries = q->shape[q->ndim - 3],
                      .keys = k->shape[k->ndim - 3],
                      .groups = k->shape[k->ndim - 2],
                      .shared = q->shape[q->ndim - 2] / k->shape[k->ndim - 2],
                      .width = q->shape[q->ndim - 1]};
    for (int i = 0; i < q->ndim - 3; i++)
        s.sequences *= q->shape[i];
    return s;
}

/* Reshapes x [..., n, heads, D] to [sequences, groups, heads per group, n, D]. */
static ckpt_tensor heads_first(ckpt_tape *t, ckpt_tensor x, const struct sizes *s, int64_t n,
                               int64_t shared)
{
    const int64_t shape[] = {s->sequences, n, s->groups, shared, s->width};
    return ckpt_permute(t, ckpt_reshape(t, x, 5, shape), (int[]){0, 2, 3, 1, 4});
}

static ckpt_tensor both(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return a.id ? ckpt_and(t, a, b) : b;
}

/* Converts i32 values, one for each sequence or query, to fp32 that broadcasts to the scores. */
static ckpt_tensor as_places(ckpt_tape *t, ckpt_tensor x, int ndim)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    const bool of_queries = d.ndim == ndim - 2;
    int64_t shape[CKPT_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        shape[i] = i < ndim - 3 ? d.shape[i] : 1;
    if (of_queries)
        shape[ndim - 2] = d.shape[ndim - 3];
    return ckpt_cast(t, ckpt_reshape(t, x, ndim, shape), CKPT_F32);
}

/* The visibility mask: i32 that broadcasts to the scores, or CKPT_NONE where every key is visible.
 * See struct ckpt_attention_spec. */
static ckpt_tensor visible(ckpt_tape *t, const struct attention_attr *a, const struct sizes *s,
                           ckpt_tensor first, ckpt_tensor lengths, int ndim)
{
    ckpt_tensor key = ckpt_iota(t, CKPT_F32, 2, (int64_t[]){1, s->keys}, 1), seen = CKPT_NONE;
    ckpt_tensor n = ops_scalar(t, (float)s->keys);
    if (lengths.id) {
        n = ckpt_clamp(t, as_places(t, lengths, ndim), 0.f, (float)s->keys);
        seen = ckpt_lt(t, key, n);
    }
    if (a->causal) {
        ckpt_tensor place = ckpt_iota(t, CKPT_F32, 2, (int64_t[]){s->queries, 1}, 0);
        place = ckpt_add(t, place, ckpt_affine(t, n, 1.f, -(float)s->queries));
        seen = both(t, seen, ckpt_le(t, key, place));
        if (a->window)
            seen = both(t, seen, ckpt_gt(t, key, ckpt_affine(t, place, 1.f, -(float)a->window)));
    }
    return first.id ? both(t, seen, ckpt_ge(t, key, as_places(t, first, ndim))) : seen;
}

/* Softmax of the scores; all 0 for a query that sees no key. */
static ckpt_tensor probabilities(ckpt_tape *t, ckpt_tensor scores, ckpt_tensor seen)
{
    const int last = ckpt_desc_of(t, scores).ndim - 1;
    if (!seen.id)
        return ckpt_softmax(t, scores, last);
    scores = ckpt_where(t, seen, scores, ops_scalar(t, HIDDEN));
    return ckpt_where(t, seen, ckpt_softmax(t, scores, last), ops_scalar(t, 0.f));
}

ckpt_tensor attention_decomposed(ckpt_tape *t, const struct attention_attr *a, float cap,
                                 ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                 const ckpt_tensor *extra)
{
    const struct ckpt_desc of_q = ckpt_desc_of(t, q), of_k = ckpt_desc_of(t, k);
    const struct ckpt_desc of_v = ckpt_desc_of(t, v);
    if (of_q.ndim < 3 || of_k.ndim < 3)
        return CKPT_NONE;
    const struct sizes s = sizes_of(&of_q, &of_k);
    const int64_t parts[] = {s.sequences, s.groups, s.shared, s.queries, s.keys};
    struct ckpt_desc d = of_q; /* the shape of the scores */
    ckpt_tensor bias = extra ? extra[ATTENTION_BIAS] : CKPT_NONE;
    d.shape[d.ndim - 3] = of_q.shape[of_q.ndim - 2];
    d.shape[d.ndim - 2] = s.queries;
    d.shape[d.ndim - 1] = s.keys;
    ckpt_tensor scores = ckpt_matmul(t, heads_first(t, q, &s, s.queries, s.shared),
                                     heads_first(t, k, &s, s.keys, 1), false, true);
    scores = ckpt_affine(t, ckpt_cast(t, scores, CKPT_F32), a->scale, 0.f);
    scores = ckpt_reshape(t, ops_soft_cap(t, scores, cap), d.ndim, d.shape);
    ckpt_tensor seen = visible(t, a, &s, extra ? extra[ATTENTION_FIRST] : CKPT_NONE,
                               extra ? extra[ATTENTION_LENGTHS] : CKPT_NONE, d.ndim);
    if (bias.id) {
        scores = ckpt_add(t, scores, bias);
        seen = both(t, seen, ckpt_gt(t, scores, ops_scalar(t, HIDDEN)));
    }
    ckpt_tensor p = ckpt_cast(t, probabilities(t, scores, seen), of_v.dtype);
    p = ckpt_reshape(t, p, 5, parts);
    ckpt_tensor y = ckpt_matmul(t, p, heads_first(t, v, &s, s.keys, 1), false, false);
    y = ckpt_permute(t, y, (int[]){0, 3, 1, 2, 4});
    return ckpt_reshape(t, y, of_q.ndim, of_q.shape);
}

/* The mask of packed rows: the rows of sample b start after the rows of all earlier samples. */
static ckpt_tensor packed_visible(ckpt_tape *t, ckpt_tensor lens, int64_t samples, int64_t rows)
{
    const int64_t shape[] = {samples, 1, 1, 1};
    ckpt_tensor row = ckpt_iota(t, CKPT_F32, 2, (int64_t[]){1, rows}, 1);
    ckpt_tensor n = ckpt_cast(t, lens, CKPT_F32);
    ckpt_tensor end = ckpt_reshape(t, ckpt_cumsum(t, n, 0), 4, shape);
    ckpt_tensor begin = ckpt_sub(t, end, ckpt_reshape(t, n, 4, shape));
    return ckpt_and(t, ckpt_ge(t, row, begin), ckpt_lt(t, row, end));
}

ckpt_tensor cross_attention_decomposed(ckpt_tape *t, float scale, ckpt_tensor q, ckpt_tensor k,
                                       ckpt_tensor v, ckpt_tensor lens)
{
    const struct ckpt_desc of_q = ckpt_desc_of(t, q), of_k = ckpt_desc_of(t, k);
    const int by_head[] = {0, 2, 1, 3}, packed[] = {1, 0, 2};
    if (of_q.ndim < 4 || of_k.ndim < 3)
        return CKPT_NONE;
    ckpt_tensor scores =
        ckpt_matmul(t, ckpt_permute(t, q, by_head), ckpt_permute(t, k, packed), false, true);
    ckpt_tensor p = probabilities(t, ckpt_affine(t, scores, scale, 0.f),
                                  packed_visible(t, lens, of_q.shape[0], of_k.shape[0]));
    return ckpt_permute(t, ckpt_matmul(t, p, ckpt_permute(t, v, packed), false, false), by_head);
}

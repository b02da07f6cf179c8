/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices, convolutions and attention in fp64. */
#include <math.h>
#include "reference.h"

static int32_t node_of(const struct context *x, int k, int64_t i)
{
    return has_operand(x, k) ? nodes(x, k)[i] : -1;
}

void linear(const struct context *x, int32_t *y, const struct value *v)
{
    const int64_t n = last_of(v), inner = operand(x, 1)->shape[1];
    for (int64_t i = 0; i < value_numel(v); i++) {
        y[i] = node_product(x->g, nodes(x, 0) + i / n * inner, 1, nodes(x, 1) + i % n * inner, 1,
                            inner, node_of(x, 2, i % n));
        if (has_operand(x, 3))
            y[i] =
                node_two(x->g, node_at(x->g, y[i]) + number(x, 3, i), y[i], 1, nodes(x, 3)[i], 1);
    }
}

void matmul(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *a = operand(x, 0), *b = operand(x, 1);
    const int64_t rows = v->shape[v->ndim - 2], cols = v->shape[v->ndim - 1];
    const int64_t inner = a->shape[a->ndim - (x->c->flag[0] ? 2 : 1)];
    int64_t index[MAX_RANK] = {0};
    for (int64_t i = 0; i < value_numel(v); i++) {
        struct value wide_a = *a, wide_b = *b;
        indices_of(v, i, index);
        const int64_t row = index[v->ndim - 2], col = index[v->ndim - 1];
        wide_a.ndim -= 2; /* the leading axes */
        wide_b.ndim -= 2;
        const int64_t of_a = element(&wide_a, v->ndim - 2, index) * rows * inner;
        const int64_t of_b = element(&wide_b, v->ndim - 2, index) * inner * cols;
        const bool ta = x->c->flag[0], tb = x->c->flag[1];
        y[i] =
            node_product(x->g, nodes(x, 0) + of_a + (ta ? row : row * inner), ta ? rows : 1,
                         nodes(x, 1) + of_b + (tb ? col * inner : col), tb ? 1 : cols, inner, -1);
    }
}

/* Each group of rows with a matrix of its own; rows behind the last group are 0. */
void grouped(const struct context *x, int32_t *y, const struct value *v)
{
    const int64_t n = v->shape[1], inner = operand(x, 0)->shape[1];
    const int64_t groups = operand(x, 1)->shape[0];
    const bool transposed = x->c->flag[0];
    struct value shape;
    int32_t end[MAX_NUMEL];
    recording_indices(x->r, x->c, 0, &shape, end);
    int64_t row = 0;
    for (int64_t k = 0; k < groups; k++)
        for (; row < end[k]; row++)
            for (int64_t i = 0; i < n; i++)
                y[row * n + i] =
                    node_product(x->g, nodes(x, 0) + row * inner, 1,
                                 nodes(x, 1) + k * n * inner + (transposed ? i * inner : i),
                                 transposed ? 1 : n, inner, -1);
    for (int64_t i = row * n; i < value_numel(v); i++)
        y[i] = node_new(x->g, 0);
}

/* ---- convolutions ----------------------------------------------------------------------------*/

/* The element of the operand that tap `t` of an element of the result reads, without channels; -1
 * where it lies outside. */
static int64_t place(const struct context *x, const struct value *v, const int64_t *index,
                     const int64_t *tap)
{
    const struct value *in = operand(x, 0);
    const int64_t stride = x->c->axes[0], dilation = x->c->axes[1], before = x->c->axes[3];
    int64_t at = index[0];
    for (int k = 1; k + 1 < v->ndim; k++) {
        int64_t i = x->c->kind == CALL_CONV ? index[k] * stride - before + tap[k] * dilation
                                            : index[k] + before - tap[k] * dilation;
        if (x->c->kind != CALL_CONV) {
            if (i < 0 || i % stride)
                return -1;
            i /= stride;
        }
        if (i < 0 || i >= in->shape[k])
            return -1;
        at = at * in->shape[k] + i;
    }
    return at;
}

/* Channels last; w [K, taps..., C / groups], or of CONV_TRANSPOSE [C, taps..., K / groups]. */
void conv(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *w = operand(x, 1);
    const bool forward = x->c->kind == CALL_CONV;
    const int64_t channels = last_of(operand(x, 0)), groups = x->c->axes[2];
    const int64_t each = channels / groups, thin = last_of(w), made = last_of(v) / groups;
    const int64_t taps = value_numel(w) / w->shape[0] / thin;
    struct value kernel = *w;
    kernel.shape[0] = kernel.shape[w->ndim - 1] = 1;
    int64_t index[MAX_RANK] = {0}, tap[MAX_RANK] = {0};
    int32_t a[MAX_NUMEL], b[MAX_NUMEL];
    for (int64_t i = 0; i < value_numel(v); i++) {
        indices_of(v, i, index);
        const int64_t k = index[v->ndim - 1], group = k / made;
        int64_t n = 0;
        for (int64_t t = 0; t < taps; t++) {
            indices_of(&kernel, t, tap);
            const int64_t at = place(x, v, index, tap);
            for (int64_t c = 0; c < each && at >= 0; c++, n++) {
                a[n] = nodes(x, 0)[at * channels + group * each + c];
                b[n] = nodes(x, 1)[forward ? (k * taps + t) * thin + c
                                           : ((group * each + c) * taps + t) * thin + k % made];
            }
        }
        y[i] = node_product(x->g, a, 1, b, 1, n, node_of(x, 2, k));
    }
}

/* ---- attention -------------------------------------------------------------------------------*/

/* What one query of one head sees: keys [first, end) of those that begin at row `key`. */
struct seen {
    int64_t query, key, head, of_keys; /* rows of heads; the head of the keys */
    int64_t i;                         /* the query in its sequence */
    int64_t first, end;
    int64_t bias[MAX_RANK]; /* indices, the last one of the key */
};

/* Row `query`, which begins at element `from`, and what it sees. */
static void attend(const struct context *x, int32_t *y, const struct value *v, struct seen *s)
{
    const int64_t size = last_of(v), heads = v->shape[v->ndim - 2];
    const int64_t shared = operand(x, 1)->shape[operand(x, 1)->ndim - 2];
    const double scale = x->c->a > 0 ? (double)x->c->a : 1 / sqrt((double)size);
    int32_t score[MAX_NUMEL];
    const int64_t row = (s->query * heads + s->head) * size, n = s->end - s->first;
    for (int64_t j = 0; j < n; j++) {
        const int64_t key = ((s->key + s->first + j) * shared + s->of_keys) * size;
        score[j] = node_product(x->g, nodes(x, 0) + row, 1, nodes(x, 1) + key, 1, size, -1);
        score[j] = node_scaled(x->g, score[j], scale);
        s->bias[v->ndim - 1] = s->first + j;
        if (has_operand(x, 3)) {
            const int32_t b = nodes(x, 3)[element(operand(x, 3), v->ndim, s->bias)];
            score[j] =
                node_two(x->g, node_at(x->g, score[j]) + node_at(x->g, b), score[j], 1, b, 1);
        }
    }
    const int32_t total = n > 0 ? node_log_sum(x->g, score, n, 1) : -1;
    for (int64_t j = 0; j < n; j++) {
        const double p = exp(node_at(x->g, score[j]) - node_at(x->g, total));
        score[j] = node_two(x->g, p, score[j], p, total, -p);
    }
    const int64_t value = ((s->key + s->first) * shared + s->of_keys) * size;
    for (int64_t d = 0; d < size; d++)
        y[row + d] =
            n > 0 ? node_product(x->g, score, 1, nodes(x, 2) + value + d, shared * size, n, -1)
                  : node_new(x->g, 0);
}

static int64_t largest_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The keys of query i of a sequence: ckpt_attention_spec. */
static void limit(const struct context *x, struct seen *s, int64_t queries, int64_t first)
{
    const int64_t at = s->end - queries + s->i;
    s->first = first;
    if (x->c->flag[0] && at + 1 < s->end)
        s->end = at + 1;
    if (x->c->flag[0] && x->c->begin > 0)
        s->first = largest_of(s->first, at - x->c->begin + 1);
    s->end = largest_of(s->end, s->first);
}

void attention(const struct context *x, int32_t *y, const struct value *v)
{
    const struct value *key = operand(x, 1);
    const int64_t queries = v->shape[v->ndim - 3], heads = v->shape[v->ndim - 2];
    const int64_t keys = key->shape[key->ndim - 3], shared = key->shape[key->ndim - 2];
    const int64_t sequences = value_numel(v) / last_of(v) / heads / queries;
    const bool crossed = x->c->kind == CALL_CROSS_ATTENTION;
    struct value shape;
    int32_t lengths[MAX_NUMEL], first[MAX_NUMEL];
    int64_t packed = 0; /* rows before this sequence */
    if (crossed || x->c->mask & 1)
        recording_indices(x->r, x->c, 0, &shape, lengths);
    if (x->c->mask & 2)
        recording_indices(x->r, x->c, 1, &shape, first);
    for (int64_t b = 0; b < sequences; b++) {
        const int64_t n = crossed || x->c->mask & 1 ? lengths[b] : keys;
        for (int64_t i = 0; i < queries * heads; i++) {
            const int64_t query = b * queries + i / heads, head = i % heads;
            struct seen s = {.query = query, .key = crossed ? packed : b * keys, .head = head};
            s.of_keys = head / (heads / shared);
            s.i = i / heads;
            s.end = n;
            if (!crossed)
                limit(x, &s, queries, x->c->mask & 2 ? first[query] : 0);
            if (v->ndim == 4)
                s.bias[0] = b;
            s.bias[v->ndim - 3] = head;
            s.bias[v->ndim - 2] = s.i;
            attend(x, y, v, &s);
        }
        packed += n;
    }
}

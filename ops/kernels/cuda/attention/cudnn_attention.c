/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as cuDNN graphs. cuDNN recognises a fixed pattern of operations and runs a fused
 * kernel, so their order must not change; see the section on fused attention in NVIDIA's
 * documentation of the cuDNN graph API.  Right operands of products are described transposed, with
 * matching strides.
 */
#include "kernels/cuda/attention/cudnn_attention.h"

struct builder {
    struct cudnn_graph *g;
    const struct cudnn_attention_spec *s;
};

/* ---- tensors in memory --------------------------------------------------------------------- */

/* The rows of an operand; virtual if uid is 0. */
static cudnn_tensor make_rows(struct builder k, int64_t uid, int x, int64_t heads, int64_t n_rows)
{
    struct cudnn_tensor_spec t = {
        .uid = uid,
        .type = CUDNN_DATA_BFLOAT16,
        .ndim = 4,
        .shape = {k.s->batch, heads, n_rows, k.s->width},
        .stride = {k.s->stride[x].batch, k.s->stride[x].head, k.s->stride[x].row, 1}};
    return cudnn_graph_tensor(k.g, &t);
}

static cudnn_tensor query_rows(struct builder k, int x)
{
    return make_rows(k, x + 1, x, k.s->heads, k.s->queries);
}

static cudnn_tensor key_rows(struct builder k, int x)
{
    return make_rows(k, x + 1, x, k.s->shared, k.s->keys);
}

/* Keys or values as right operand of a product. */
static cudnn_tensor key_columns(struct builder k, int x)
{
    struct cudnn_tensor_spec t = {
        .uid = x + 1,
        .type = CUDNN_DATA_BFLOAT16,
        .ndim = 4,
        .shape = {k.s->batch, k.s->shared, k.s->width, k.s->keys},
        .stride = {k.s->stride[x].batch, k.s->stride[x].head, 1, k.s->stride[x].row}};
    return cudnn_graph_tensor(k.g, &t);
}

static cudnn_tensor lse_of(struct builder k)
{
    const int x = CUDNN_ATTENTION_LSE;
    struct cudnn_tensor_spec t = {.uid = x + 1,
                                  .type = CUDNN_DATA_FLOAT,
                                  .ndim = 4,
                                  .shape = {k.s->batch, k.s->heads, k.s->queries, 1},
                                  .stride = {k.s->stride[x].batch, k.s->stride[x].head, 1, 1}};
    return cudnn_graph_tensor(k.g, &t);
}

/* Dense fp32 scratch. */
static cudnn_tensor scratch(struct builder k, int x, int64_t n_columns)
{
    struct cudnn_tensor_spec t = {.uid = x + 1,
                                  .type = CUDNN_DATA_FLOAT,
                                  .ndim = 4,
                                  .shape = {k.s->batch, k.s->heads, k.s->queries, n_columns}};
    return cudnn_graph_tensor(k.g, &t);
}

static cudnn_tensor scalar(struct builder k, int x)
{
    return cudnn_graph_scalar(k.g, x + 1, CUDNN_DATA_FLOAT, 4);
}

/* ---- virtual tensors, and the operations that make them -------------------------------------- */

static cudnn_tensor inside(struct builder k, cudnnDataType_t type, int64_t m, int64_t n)
{
    struct cudnn_tensor_spec t = {.type = type, .ndim = 4, .shape = {k.s->batch, k.s->heads, m, n}};
    return cudnn_graph_tensor(k.g, &t);
}

/* fp32 [queries, keys] per head. */
static cudnn_tensor scores(struct builder k)
{
    return inside(k, CUDNN_DATA_FLOAT, k.s->queries, k.s->keys);
}

static cudnn_tensor score_product(struct builder k, cudnn_tensor a, cudnn_tensor b)
{
    cudnn_tensor c = scores(k);
    cudnn_graph_matmul(k.g, a, b, c);
    return c;
}

static cudnn_tensor score_map(struct builder k, cudnnPointwiseMode_t mode, cudnn_tensor x,
                              cudnn_tensor b)
{
    cudnn_tensor y = scores(k);
    cudnn_graph_pointwise(k.g, mode, x, b, y);
    return y;
}

/* One value per query. */
static cudnn_tensor query_reduction(struct builder k, cudnnReduceTensorOp_t op, cudnn_tensor x)
{
    cudnn_tensor y = inside(k, CUDNN_DATA_FLOAT, k.s->queries, 1);
    cudnn_graph_reduce(k.g, op, x, y);
    return y;
}

/* Scores transposed to keys x queries, as operand of a product. */
static cudnn_tensor transposed_scores(struct builder k, cudnn_tensor x)
{
    const int64_t n = k.s->queries * k.s->keys;
    struct cudnn_tensor_spec t = {.type = CUDNN_DATA_BFLOAT16,
                                  .ndim = 4,
                                  .shape = {k.s->batch, k.s->heads, k.s->keys, k.s->queries},
                                  .stride = {k.s->heads * n, n, 1, k.s->keys}};
    cudnn_tensor y = cudnn_graph_tensor(k.g, &t);
    cudnn_graph_reshape(k.g, x, y);
    return y;
}

/* scale q k^T */
static cudnn_tensor scaled_scores(struct builder k, cudnn_tensor q, cudnn_tensor k_columns,
                                  cudnn_tensor scale)
{
    return score_map(k, CUDNN_POINTWISE_MUL, score_product(k, q, k_columns), scale);
}

/* Keeps x where `mode` holds between a and b, the indices of the query and the key (or one of them
 * plus the window), else `hidden`. */
static cudnn_tensor hide(struct builder k, cudnn_tensor x, cudnnPointwiseMode_t mode,
                         cudnn_tensor a, cudnn_tensor b, cudnn_tensor hidden)
{
    cudnn_tensor keep = inside(k, CUDNN_DATA_BOOLEAN, k.s->queries, k.s->keys), y = scores(k);
    cudnn_graph_compare(k.g, mode, a, b, keep);
    cudnn_graph_select(k.g, keep, x, hidden, y);
    return y;
}

static cudnn_tensor index_along(struct builder k, cudnn_tensor x, int64_t axis)
{
    cudnn_tensor y = inside(k, CUDNN_DATA_INT32, k.s->queries, k.s->keys);
    cudnn_graph_index(k.g, x, axis, y);
    return y;
}

/* Sets scores of keys that a query does not see to -infinity. */
static cudnn_tensor masked(struct builder k, cudnn_tensor x)
{
    if (!k.s->causal)
        return x;
    cudnn_tensor hidden = scalar(k, CUDNN_ATTENTION_HIDDEN);
    cudnn_tensor query = index_along(k, x, 2), key = index_along(k, x, 3);
    x = hide(k, x, CUDNN_POINTWISE_CMP_GE, query, key, hidden);
    if (!k.s->window)
        return x;
    cudnn_tensor window = cudnn_graph_scalar(k.g, CUDNN_ATTENTION_WINDOW + 1, CUDNN_DATA_INT32, 4);
    query = index_along(k, x, 2);
    key = index_along(k, x, 3);
    cudnn_tensor last = inside(k, CUDNN_DATA_INT32, k.s->queries, k.s->keys);
    cudnn_graph_add_index(k.g, key, window, last);
    return hide(k, x, CUDNN_POINTWISE_CMP_GT, last, query, hidden);
}

/* dk or dv of a head of keys: the sum over its query heads. */
static void shared_product(struct builder k, cudnn_tensor a, cudnn_tensor b, cudnn_tensor y)
{
    if (k.s->shared == k.s->heads) {
        cudnn_graph_matmul(k.g, a, b, y);
        return;
    }
    cudnn_tensor each = inside(k, CUDNN_DATA_BFLOAT16, k.s->keys, k.s->width);
    cudnn_graph_matmul(k.g, a, b, each);
    cudnn_graph_reduce(k.g, CUDNN_REDUCE_TENSOR_ADD, each, y);
}

/* ---- the graphs ---------------------------------------------------------------------------- */

void cudnn_attention_forward(struct cudnn_graph *g, const void *spec)
{
    struct builder k = {g, spec};
    const struct cudnn_attention_spec *s = spec;
    cudnn_tensor q = query_rows(k, CUDNN_ATTENTION_Q);
    cudnn_tensor keys = key_columns(k, CUDNN_ATTENTION_K);
    cudnn_tensor v = key_rows(k, CUDNN_ATTENTION_V);
    cudnn_tensor o = query_rows(k, CUDNN_ATTENTION_O);
    cudnn_tensor lse = lse_of(k), scale = scalar(k, CUDNN_ATTENTION_SCALE);
    cudnn_tensor x = masked(k, scaled_scores(k, q, keys, scale));
    cudnn_tensor top = query_reduction(k, CUDNN_REDUCE_TENSOR_MAX, x);
    x = score_map(k, CUDNN_POINTWISE_SUB, x, top);
    x = score_map(k, CUDNN_POINTWISE_EXP, x, CUDNN_NO_TENSOR);
    cudnn_tensor sum = query_reduction(k, CUDNN_REDUCE_TENSOR_ADD, x);
    cudnn_tensor log = inside(k, CUDNN_DATA_FLOAT, s->queries, 1);
    cudnn_graph_pointwise(g, CUDNN_POINTWISE_LOG, sum, CUDNN_NO_TENSOR, log);
    cudnn_graph_pointwise(g, CUDNN_POINTWISE_ADD, top, log, lse);
    cudnn_tensor p = inside(k, CUDNN_DATA_BFLOAT16, s->queries, s->keys);
    cudnn_graph_pointwise(g, CUDNN_POINTWISE_DIV, x, sum, p);
    cudnn_graph_matmul(g, p, v, o);
}

/* delta = rowsum(d_o o), which is also the sum of probability times its gradient. */
static cudnn_tensor delta_of(struct builder k, cudnn_tensor d_o, cudnn_tensor o)
{
    cudnn_tensor product = inside(k, CUDNN_DATA_FLOAT, k.s->queries, k.s->width);
    cudnn_graph_pointwise(k.g, CUDNN_POINTWISE_MUL, d_o, o, product);
    cudnn_tensor sum = query_reduction(k, CUDNN_REDUCE_TENSOR_ADD, product);
    cudnn_tensor delta = scratch(k, CUDNN_ATTENTION_DELTA, 1);
    cudnn_graph_pointwise(k.g, CUDNN_POINTWISE_MUL, sum, scalar(k, CUDNN_ATTENTION_ONE), delta);
    return delta;
}

/* dq, summed over the keys in fp32; ordered: by a product of ds in memory. */
static void dq_of(struct builder k, cudnn_tensor ds, cudnn_tensor k_columns, bool ordered)
{
    cudnn_tensor dq = query_rows(k, CUDNN_ATTENTION_DQ);
    cudnn_tensor k_rows = make_rows(k, 0, CUDNN_ATTENTION_K, k.s->shared, k.s->keys);
    cudnn_graph_reshape(k.g, k_columns, k_rows);
    if (ordered) {
        cudnn_graph_matmul(k.g, ds, k_rows, dq);
        return;
    }
    cudnn_tensor sum = scratch(k, CUDNN_ATTENTION_DQ_SUM, k.s->width);
    cudnn_graph_matmul(k.g, ds, k_rows, sum);
    cudnn_graph_pointwise(k.g, CUDNN_POINTWISE_IDENTITY, sum, CUDNN_NO_TENSOR, dq);
}

static void describe_backward(struct cudnn_graph *g, const void *spec, bool ordered)
{
    struct builder k = {g, spec};
    cudnn_tensor q = query_rows(k, CUDNN_ATTENTION_Q);
    cudnn_tensor keys = key_columns(k, CUDNN_ATTENTION_K);
    cudnn_tensor v = key_columns(k, CUDNN_ATTENTION_V);
    cudnn_tensor o = query_rows(k, CUDNN_ATTENTION_O);
    cudnn_tensor d_o = query_rows(k, CUDNN_ATTENTION_D_O);
    cudnn_tensor dk = key_rows(k, CUDNN_ATTENTION_DK);
    cudnn_tensor dv = key_rows(k, CUDNN_ATTENTION_DV);
    cudnn_tensor scale = scalar(k, CUDNN_ATTENTION_SCALE);
    cudnn_tensor delta = delta_of(k, d_o, o);
    cudnn_tensor x = scaled_scores(k, q, keys, scale);
    x = masked(k, score_map(k, CUDNN_POINTWISE_SUB, x, lse_of(k)));
    cudnn_tensor p = score_map(k, CUDNN_POINTWISE_EXP, x, CUDNN_NO_TENSOR);
    shared_product(k, transposed_scores(k, p), d_o, dv);
    x = score_product(k, d_o, v);
    x = score_map(k, CUDNN_POINTWISE_SUB, x, delta);
    x = score_map(k, CUDNN_POINTWISE_MUL, x, p);
    cudnn_tensor ds =
        inside(k, ordered ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT, k.s->queries, k.s->keys);
    cudnn_graph_pointwise(g, CUDNN_POINTWISE_MUL, x, scale, ds);
    shared_product(k, transposed_scores(k, ds), q, dk);
    dq_of(k, ds, keys, ordered);
}

void cudnn_attention_backward(struct cudnn_graph *g, const void *spec)
{
    describe_backward(g, spec, false);
}

void cudnn_attention_ordered(struct cudnn_graph *g, const void *spec)
{
    describe_backward(g, spec, true);
}

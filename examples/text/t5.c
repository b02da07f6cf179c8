/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder of T5 v1.1: see t5.h.  Its layers have RMS norms, no bias and no scale of the scores.
 * Positions enter as a learned bias of the scores for each bucket of distances.  In T5 layer 0 has
 * the table, and all layers read it; in UMT5 each layer has its own.
 */
#include <math.h>
#include <stdlib.h>
#include "../common/memory.h"
#include "t5.h"

/* ---- parameters ---------------------------------------------------------------------------- */

static void create_layer(struct t5 *m, const struct ckpt_nn *nn, int i)
{
    const struct t5_config *g = &m->config;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_transformer_layer_spec layer = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;

    attention.width = mlp.width = g->width;
    attention.heads = g->heads;
    attention.head = g->head;
    attention.qkv_bias = attention.out_bias = mlp.bias = false;
    attention.q_name = "q";
    attention.k_name = "k";
    attention.v_name = "v";
    attention.out_name = "o";
    mlp.inner = g->mlp;
    mlp.gated = true;
    mlp.gate_name = "wi_0";
    mlp.up_name = "wi_1";
    mlp.down_name = "wo";
    layer.attention = &attention;
    layer.mlp = &mlp;
    layer.eps = (float)g->eps;
    layer.rms = true;
    layer.norm1_name = "layer.0.layer_norm";
    layer.attention_name = "layer.0.SelfAttention";
    layer.norm2_name = "layer.1.layer_norm";
    layer.mlp_name = "layer.1.DenseReluDense";
    m->layer[i] = ckpt_nn_transformer_layer(nn, &layer, "encoder.block.%d", i);
    if (!i || g->own_tables)
        m->relative[i] =
            ckpt_nn_embedding(nn, g->buckets, g->heads,
                              "encoder.block.%d.layer.0.SelfAttention.relative_attention_bias", i);
}

int t5_create(struct t5 *m, ckpt *c, const struct t5_config *config, enum ckpt_dtype dtype)
{
    const struct ckpt_init zeros = CKPT_ZEROS; /* values are loaded from files */
    struct ckpt_nn nn = CKPT_NN_INIT;

    *m = (struct t5){.config = *config, .dtype = dtype};
    m->layer = calloc((size_t)config->layers, sizeof *m->layer);
    m->relative = calloc((size_t)config->layers, sizeof *m->relative);
    if (!m->layer || !m->relative)
        return CKPT_ENOMEM;
    nn.context = c;
    nn.dtype = dtype;
    nn.frozen = true;
    nn.weight = nn.bias = &zeros;
    m->tokens = ckpt_nn_embedding(&nn, config->vocabulary, config->width, "shared");
    for (int i = 0; i < config->layers; i++)
        create_layer(m, &nn, i);
    m->norm = ckpt_nn_rms_norm(&nn, config->width, (float)config->eps, "encoder.final_layer_norm");
    return 0;
}

void t5_free(struct t5 *m)
{
    free(m->layer);
    free(m->relative);
    *m = (struct t5){.layer = NULL};
}

/* ---- distances ----------------------------------------------------------------------------- */

/* Each side has half of the buckets.  The first half of these have one distance each; the others
 * grow by a constant factor up to `farthest`.  Their bounds are rounded up to whole distances,
 * because in float log(16 / 8) may be slightly less than a third of log(128 / 8). */
int32_t t5_bucket(const struct t5_config *c, int64_t distance)
{
    int64_t side = c->buckets / 2, near = side / 2, n = distance < 0 ? -distance : distance;
    int64_t first = distance > 0 ? side : 0, bucket = near;

    if (n < near)
        return (int32_t)(first + n);
    while (bucket + 1 < side) {
        double part = (double)(bucket + 1 - near) / (double)(side - near);
        double bound = (double)near * pow((double)c->farthest / (double)near, part);
        if ((double)n < ceil(bound - 1e-6))
            break;
        bucket++;
    }
    return (int32_t)(first + bucket);
}

/* The buckets of query i and key j, [L, L]: by j - i. */
static ckpt_tensor distances(const struct t5 *m, ckpt_tape *t, int64_t length)
{
    int32_t *bucket = MEMORY_FOR(sizeof *bucket, length, length);

    if (!bucket) {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the distances of %lld tokens",
                       (long long)length);
        return CKPT_NONE;
    }
    for (int64_t j = 0; j < length; j++) { /* row 0 and column 0 determine the rest */
        bucket[j] = t5_bucket(&m->config, j);
        bucket[j * length] = t5_bucket(&m->config, -j);
    }
    for (int64_t i = 1; i < length; i++)
        for (int64_t j = 1; j < length; j++)
            bucket[i * length + j] = bucket[(i - 1) * length + j - 1];
    ckpt_tensor index =
        ckpt_constant(t, "distances", CKPT_I32, 2, (int64_t[]){length, length}, bucket);
    free(bucket);
    return index;
}

/* The bias of the scores in a layer, [heads, L, L]. */
static ckpt_tensor relative_bias(const struct t5 *m, ckpt_tape *t, int layer, ckpt_tensor index)
{
    ckpt_tensor bias = ckpt_nn_apply_embedding(t, &m->relative[layer], index);

    return ckpt_contiguous(t, ckpt_permute(t, bias, (int[]){2, 0, 1}));
}

/* ---- forward pass -------------------------------------------------------------------------- */

ckpt_tensor t5_encode(const struct t5 *m, ckpt_tape *t, ckpt_tensor tokens, ckpt_tensor lengths)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;

    ckpt_label(t, "embedding");
    ckpt_tensor x = ckpt_nn_apply_embedding(t, &m->tokens, tokens);
    spec.scale = 1;
    spec.lengths = lengths;
    ckpt_tensor index = distances(m, t, ckpt_desc_of(t, tokens).shape[1]);
    if (!m->config.own_tables)
        spec.bias = relative_bias(m, t, 0, index);
    for (int i = 0; i < m->config.layers; i++) {
        ckpt_label(t, "layers.%d", i);
        if (m->config.own_tables)
            spec.bias = relative_bias(m, t, i, index);
        x = ckpt_nn_apply_transformer_layer(t, &m->layer[i], x, CKPT_NONE, CKPT_NONE, &spec);
    }
    ckpt_label(t, "norm");
    return ckpt_nn_apply_norm(t, &m->norm, x);
}

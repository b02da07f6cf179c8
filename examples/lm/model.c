/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families: see model.h.
 *
 *     GPT-2      layer norms, learned positions, biases everywhere, GELU, head tied to embedding
 *     Llama 3    RMS norms, rotary positions, grouped-query heads, no biases, SiLU-gated MLP
 *     Qwen 2.5   as Llama, with biases of q, k and v
 *     BERT       as GPT-2, but each token reads all, the norms are behind the parts of a layer, the
 *                embeddings have a norm, and the head has a layer of its own
 */
#include <math.h>
#include <stdlib.h>
#include "ckpt_files.h"
#include "model.h"

/* ---- parameters ---------------------------------------------------------------------------- */

/* Initial values: projections that add to the residual stream use their own spread. */
struct first_values {
    struct ckpt_init weight, residual, zeros;
};

/* Files store GPT-2's linear weights as [in, out]. */
static void turn_in_files(ckpt *c, ckpt_tensor weight)
{
    if (weight.id)
        ckpt_param_file_axes(c, weight, 2, NULL, (int[]){1, 0});
}

static void create_gpt2_block(struct lm *m, const struct ckpt_nn *nn,
                              const struct first_values *first, int i)
{
    const struct lm_config *g = &m->config;
    struct ckpt_nn_transformer_layer_spec layer = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct ckpt_nn_transformer_layer *b = &m->block[i];

    attention.width = g->width;
    attention.heads = g->heads;
    attention.qkv_name = "c_attn";
    attention.out_name = mlp.down_name = "c_proj";
    attention.out_weight = mlp.down_weight = &first->residual;
    mlp.width = g->width;
    mlp.inner = g->mlp;
    mlp.up_name = "c_fc";
    layer.attention = &attention;
    layer.mlp = &mlp;
    layer.eps = (float)g->eps;
    layer.norm1_name = "ln_1";
    layer.attention_name = "attn";
    layer.norm2_name = "ln_2";
    *b = ckpt_nn_transformer_layer(nn, &layer, "h.%d", i);
    turn_in_files(nn->context, b->attention.qkv.weight);
    turn_in_files(nn->context, b->attention.out.weight);
    turn_in_files(nn->context, b->mlp.up.weight);
    turn_in_files(nn->context, b->mlp.down.weight);
}

static void create_llama_block(struct lm *m, const struct ckpt_nn *nn, int i)
{
    const struct lm_config *g = &m->config;
    struct ckpt_nn_transformer_layer_spec layer = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;

    attention.width = g->width;
    attention.heads = g->heads;
    attention.kv_heads = g->kv_heads;
    attention.head = g->head;
    attention.qkv_bias = g->family == LM_QWEN2;
    attention.out_bias = false;
    attention.out_name = "o_proj";
    attention.halves = true;
    mlp.width = g->width;
    mlp.inner = g->mlp;
    mlp.gated = true;
    mlp.bias = false;
    mlp.activation = CKPT_NN_SILU;
    layer.attention = &attention;
    layer.mlp = &mlp;
    layer.eps = (float)g->eps;
    layer.rms = true;
    layer.norm1_name = "input_layernorm";
    layer.attention_name = "self_attn";
    layer.norm2_name = "post_attention_layernorm";
    m->block[i] = ckpt_nn_transformer_layer(nn, &layer, "model.layers.%d", i);
}

static void create_gpt2(struct lm *m, const struct ckpt_nn *nn, const struct first_values *first)
{
    const struct lm_config *g = &m->config;

    m->tokens = ckpt_nn_embedding(nn, g->vocabulary, g->width, "wte");
    m->places = ckpt_nn_embedding(nn, g->positions, g->width, "wpe");
    for (int i = 0; i < g->layers; i++)
        create_gpt2_block(m, nn, first, i);
    m->norm = ckpt_nn_layer_norm(nn, g->width, (float)g->eps, "ln_f");
}

static void create_llama(struct lm *m, const struct ckpt_nn *nn)
{
    const struct lm_config *g = &m->config;

    m->tokens = ckpt_nn_embedding(nn, g->vocabulary, g->width, "model.embed_tokens");
    for (int i = 0; i < g->layers; i++)
        create_llama_block(m, nn, i);
    m->norm = ckpt_nn_rms_norm(nn, g->width, (float)g->eps, "model.norm");
}

#define BERT_LAYER "bert.encoder.layer.%d."

/* The parts of a layer lie in no common part of their names, so each is made by itself. */
static void create_bert_block(struct lm *m, const struct ckpt_nn *nn, int i)
{
    const struct lm_config *g = &m->config;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct ckpt_nn_transformer_layer *b = &m->block[i];

    attention.width = mlp.width = g->width;
    attention.heads = g->heads;
    attention.q_name = "self.query";
    attention.k_name = "self.key";
    attention.v_name = "self.value";
    attention.out_name = "output.dense";
    mlp.inner = g->mlp;
    mlp.activation = CKPT_NN_GELU_ERF;
    mlp.up_name = "intermediate.dense";
    mlp.down_name = "output.dense";
    b->attention = ckpt_nn_attention(nn, &attention, BERT_LAYER "attention", i);
    b->norm1 =
        ckpt_nn_layer_norm(nn, g->width, (float)g->eps, BERT_LAYER "attention.output.LayerNorm", i);
    b->mlp = ckpt_nn_mlp(nn, &mlp, "bert.encoder.layer.%d", i);
    b->norm2 = ckpt_nn_layer_norm(nn, g->width, (float)g->eps, BERT_LAYER "output.LayerNorm", i);
}

static void create_bert(struct lm *m, const struct ckpt_nn *nn, bool trains_pairs)
{
    const struct lm_config *g = &m->config;
    struct ckpt_nn kept = *nn;

    m->tokens = ckpt_nn_embedding(nn, g->vocabulary, g->width, "bert.embeddings.word_embeddings");
    m->places =
        ckpt_nn_embedding(nn, g->positions, g->width, "bert.embeddings.position_embeddings");
    m->segments =
        ckpt_nn_embedding(nn, 2, g->width, "bert.embeddings.token_type_embeddings").weight;
    m->first = ckpt_nn_layer_norm(nn, g->width, (float)g->eps, "bert.embeddings.LayerNorm");
    for (int i = 0; i < g->layers; i++)
        create_bert_block(m, nn, i);
    m->transform = ckpt_nn_linear(nn, g->width, g->width, true, "cls.predictions.transform.dense");
    m->norm =
        ckpt_nn_layer_norm(nn, g->width, (float)g->eps, "cls.predictions.transform.LayerNorm");
    m->head_bias = ckpt_param(nn->context, "cls.predictions.bias", nn->dtype, 1, &g->vocabulary,
                              CKPT_ZEROS, true);
    kept.frozen = !trains_pairs;
    if (!g->pairs)
        return;
    m->pooler = ckpt_nn_linear(&kept, g->width, g->width, true, "bert.pooler.dense");
    m->pairs = ckpt_nn_linear(&kept, g->width, 2, true, "cls.seq_relationship");
}

int lm_create(struct lm *m, ckpt *c, const struct lm_config *config, enum ckpt_dtype dtype,
              bool trains_pairs)
{
    float spread = (float)config->spread;
    struct first_values first = {
        CKPT_NORMAL(spread), CKPT_NORMAL(spread / sqrtf(2.f * (float)config->layers)), CKPT_ZEROS};
    struct ckpt_nn nn = CKPT_NN_INIT;

    *m = (struct lm){.config = *config, .dtype = dtype};
    m->block = calloc((size_t)config->layers, sizeof *m->block);
    if (!m->block)
        return CKPT_ENOMEM;
    nn.context = c;
    nn.dtype = dtype;
    nn.weight = &first.weight;
    nn.bias = &first.zeros;
    if (config->family == LM_GPT2)
        create_gpt2(m, &nn, &first);
    else if (config->family == LM_BERT)
        create_bert(m, &nn, trains_pairs);
    else
        create_llama(m, &nn);
    m->head = config->tied
                  ? m->tokens.weight
                  : ckpt_nn_linear(&nn, config->width, config->vocabulary, false, "lm_head").weight;
    return 0;
}

void lm_free(struct lm *m)
{
    free(m->block);
    *m = (struct lm){.block = NULL};
}

/* ---- forward pass -------------------------------------------------------------------------- */

ckpt_tensor lm_embed(const struct lm *m, ckpt_tape *t, ckpt_tensor tokens)
{
    int64_t length = ckpt_desc_of(t, tokens).shape[1];
    int64_t padding = lm_traits(&m->config)->masked ? m->config.pad : -1;
    ckpt_tensor x = ckpt_embedding(t, m->tokens.weight, tokens, padding);

    if (!m->places.weight.id)
        return x;
    ckpt_tensor places = ckpt_slice(t, m->places.weight, 0, 0, length);
    return ckpt_add(t, x, ckpt_reshape(t, places, 3, (int64_t[]){1, length, m->config.width}));
}

ckpt_tensor lm_embed_at(const struct lm *m, ckpt_tape *t, ckpt_tensor token, ckpt_tensor place)
{
    ckpt_tensor x = ckpt_nn_apply_embedding(t, &m->tokens, token);

    return m->places.weight.id ? ckpt_add(t, x, ckpt_nn_apply_embedding(t, &m->places, place)) : x;
}

ckpt_tensor lm_rope(const struct lm *m, ckpt_tape *t, int64_t length)
{
    int64_t half = m->config.head / 2;
    float *table;

    if (!lm_traits(&m->config)->rotary)
        return CKPT_NONE;
    table = malloc((size_t)(length * half * 2) * sizeof *table);
    if (!table) {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the rotary embedding");
        return CKPT_NONE;
    }
    lm_rope_table(&m->config, length, table);
    ckpt_tensor x = ckpt_constant(t, "rope", CKPT_F32, 3, (int64_t[]){length, half, 2}, table);
    free(table);
    return x;
}

/* Each of the two rows of `segments`, for the tokens of its text. */
static ckpt_tensor add_segments(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor which)
{
    ckpt_tensor row[2];

    ckpt_split(t, ckpt_unsqueeze(t, m->segments, 0), 1, 2, row);
    x = ckpt_add(t, x, ckpt_where(t, ckpt_unsqueeze(t, which, 2), row[1], row[0]));
    return ckpt_nn_apply_norm(t, &m->first, x);
}

/* A layer with its norms behind its parts. */
static ckpt_tensor apply_post_norm(ckpt_tape *t, const struct ckpt_nn_transformer_layer *b,
                                   ckpt_tensor x, const struct ckpt_attention_spec *spec)
{
    x = ckpt_nn_apply_attention_add(t, &b->attention, x, CKPT_NONE, CKPT_NONE, spec, x);
    x = ckpt_nn_apply_norm(t, &b->norm1, x);
    return ckpt_nn_apply_norm(t, &b->norm2, ckpt_nn_apply_mlp_add(t, &b->mlp, x, x));
}

ckpt_tensor lm_hidden(const struct lm *m, ckpt_tape *t, const ckpt_tensor in[LM_INPUTS])
{
    const bool masked = lm_traits(&m->config)->masked;
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;

    spec.causal = !masked;
    spec.lengths = in[LM_LENGTHS];
    ckpt_label(t, "embedding");
    ckpt_tensor turns = lm_rope(m, t, ckpt_desc_of(t, in[LM_TOKENS]).shape[1]);
    ckpt_tensor x = lm_embed(m, t, in[LM_TOKENS]);
    if (masked)
        x = add_segments(m, t, x, in[LM_SEGMENTS]);
    for (int i = 0; i < m->config.layers; i++) {
        ckpt_label(t, "layers.%d", i);
        x = masked ? apply_post_norm(t, &m->block[i], x, &spec)
                   : ckpt_nn_apply_transformer_layer(t, &m->block[i], x, CKPT_NONE, turns, &spec);
    }
    ckpt_label(t, "head");
    return x;
}

/* Rows of [B, T, width] at places [B, K]; numbers of rows are exact up to 2^24. */
static ckpt_tensor select_rows(ckpt_tape *t, ckpt_tensor x, ckpt_tensor places)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor begin = ckpt_iota(t, CKPT_I32, 2, (int64_t[]){d.shape[0], 1}, 0);
    ckpt_tensor row = ckpt_add(t, ckpt_affine(t, begin, (float)d.shape[1], 0), places);

    return ckpt_index_select(t, ckpt_reshape(t, x, 2, (int64_t[]){-1, d.shape[2]}), 0, row);
}

ckpt_tensor lm_rows(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor places)
{
    if (lm_traits(&m->config)->masked)
        x = ckpt_gelu_erf(t, ckpt_nn_apply_linear(t, &m->transform, select_rows(t, x, places)));
    return ckpt_nn_apply_norm(t, &m->norm, x);
}

ckpt_tensor lm_pairs_loss(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor pairs,
                          enum ckpt_reduction reduction)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;

    spec.reduction = (int)reduction;
    x = ckpt_squeeze(t, ckpt_slice(t, x, 1, 0, 1), 1);
    x = ckpt_nn_apply_linear(t, &m->pairs, ckpt_tanh(t, ckpt_nn_apply_linear(t, &m->pooler, x)));
    return ckpt_cross_entropy(t, x, pairs, &spec);
}

ckpt_tensor lm_cross_entropy(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor targets,
                             int64_t chunk)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;

    spec.chunk = chunk;
    return ckpt_linear_cross_entropy(t, x, m->head, m->head_bias, targets, &spec);
}

ckpt_tensor lm_scores(const struct lm *m, ckpt_tape *t, ckpt_tensor rows)
{
    ckpt_full_precision(t, true); /* the loss computes its scores in full precision, too */
    ckpt_tensor scores = ckpt_linear(t, rows, m->head, m->head_bias);
    ckpt_full_precision(t, false);
    return ckpt_cast(t, scores, CKPT_F32);
}

double lm_token_flops(const struct lm_config *c, int64_t length, int64_t targets)
{
    const struct lm_traits *f = lm_traits(c);
    double heads = (double)(c->heads * c->head), kv = (double)(c->kv_heads * c->head);
    double width = (double)c->width, gates = f->rotary ? 3 : 2, sides = f->masked ? 2 : 1;
    double block = width * (2 * heads + 2 * kv) + gates * width * (double)c->mlp;
    double head = width * ((double)c->vocabulary + (f->masked ? width : 0));

    return 6 * ((double)c->layers * (block + sides * heads * (double)length) +
                head * (double)targets / (double)length);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three families: see model.h.
 *
 *     GPT-2      layer norms, learned positions, biases everywhere, GELU, head tied to embedding
 *     Llama 3    RMS norms, rotary positions, grouped-query heads, no biases, SiLU-gated MLP
 *     Qwen 2.5   as Llama, with biases of q, k and v
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

int lm_create(struct lm *m, ckpt *c, const struct lm_config *config, enum ckpt_dtype dtype)
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
    ckpt_tensor x = ckpt_nn_apply_embedding(t, &m->tokens, tokens);

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

    if (m->config.family == LM_GPT2)
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

ckpt_tensor lm_hidden(const struct lm *m, ckpt_tape *t, ckpt_tensor tokens)
{
    struct ckpt_attention_spec causal = CKPT_ATTENTION_INIT;

    causal.causal = true;
    ckpt_label(t, "embedding");
    ckpt_tensor turns = lm_rope(m, t, ckpt_desc_of(t, tokens).shape[1]);
    ckpt_tensor x = lm_embed(m, t, tokens);
    for (int i = 0; i < m->config.layers; i++) {
        ckpt_label(t, "layers.%d", i);
        x = ckpt_nn_apply_transformer_layer(t, &m->block[i], x, CKPT_NONE, turns, &causal);
    }
    ckpt_label(t, "head");
    return ckpt_nn_apply_norm(t, &m->norm, x);
}

ckpt_tensor lm_cross_entropy(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor targets,
                             int64_t chunk)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;

    spec.chunk = chunk;
    return ckpt_linear_cross_entropy(t, x, m->head, CKPT_NONE, targets, &spec);
}

ckpt_tensor lm_scores(const struct lm *m, ckpt_tape *t, ckpt_tensor rows)
{
    ckpt_full_precision(t, true); /* the loss computes its scores in full precision, too */
    ckpt_tensor scores = ckpt_linear(t, rows, m->head, CKPT_NONE);
    ckpt_full_precision(t, false);
    return ckpt_cast(t, scores, CKPT_F32);
}

double lm_token_flops(const struct lm_config *c, int64_t length)
{
    double heads = (double)(c->heads * c->head), kv = (double)(c->kv_heads * c->head);
    double width = (double)c->width, gates = c->family == LM_GPT2 ? 2 : 3;
    double block = width * (2 * heads + 2 * kv) + gates * width * (double)c->mlp;

    return 6 *
           ((double)c->layers * (block + heads * (double)length) + width * (double)c->vocabulary);
}

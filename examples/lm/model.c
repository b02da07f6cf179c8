/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings, the layers of block.c, head and loss: see model.h. */
#include <math.h>
#include <stdlib.h>
#include "ckpt_dist.h"
#include "model.h"

/* ---- parameters ---------------------------------------------------------------------------- */

/* Initial values: projections that add to the residual stream use their own spread. */
struct first_values {
    struct ckpt_init weight, residual, zeros;
};

static void create_gpt2(struct lm *m, const struct ckpt_nn *nn, const struct first_values *first)
{
    const struct lm_config *g = &m->config;

    m->tokens = ckpt_nn_embedding(nn, g->vocabulary, g->width, "wte");
    m->places = ckpt_nn_embedding(nn, g->positions, g->width, "wpe");
    for (int i = 0; i < g->layers; i++)
        lm_block_create(m, nn, &first->residual, i);
    m->norm = ckpt_nn_layer_norm(nn, g->width, (float)g->eps, "ln_f");
}

static void create_rotary(struct lm *m, const struct ckpt_nn *nn)
{
    const struct lm_config *g = &m->config;

    m->tokens = ckpt_nn_embedding(nn, g->vocabulary, g->width, "model.embed_tokens");
    for (int i = 0; i < g->layers; i++)
        lm_block_create(m, nn, NULL, i);
    m->norm = lm_rms_norm(m, nn, g->width, "model.norm");
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
        lm_block_create(m, nn, NULL, i);
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
        create_rotary(m, &nn);
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

/* Families with scaled embeddings round the factor to the dtype of the model. */
static ckpt_tensor scale_embedding(const struct lm *m, ckpt_tape *t, ckpt_tensor x)
{
    float scale = sqrtf((float)m->config.width);

    if (!lm_traits(&m->config)->scaled)
        return x;
    if (m->dtype == CKPT_BF16) /* 8 digits */
        scale = ldexpf(rintf(ldexpf(scale, 7 - ilogbf(scale))), ilogbf(scale) - 7);
    return ckpt_affine(t, x, scale, 0);
}

ckpt_tensor lm_embed(const struct lm *m, ckpt_tape *t, ckpt_tensor tokens, ckpt_tensor places)
{
    int64_t length = ckpt_desc_of(t, tokens).shape[1];
    int64_t padding = lm_traits(&m->config)->masked ? m->config.pad : -1;
    ckpt_tensor x = ckpt_embedding(t, m->tokens.weight, ckpt_sequence(t, tokens, 1), padding);

    if (!m->places.weight.id)
        return scale_embedding(m, t, x);
    if (places.id)
        return ckpt_add(t, x, ckpt_nn_apply_embedding(t, &m->places, ckpt_sequence(t, places, 1)));
    places = ckpt_slice(t, m->places.weight, 0, 0, length);
    places = ckpt_reshape(t, places, 3, (int64_t[]){1, length, m->config.width});
    return ckpt_add(t, x, ckpt_sequence(t, places, 1));
}

ckpt_tensor lm_embed_at(const struct lm *m, ckpt_tape *t, ckpt_tensor token, ckpt_tensor place)
{
    ckpt_tensor x = ckpt_nn_apply_embedding(t, &m->tokens, token);

    return m->places.weight.id ? ckpt_add(t, x, ckpt_nn_apply_embedding(t, &m->places, place))
                               : scale_embedding(m, t, x);
}

static ckpt_tensor rope_table(const struct lm *m, ckpt_tape *t, int which, int64_t length)
{
    int64_t half = lm_turned(&m->config) / 2;
    float *table = malloc((size_t)(length * half * 2) * sizeof *table);

    if (!table) {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the rotary embedding");
        return CKPT_NONE;
    }
    lm_rope_table(&m->config, which, length, table);
    ckpt_tensor x = ckpt_constant(t, NULL, CKPT_F32, 3, (int64_t[]){length, half, 2}, table);
    free(table);
    return x;
}

struct lm_pass lm_pass(const struct lm *m, ckpt_tape *t, int64_t length)
{
    struct lm_pass pass = {.seen = CKPT_ATTENTION_INIT};

    pass.seen.causal = !lm_traits(&m->config)->masked;
    if (!lm_traits(&m->config)->rotary)
        return pass;
    pass.table[0] = pass.table[1] = rope_table(m, t, 0, length);
    if (m->config.rope[1].theta > 0)
        pass.table[1] = rope_table(m, t, 1, length);
    return pass;
}

/* Each of the two rows of `segments`, for the tokens of its text. */
static ckpt_tensor add_segments(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor which)
{
    ckpt_tensor row[2];

    ckpt_split(t, ckpt_unsqueeze(t, m->segments, 0), 1, 2, row);
    x = ckpt_add(t, x, ckpt_where(t, ckpt_unsqueeze(t, which, 2), row[1], row[0]));
    return ckpt_nn_apply_norm(t, &m->first, x);
}

/* The number of the first token of each sample of a batch [B], as [B, 1] i32; exact up to 2^24. */
static ckpt_tensor row_begins(ckpt_tape *t, int64_t batch, int64_t length)
{
    ckpt_tensor row = ckpt_iota(t, CKPT_I32, 2, (int64_t[]){batch, 1}, 0);

    return ckpt_affine(t, row, (float)length, 0);
}

/* Rows [B, T] as one, [1, B T]. */
static ckpt_tensor one_row(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_reshape(t, x, 2, (int64_t[]){1, -1});
}

/*
 * Rows of several samples: all rows are one sequence, in which a token sees its own sample, and
 * positions begin again with each sample.  Returns the positions [1, B T].
 */
static ckpt_tensor pack(ckpt_tape *t, ckpt_tensor starts, struct lm_pass *pass)
{
    struct ckpt_desc d = ckpt_desc_of(t, starts);
    ckpt_tensor first = ckpt_add(t, row_begins(t, d.shape[0], d.shape[1]), starts);
    ckpt_tensor place = ckpt_iota(t, CKPT_I32, 2, (int64_t[]){1, d.shape[1]}, 1);

    place = ckpt_sub(t, place, starts);
    pass->seen.first = one_row(t, first);
    ckpt_tensor row = ckpt_reshape(t, place, 1, (int64_t[]){-1});
    const bool same = pass->table[0].id == pass->table[1].id;
    for (int k = 0; k < 2; k++)
        if (pass->table[k].id)
            pass->table[k] = k && same ? pass->table[0]
                                       : ckpt_index_select(t, pass->table[k], 0, row);
    return one_row(t, place);
}

/* The angles of this rank's tokens. */
static void split_tables(ckpt_tape *t, struct lm_pass *pass)
{
    const bool same = pass->table[0].id == pass->table[1].id;

    pass->table[0] = ckpt_sequence(t, pass->table[0], 0);
    pass->table[1] = same ? pass->table[0] : ckpt_sequence(t, pass->table[1], 0);
}

/* The balance of the layers with experts, times its share of the loss. */
static ckpt_tensor balance_of(const struct lm *m, ckpt_tape *t, struct lm_routes *routes)
{
    int64_t n = 0;

    for (int64_t i = 0; i < m->config.layers; i++)
        if (m->config.layer[i] & LM_LAYER_EXPERTS)
            routes[n++] = routes[i];
    return n ? ckpt_affine(t, lm_experts_balance(&m->config.experts, t, n, routes),
                           (float)m->config.balance, 0)
             : CKPT_NONE;
}

ckpt_tensor lm_hidden(const struct lm *m, ckpt_tape *t, const ckpt_tensor in[LM_INPUTS],
                      ckpt_tensor *balance)
{
    const bool balanced = balance && m->config.balance > 0;

    ckpt_label(t, "embedding");
    const ckpt_tensor starts = in[LM_STARTS];
    const struct ckpt_desc rows = ckpt_desc_of(t, in[LM_TOKENS]);
    struct lm_pass pass = lm_pass(m, t, rows.shape[1]);
    const ckpt_tensor places = starts.id ? pack(t, starts, &pass) : CKPT_NONE;
    split_tables(t, &pass);
    ckpt_tensor x =
        lm_embed(m, t, starts.id ? one_row(t, in[LM_TOKENS]) : in[LM_TOKENS], places);

    if (balance)
        *balance = CKPT_NONE;
    if (balanced)
        pass.routes = calloc((size_t)m->config.layers, sizeof *pass.routes);
    if (balanced && !pass.routes)
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the balance of experts");
    pass.seen.lengths = in[LM_LENGTHS];
    if (lm_traits(&m->config)->masked)
        x = add_segments(m, t, x, in[LM_SEGMENTS]);
    for (int i = 0; i < m->config.layers; i++)
        x = lm_block(m, t, i, x, &pass);
    ckpt_label(t, "head");
    if (pass.routes)
        *balance = balance_of(m, t, pass.routes);
    free(pass.routes);
    const bool whole = ckpt_desc_of(t, x).shape[1] == rows.shape[0] * rows.shape[1];
    return starts.id && whole
               ? ckpt_reshape(t, x, 3,
                              (int64_t[]){rows.shape[0], rows.shape[1], m->config.width})
               : x;
}

ckpt_tensor lm_targets(ckpt_tape *t, const ckpt_tensor in[LM_INPUTS], ckpt_tensor x)
{
    const ckpt_tensor targets = in[LM_TARGETS];
    const bool packed = in[LM_STARTS].id && ckpt_desc_of(t, x).shape[0] == 1;

    return ckpt_sequence(t, packed ? one_row(t, targets) : targets, 1);
}

/* Rows of [B, T, width] at places [B, K]. */
static ckpt_tensor select_rows(ckpt_tape *t, ckpt_tensor x, ckpt_tensor places)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor row = ckpt_add(t, row_begins(t, d.shape[0], d.shape[1]), places);

    return ckpt_index_select(t, ckpt_reshape(t, x, 2, (int64_t[]){-1, d.shape[2]}), 0, row);
}

ckpt_tensor lm_rows(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor places)
{
    if (lm_traits(&m->config)->masked)
        x = ckpt_gelu_erf(t, ckpt_nn_apply_linear(t, &m->transform, select_rows(t, x, places)));
    return lm_norm(m, t, &m->norm, x);
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
                             int64_t chunk, enum ckpt_reduction reduction)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;

    spec.chunk = chunk;
    spec.cap = (float)m->config.last_cap;
    spec.reduction = (int)reduction;
    return ckpt_linear_cross_entropy(t, x, m->head, m->head_bias, targets, &spec);
}

ckpt_tensor lm_scores(const struct lm *m, ckpt_tape *t, ckpt_tensor rows)
{
    const float cap = (float)m->config.last_cap;

    ckpt_full_precision(t, true); /* the loss computes its scores in full precision, too */
    ckpt_tensor scores = ckpt_linear(t, rows, m->head, m->head_bias);
    ckpt_full_precision(t, false);
    scores = ckpt_cast(t, scores, CKPT_F32);
    if (!(cap > 0))
        return scores;
    return ckpt_affine(t, ckpt_tanh(t, ckpt_affine(t, scores, 1 / cap, 0)), cap, 0);
}

/* Products of the MLP of layer i, for a token. */
static double mlp_products(const struct lm_config *c, int64_t i)
{
    const double width = (double)c->width, gates = lm_traits(c)->rotary ? 3 : 2;
    const struct lm_experts_config *e = &c->experts;

    if (!(c->layer[i] & LM_LAYER_EXPERTS))
        return gates * width * (double)c->mlp;
    return width * ((double)e->count + gates * (double)(e->chosen * e->inner));
}

double lm_token_flops(const struct lm_config *c, int64_t length, int64_t targets)
{
    const struct lm_traits *f = lm_traits(c);
    double heads = (double)(c->heads * c->head), kv = (double)(c->kv_heads * c->head);
    double width = (double)c->width, sides = f->masked ? 2 : 1, mlps = 0;
    double block = width * (2 * heads + 2 * kv);
    double head = width * ((double)c->vocabulary + (f->masked ? width : 0));

    for (int64_t i = 0; i < c->layers; i++)
        mlps += mlp_products(c, i);
    return 6 * ((double)c->layers * (block + sides * heads * (double)length) + mlps +
                head * (double)targets / (double)length);
}

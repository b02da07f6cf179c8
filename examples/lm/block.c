/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One layer of a model: its parameters and its computation, by the properties of the family
 * (struct lm_traits) and of the layer (lm_config.layer).  Training reads whole samples; decode.c
 * keeps keys and values between the projections and attention (struct lm_pass).
 */
#include <math.h>
#include "ckpt_files.h"
#include "model.h"

/* ---- parameters ---------------------------------------------------------------------------- */

/* Files store GPT-2's linear weights as [in, out]. */
static void turn_in_files(ckpt *c, ckpt_tensor weight)
{
    if (weight.id)
        ckpt_param_file_axes(c, weight, 2, NULL, (int[]){1, 0});
}

static void create_gpt2(struct lm *m, const struct ckpt_nn *nn, const struct ckpt_init *residual,
                        int i)
{
    const struct lm_config *g = &m->config;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct lm_block *b = &m->block[i];

    attention.width = mlp.width = g->width;
    attention.heads = g->heads;
    attention.qkv_name = "c_attn";
    attention.out_name = mlp.down_name = "c_proj";
    attention.out_weight = mlp.down_weight = residual;
    mlp.inner = g->mlp;
    mlp.up_name = "c_fc";
    b->norm1 = ckpt_nn_layer_norm(nn, g->width, (float)g->eps, "h.%d.ln_1", i);
    b->attention = ckpt_nn_attention(nn, &attention, "h.%d.attn", i);
    b->norm2 = ckpt_nn_layer_norm(nn, g->width, (float)g->eps, "h.%d.ln_2", i);
    b->mlp = ckpt_nn_mlp(nn, &mlp, "h.%d.mlp", i);
    turn_in_files(nn->context, b->attention.qkv.weight);
    turn_in_files(nn->context, b->attention.out.weight);
    turn_in_files(nn->context, b->mlp.up.weight);
    turn_in_files(nn->context, b->mlp.down.weight);
}

#define BERT_LAYER "bert.encoder.layer.%d."

/* The parts of a layer lie in no common part of their names. */
static void create_bert(struct lm *m, const struct ckpt_nn *nn, int i)
{
    const struct lm_config *g = &m->config;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct lm_block *b = &m->block[i];

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
    b->after1 =
        ckpt_nn_layer_norm(nn, g->width, (float)g->eps, BERT_LAYER "attention.output.LayerNorm", i);
    b->mlp = ckpt_nn_mlp(nn, &mlp, "bert.encoder.layer.%d", i);
    b->after2 = ckpt_nn_layer_norm(nn, g->width, (float)g->eps, BERT_LAYER "output.LayerNorm", i);
}

struct ckpt_nn_norm lm_rms_norm(const struct lm *m, const struct ckpt_nn *nn, int64_t width,
                                const char *name)
{
    struct ckpt_nn_norm n = {.eps = (float)m->config.eps, .rms = true};
    char weight[128];

    snprintf(weight, sizeof weight, "%s.weight", name);
    n.weight = ckpt_param(nn->context, weight, nn->dtype, 1, &width,
                          lm_traits(&m->config)->offset ? CKPT_ZEROS : CKPT_ONES, true);
    return n;
}

static struct ckpt_nn_norm norm_in(const struct lm *m, const struct ckpt_nn *nn, int i,
                                   int64_t width, const char *part)
{
    char name[96];

    snprintf(name, sizeof name, "model.layers.%d.%s", i, part);
    return lm_rms_norm(m, nn, width, name);
}

/* The norm of q or k.  Files have the rows of separate projections as two halves of a head, and
 * their weight, too. */
static struct ckpt_nn_norm head_norm(const struct lm *m, const struct ckpt_nn *nn, int i,
                                     int64_t heads, const char *part)
{
    const struct lm_traits *f = lm_traits(&m->config);
    int64_t head = m->config.head;

    heads = f->qk_norm == LM_QK_WHOLE ? heads : 1;
    struct ckpt_nn_norm n = norm_in(m, nn, i, heads * head, part);
    if (n.weight.id && !f->fused)
        ckpt_param_file_axes(nn->context, n.weight, 3, (int64_t[]){heads, head / 2, 2},
                             (int[]){0, 2, 1});
    return n;
}

static struct ckpt_nn_attention make_attention(const struct lm *m, const struct ckpt_nn *nn, int i)
{
    const struct lm_config *g = &m->config;
    const bool fused = lm_traits(g)->fused;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;

    attention.width = g->width;
    attention.heads = g->heads;
    attention.kv_heads = g->kv_heads;
    attention.head = g->head;
    attention.qkv_bias = g->qkv_bias;
    attention.out_bias = g->out_bias;
    attention.out_name = "o_proj";
    attention.qkv_name = fused ? "qkv_proj" : NULL;
    attention.halves = !fused;
    return ckpt_nn_attention(nn, &attention, "model.layers.%d.self_attn", i);
}

static struct ckpt_nn_mlp make_mlp(const struct lm *m, const struct ckpt_nn *nn, int i)
{
    const struct lm_config *g = &m->config;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;

    mlp.width = g->width;
    mlp.inner = g->mlp;
    mlp.gated = true;
    mlp.gate_up_name = lm_traits(g)->fused ? "gate_up_proj" : NULL;
    mlp.bias = g->mlp_bias;
    mlp.activation = (enum ckpt_nn_activation)g->activation;
    return ckpt_nn_mlp(nn, &mlp, "model.layers.%d.mlp", i);
}

static void make_mlp_or_experts(struct lm *m, const struct ckpt_nn *nn, int i)
{
    const struct lm_config *g = &m->config;
    char name[64];

    snprintf(name, sizeof name, "model.layers.%d", i);
    if (g->layer[i] & LM_LAYER_EXPERTS)
        m->block[i].experts =
            lm_experts_make(nn, &g->experts, &lm_mixture(g)->names, g->width, name);
    else
        m->block[i].mlp = make_mlp(m, nn, i);
}

static ckpt_tensor make_sinks(const struct lm *m, const struct ckpt_nn *nn, int i)
{
    char name[64];

    snprintf(name, sizeof name, "model.layers.%d.self_attn.sinks", i);
    return ckpt_param(nn->context, name, nn->dtype, 1, &m->config.heads, *nn->weight, true);
}

static void create_rotary(struct lm *m, const struct ckpt_nn *nn, int i)
{
    const struct lm_config *g = &m->config;
    const struct lm_traits *f = lm_traits(g);
    const bool before = f->norms != LM_NORMS_AFTER, after = f->norms != LM_NORMS_BEFORE;
    struct lm_block *b = &m->block[i];

    if (before)
        b->norm1 = norm_in(m, nn, i, g->width, "input_layernorm");
    b->attention = make_attention(m, nn, i);
    if (f->sinks)
        b->sinks = make_sinks(m, nn, i);
    if (f->qk_norm != LM_QK_PLAIN) {
        b->q_norm = head_norm(m, nn, i, g->heads, "self_attn.q_norm");
        b->k_norm = head_norm(m, nn, i, g->kv_heads, "self_attn.k_norm");
    }
    if (after)
        b->after1 = norm_in(m, nn, i, g->width, "post_attention_layernorm");
    if (before)
        b->norm2 = norm_in(m, nn, i, g->width,
                           after ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    make_mlp_or_experts(m, nn, i);
    if (after)
        b->after2 = norm_in(m, nn, i, g->width, "post_feedforward_layernorm");
}

void lm_block_create(struct lm *m, const struct ckpt_nn *nn, const struct ckpt_init *residual,
                     int i)
{
    if (m->config.family == LM_GPT2)
        create_gpt2(m, nn, residual, i);
    else if (m->config.family == LM_BERT)
        create_bert(m, nn, i);
    else
        create_rotary(m, nn, i);
}

/* ---- norms --------------------------------------------------------------------------------- */

/* A weight w - 1 near 0 in bf16 has more digits than w, so that norm is computed in fp32. */
ckpt_tensor lm_norm(const struct lm *m, ckpt_tape *t, const struct ckpt_nn_norm *n, ckpt_tensor x)
{
    if (!n->weight.id)
        return x;
    if (!n->rms || !lm_traits(&m->config)->offset)
        return ckpt_nn_apply_norm(t, n, x);
    ckpt_tensor w = ckpt_affine(t, ckpt_cast(t, n->weight, CKPT_F32), 1, 1);
    return ckpt_cast(t, ckpt_rms_norm(t, ckpt_cast(t, x, CKPT_F32), w, n->eps), m->dtype);
}

/* The sum of x and what a part of the layer computed: y has x already where no norm is behind the
 * part alone. */
static ckpt_tensor join(const struct lm *m, ckpt_tape *t, const struct ckpt_nn_norm *after,
                        ckpt_tensor x, ckpt_tensor y)
{
    const bool summed = lm_traits(&m->config)->norms == LM_NORMS_LAST;

    if (!after->weight.id)
        return y;
    y = lm_norm(m, t, after, y);
    return summed ? y : ckpt_add(t, x, y);
}

/* ---- attention ----------------------------------------------------------------------------- */

/* The rotary embedding of heads [..., T, heads, head]: of the first lm_turned elements. */
static ckpt_tensor turn(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor table)
{
    const int last = ckpt_desc_of(t, x).ndim - 1;
    const int64_t head = m->config.head, turned = lm_turned(&m->config);

    if (!table.id)
        return x;
    if (!lm_traits(&m->config)->fused)
        return ckpt_rope(t, x, table, last - 2);
    if (turned == head)
        return ckpt_rope_halves(t, x, table, last - 2);
    const ckpt_tensor part[] = {
        ckpt_rope_halves(t, ckpt_slice(t, x, last, 0, turned), table, last - 2),
        ckpt_slice(t, x, last, turned, head)};
    return ckpt_concat(t, last, 2, part);
}

/* All heads [..., heads, head] as one axis, or the reverse. */
static ckpt_tensor reshape_heads(ckpt_tape *t, ckpt_tensor x, int ndim, int64_t heads, int64_t head)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);

    d.shape[ndim - 2] = heads;
    d.shape[ndim - 1] = head;
    return ckpt_reshape(t, x, ndim, d.shape);
}

/* Norm, if any, and rotary embedding of q or k. */
static ckpt_tensor prepare(const struct lm *m, ckpt_tape *t, const struct ckpt_nn_norm *n,
                           ckpt_tensor x, ckpt_tensor table)
{
    const struct lm_traits *f = lm_traits(&m->config);
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const int ndim = d.ndim;

    if (f->qk_norm == LM_QK_HEAD && !f->offset && !f->fused && table.id)
        return ckpt_rms_norm_rope(t, x, n->weight, n->eps, table, ndim - 3);
    if (f->qk_norm == LM_QK_WHOLE) {
        x = reshape_heads(t, x, ndim - 1, d.shape[ndim - 3], d.shape[ndim - 2] * d.shape[ndim - 1]);
        x = reshape_heads(t, lm_norm(m, t, n, x), ndim, d.shape[ndim - 2], d.shape[ndim - 1]);
    } else {
        x = lm_norm(m, t, n, x);
    }
    return turn(m, t, x, table);
}

static ckpt_tensor attention(const struct lm *m, ckpt_tape *t, int i, ckpt_tensor x,
                             const struct lm_pass *pass, ckpt_tensor add)
{
    const struct lm_config *g = &m->config;
    const struct lm_block *b = &m->block[i];
    const bool window = g->layer[i] & LM_LAYER_WINDOW;
    ckpt_tensor table = pass->table[window], q, k, v;
    struct ckpt_attention_spec seen = pass->seen;

    if (g->layer[i] & LM_LAYER_UNTURNED)
        table = CKPT_NONE;
    seen.scale = (float)g->scale;
    seen.cap = (float)g->cap;
    seen.sink = b->sinks;
    seen.window = window ? g->window : 0;
    seen.causal |= window;
    ckpt_nn_attention_heads(t, &b->attention, x, CKPT_NONE, &q, &k, &v);
    q = prepare(m, t, &b->q_norm, q, table);
    k = prepare(m, t, &b->k_norm, k, table);
    x = pass->attend ? pass->attend(pass->user, t, i, q, k, v, &seen)
                     : ckpt_attention(t, q, k, v, CKPT_NONE, &seen);
    return ckpt_nn_attention_out(t, &b->attention, x, add);
}

/* ---- MLP ----------------------------------------------------------------------------------- */

/* The MLP of layer i or its experts, plus `add` or CKPT_NONE. */
static ckpt_tensor mlp(const struct lm *m, ckpt_tape *t, int i, ckpt_tensor x,
                       const struct lm_pass *pass, ckpt_tensor add)
{
    const struct ckpt_nn_mlp *f = &m->block[i].mlp;
    struct lm_routes routes, *to = pass->routes ? &pass->routes[i] : &routes;

    if (m->config.layer[i] & LM_LAYER_EXPERTS) {
        x = lm_experts_apply(&m->block[i].experts, &m->config.experts, t, x, to);
        return add.id ? ckpt_add(t, x, add) : x;
    }
    return add.id ? ckpt_nn_apply_mlp_add(t, f, x, add) : ckpt_nn_apply_mlp(t, f, x);
}

/* ---- layer --------------------------------------------------------------------------------- */

ckpt_tensor lm_block(const struct lm *m, ckpt_tape *t, int i, ckpt_tensor x,
                     const struct lm_pass *pass)
{
    const struct lm_block *b = &m->block[i];
    const enum lm_norms norms = lm_traits(&m->config)->norms;
    const bool adds = norms == LM_NORMS_BEFORE || norms == LM_NORMS_LAST;

    ckpt_label(t, "layers.%d", i);
    ckpt_tensor y = attention(m, t, i, lm_norm(m, t, &b->norm1, x), pass, adds ? x : CKPT_NONE);
    x = join(m, t, &b->after1, x, y);
    y = mlp(m, t, i, lm_norm(m, t, &b->norm2, x), pass, adds ? x : CKPT_NONE);
    return join(m, t, &b->after2, x, y);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training step of STDiT3 as stdit-train records it: the same ops on the same bytes, forward,
 * backward and update.
 */
#include <stdio.h>
#include <stdlib.h>
#include "models.h"

enum { FRAMES = 15, TEXT = 300 };
enum { WIDTH = 1152, HEADS = 16, MLP = 4 * WIDTH, CAPTION = 4096 };
#define GEMM        INT64_C(12058624) /* workspace */
#define ACTIVATION  KIND_ACTIVATION
#define BACKWARD(w) .phase = GRAPH_BACKWARD, .name = w

struct linear {
    int32_t w, b; /* index of the parameters */
    int32_t x, y;
    int64_t rows, in, out;
};

struct norm {
    int32_t x, y, stats, u; /* u: modulated */
};

struct block {
    int32_t rows, x, end; /* modulation rows, input, output */
    int32_t table;        /* parameter of the rows */
    struct norm norm[2];
    struct linear qkv, proj, cross_q, cross_kv, cross_proj, fc1, fc2;
    int32_t q, q_stats, k, k_stats, q_norm, k_norm; /* norms are parameters */
    int32_t rq, rk, o, lse;
    int32_t x1, co, clse, x2, h;
    bool temporal;
};

struct model {
    struct net *n;
    int32_t text, lens, time6, rope, noise;
    int32_t d_text, d_time6; /* sums of gradients */
    struct block *blocks;
    int32_t n_blocks;
};

/* Bytes of a tensor of tokens, and of a statistic of every head. */
static int64_t unit(const struct net *n)
{
    return n->tokens * WIDTH * 2;
}

static int64_t per_head(const struct net *n)
{
    return n->tokens * HEADS * 4;
}

static int32_t value(const struct net *n, int32_t param)
{
    return n->params.data[param].value;
}

static int32_t parameter(struct net *n, int64_t numel, const char *name)
{
    net_param(n, numel, 2, name);
    return n->n_params - 1;
}

static int32_t linear(struct net *n, struct linear *l, int32_t x, int64_t rows, int64_t in,
                      int64_t out)
{
    *l = (struct linear){.x = x, .rows = rows, .in = in, .out = out};
    l->w = parameter(n, in * out, "weight");
    l->b = parameter(n, out, "bias");
    l->y = net_make(n, ACTIVATION, 2 * rows * out,
                    &(struct net_op){.name = "linear",
                                     .in = {x, value(n, l->w), value(n, l->b)},
                                     .flops = 2. * (double)(rows * in) * (double)out,
                                     .workspace = GEMM});
    return l->y;
}

static int32_t unary(struct net *n, const char *name, int32_t x, int32_t y, int64_t bytes)
{
    return net_make(n, ACTIVATION, bytes, &(struct net_op){.name = name, .in = {x, y}});
}

static void modulated_norm(struct net *n, struct norm *m, int32_t x, int32_t rows)
{
    m->x = x;
    m->stats = net_storage(n, ACTIVATION, n->tokens * 8, "layer_norm");
    m->y = net_storage(n, ACTIVATION, unit(n), "layer_norm");
    net_add(n, &(struct net_op){.name = "layer_norm", .in = {x}, .out = {m->y, m->stats}});
    m->u = unary(n, "modulate", m->y, rows, unit(n));
}

/* Of a third of qkv. */
static int32_t head_norm(struct net *n, int32_t qkv, int32_t *param, int32_t *stats)
{
    int32_t y = net_storage(n, ACTIVATION, unit(n), "rms_norm");
    *param = parameter(n, WIDTH / HEADS, "norm");
    *stats = net_storage(n, ACTIVATION, per_head(n), "rms_norm");
    net_add(n, &(struct net_op){.name = "rms_norm",
                                .in = {qkv, value(n, *param)},
                                .out = {y, *stats},
                                .bytes = 2. * (double)unit(n)});
    return y;
}

static double score_flops(const struct net *n, bool temporal)
{
    double tokens = (double)n->tokens;
    return 4. * tokens * (temporal ? FRAMES : tokens / FRAMES) * WIDTH;
}

static void self_attention(struct net *n, const struct model *m, struct block *b)
{
    int32_t qkv = linear(n, &b->qkv, b->norm[0].u, n->tokens, WIDTH, 3 * WIDTH);
    b->q = b->rq = head_norm(n, qkv, &b->q_norm, &b->q_stats);
    b->k = b->rk = head_norm(n, qkv, &b->k_norm, &b->k_stats);
    if (b->temporal) {
        b->rq = unary(n, "rope", b->q, m->rope, unit(n));
        b->rk = unary(n, "rope", b->k, m->rope, unit(n));
    }
    b->o = net_storage(n, ACTIVATION, unit(n), "attention");
    b->lse = net_storage(n, ACTIVATION, per_head(n), "attention");
    net_add(n, &(struct net_op){.name = "attention",
                                .in = {b->rq, b->rk, qkv},
                                .out = {b->o, b->lse},
                                .flops = score_flops(n, b->temporal),
                                .bytes = 4. * (double)unit(n)});
    linear(n, &b->proj, b->o, n->tokens, WIDTH, WIDTH);
}

static void cross_attention(struct net *n, const struct model *m, struct block *b)
{
    int32_t q = linear(n, &b->cross_q, b->x1, n->tokens, WIDTH, WIDTH);
    int32_t kv = linear(n, &b->cross_kv, m->text, TEXT, WIDTH, 2 * WIDTH);
    b->co = net_storage(n, ACTIVATION, unit(n), "cross_attention");
    b->clse = net_storage(n, ACTIVATION, per_head(n), "cross_attention");
    net_add(n, &(struct net_op){.name = "cross_attention",
                                .in = {q, kv, m->lens},
                                .out = {b->co, b->clse},
                                .flops = 4. * (double)n->tokens * TEXT * WIDTH,
                                .workspace = 214 * n->tokens});
    linear(n, &b->cross_proj, b->co, n->tokens, WIDTH, WIDTH);
}

static int32_t gated_residual(struct net *n, int32_t x, int32_t rows, int32_t a)
{
    return net_make(n, ACTIVATION, unit(n),
                    &(struct net_op){.name = "gated_residual", .in = {x, rows, a}});
}

static int32_t block_forward(struct net *n, const struct model *m, struct block *b, int32_t x)
{
    b->x = x;
    b->table = parameter(n, 6 * WIDTH, "scale_shift_table");
    b->rows = unary(n, "add", value(n, b->table), m->time6, 12 * WIDTH);
    modulated_norm(n, &b->norm[0], x, b->rows);
    self_attention(n, m, b);
    b->x1 = gated_residual(n, x, b->rows, b->proj.y);
    cross_attention(n, m, b);
    b->x2 = unary(n, "add", b->x1, b->cross_proj.y, unit(n));
    modulated_norm(n, &b->norm[1], b->x2, b->rows);
    b->h =
        unary(n, "gelu", linear(n, &b->fc1, b->norm[1].u, n->tokens, WIDTH, MLP), 0, 4 * unit(n));
    b->end = gated_residual(n, b->x2, b->rows, linear(n, &b->fc2, b->h, n->tokens, MLP, WIDTH));
    return b->end;
}

/* ---- backward ------------------------------------------------------------------------------- */

static int32_t backward(struct net *n, int64_t bytes, const struct net_op *op)
{
    return net_make(n, KIND_TEMPORARY, bytes, op);
}

static int32_t linear_backward(struct net *n, const struct linear *l, int32_t dy)
{
    struct net_param *w = &n->params.data[l->w], *b = &n->params.data[l->b];
    double flops = 2. * (double)(l->rows * l->in) * (double)l->out;
    int32_t dx = backward(n, 2 * l->rows * l->in,
                          &(struct net_op){BACKWARD("linear_dx"), .in = {dy, w->value},
                                           .flops = flops, .workspace = GEMM});
    struct net_op dw = {BACKWARD("linear_dw"), .in = {dy, l->x}, .flops = flops,
                        .workspace = GEMM * 2 / 3};
    if (n->gradient == 2) { /* it takes the room of the value */
        dw.out[0] = w->gradient = w->value;
        net_add(n, &dw);
    } else {
        w->gradient = net_make(n, KIND_GRADIENT, n->gradient * w->numel, &dw);
    }
    b->gradient = net_make(n, KIND_GRADIENT, n->gradient * b->numel,
                           &(struct net_op){BACKWARD("column_sum"), .in = {dy}});
    return dx;
}

/* Adds the gradient of the norm's input to d. */
static int32_t norm_backward(struct net *n, const struct norm *m, int32_t rows, int32_t du,
                             int32_t d, int32_t drows[2])
{
    int32_t dn = net_storage(n, KIND_TEMPORARY, unit(n), "modulate_dx");
    drows[0] = net_storage(n, KIND_TEMPORARY, 4 * WIDTH, "modulate_dx");
    drows[1] = net_storage(n, KIND_TEMPORARY, 4 * WIDTH, "modulate_dx");
    net_add(n, &(struct net_op){BACKWARD("modulate_dx"), .in = {du, m->y, rows},
                                .out = {dn, drows[0], drows[1]}, .workspace = 294912});
    int32_t dx = backward(n, unit(n),
                          &(struct net_op){BACKWARD("layer_norm_dx"), .in = {dn, m->x, m->stats}});
    return backward(n, unit(n), &(struct net_op){BACKWARD("add"), .in = {d, dx}});
}

static int32_t gate_backward(struct net *n, int32_t dy, int32_t rows, int32_t a, int32_t *dgate)
{
    int32_t da = net_storage(n, KIND_TEMPORARY, unit(n), "gated_residual_dx");
    *dgate = net_storage(n, KIND_TEMPORARY, 4 * WIDTH, "gated_residual_dx");
    net_add(n, &(struct net_op){BACKWARD("gated_residual_dx"), .in = {dy, rows, a},
                                .out = {da, *dgate}, .workspace = 147456});
    return da;
}

static int32_t head_norm_backward(struct net *n, struct block *b, bool key, int32_t dy)
{
    struct net_param *p = &n->params.data[key ? b->k_norm : b->q_norm];
    int32_t dx = net_storage(n, KIND_TEMPORARY, unit(n), "rms_norm_dx");
    p->gradient = net_storage(n, KIND_GRADIENT, n->gradient * p->numel, "rms_norm_dx");
    net_add(n, &(struct net_op){BACKWARD("rms_norm_dx"),
                                .in = {dy, b->qkv.y, p->value, key ? b->k_stats : b->q_stats},
                                .out = {dx, p->gradient}, .bytes = 3. * (double)unit(n),
                                .workspace = 36864});
    return dx;
}

static int32_t self_backward(struct net *n, const struct model *m, struct block *b, int32_t da)
{
    int32_t d[3], dattention = linear_backward(n, &b->proj, da);
    for (int i = 0; i < 3; i++)
        d[i] = net_storage(n, KIND_TEMPORARY, unit(n), "attention_dx");
    net_add(n,
            &(struct net_op){BACKWARD("attention_dx"),
                             .in = {b->rq, b->rk, b->qkv.y, b->o, b->lse, dattention},
                             .out = {d[0], d[1], d[2]}, .flops = 2.5 * score_flops(n, b->temporal),
                             .bytes = 8. * (double)unit(n), .workspace = 665 * n->tokens});
    for (int i = 1; i >= 0 && b->temporal; i--)
        d[i] = backward(n, unit(n), &(struct net_op){BACKWARD("rope"), .in = {d[i], m->rope}});
    d[1] = head_norm_backward(n, b, true, d[1]);
    d[0] = head_norm_backward(n, b, false, d[0]);
    int32_t dqkv =
        backward(n, 3 * unit(n), &(struct net_op){BACKWARD("concat"), .in = {d[0], d[1], d[2]}});
    return linear_backward(n, &b->qkv, dqkv);
}

/* acc += x; the first one makes acc. */
static void sum_into(struct net *n, int32_t *acc, int32_t x, int64_t bytes)
{
    if (*acc == 0)
        *acc = backward(n, bytes, &(struct net_op){BACKWARD("cast"), .in = {x}});
    else
        net_add(n, &(struct net_op){BACKWARD("accumulate"), .in = {*acc, x}, .out = {*acc}});
}

static int32_t cross_backward(struct net *n, struct model *m, struct block *b, int32_t d)
{
    const int64_t text = (int64_t)TEXT * WIDTH * 2;
    int32_t dco = linear_backward(n, &b->cross_proj, d);
    int32_t dq = net_storage(n, KIND_TEMPORARY, unit(n), "cross_attention_dx");
    int32_t dk = net_storage(n, KIND_TEMPORARY, text, "cross_attention_dx");
    int32_t dv = net_storage(n, KIND_TEMPORARY, text, "cross_attention_dx");
    net_add(n,
            &(struct net_op){BACKWARD("cross_attention_dx"),
                             .in = {b->cross_q.y, b->cross_kv.y, m->lens, b->co, b->clse, dco},
                             .out = {dq, dk, dv}, .flops = 10. * (double)n->tokens * TEXT * WIDTH,
                             .workspace = 5010 * n->tokens});
    int32_t dkv = backward(n, 2 * text, &(struct net_op){BACKWARD("concat"), .in = {dk, dv}});
    sum_into(n, &m->d_text, linear_backward(n, &b->cross_kv, dkv), 2 * text);
    int32_t dq2 = backward(n, unit(n), &(struct net_op){BACKWARD("concat"), .in = {dq}});
    int32_t dx = linear_backward(n, &b->cross_q, dq2);
    return backward(n, unit(n), &(struct net_op){BACKWARD("add"), .in = {d, dx}});
}

static void rows_backward(struct net *n, struct model *m, struct block *b, const int32_t part[6])
{
    int32_t d = net_storage(n, KIND_TEMPORARY, 12 * WIDTH, "cast");
    for (int i = 0; i < 6; i++)
        net_add(n, &(struct net_op){BACKWARD("cast"), .in = {part[i]}, .out = {d}, .bytes = 6e3});
    sum_into(n, &m->d_time6, d, 24 * WIDTH);
    n->params.data[b->table].gradient =
        net_make(n, KIND_GRADIENT, n->gradient * 6 * WIDTH,
                 &(struct net_op){BACKWARD("accumulate"), .in = {d}});
}

static int32_t block_backward(struct net *n, struct model *m, struct block *b, int32_t d)
{
    int32_t part[6];
    int32_t da = gate_backward(n, d, b->rows, b->fc2.y, &part[5]);
    int32_t dh = linear_backward(n, &b->fc2, da);
    dh = backward(n, 4 * unit(n), &(struct net_op){BACKWARD("gelu_dx"), .in = {dh, b->fc1.y}});
    d = norm_backward(n, &b->norm[1], b->rows, linear_backward(n, &b->fc1, dh), d, &part[3]);
    d = cross_backward(n, m, b, d);
    da = gate_backward(n, d, b->rows, b->proj.y, &part[2]);
    d = norm_backward(n, &b->norm[0], b->rows, self_backward(n, m, b, da), d, &part[0]);
    rows_backward(n, m, b, part);
    return d;
}

/* ---- the whole step ------------------------------------------------------------------------- */

/* A linear layer, its activation function, a linear layer. */
struct pair {
    struct linear first, second;
};

static int32_t pair_forward(struct net *n, struct pair *p, int32_t x, int64_t rows, int64_t in)
{
    int32_t h = linear(n, &p->first, x, rows, in, WIDTH);
    return linear(n, &p->second, unary(n, "silu", h, 0, 2 * rows * WIDTH), rows, WIDTH, WIDTH);
}

static void pair_backward(struct net *n, const struct pair *p, int32_t dy)
{
    int32_t dh = linear_backward(n, &p->second, dy);
    dh = backward(n, 2 * p->first.rows * WIDTH,
                  &(struct net_op){BACKWARD("silu_dx"), .in = {dh, p->first.y}});
    linear_backward(n, &p->first, dh);
}

struct embedding {
    struct pair time, caption;
    struct linear time_block, patch;
};

static int32_t embed(struct net *n, struct model *m, struct embedding *e)
{
    const int64_t latent = n->tokens * 4 * 4 * 4;
    n->label = "embedders";
    int32_t t = pair_forward(n, &e->time, net_feed(n, 512), 1, 256);
    m->time6 = linear(n, &e->time_block, unary(n, "silu", t, 0, 2 * WIDTH), 1, WIDTH, 6 * WIDTH);
    m->text = pair_forward(n, &e->caption, net_feed(n, 2 * TEXT * CAPTION), TEXT, CAPTION);
    m->lens = net_feed(n, 4);
    m->rope = net_feed(n, FRAMES * WIDTH / HEADS * 4);
    m->noise = unary(n, "randn", 0, 0, latent);
    int32_t x = unary(n, "add", net_feed(n, latent), m->noise, latent);
    x = unary(n, "patchify", x, 0, latent / 2);
    x = linear(n, &e->patch, x, n->tokens, 16, WIDTH);
    return unary(n, "add", x, net_feed(n, n->tokens / FRAMES * WIDTH * 2), unit(n));
}

static void embed_backward(struct net *n, struct model *m, struct embedding *e, int32_t d)
{
    n->label = "embedders";
    linear_backward(n, &e->patch, d);
    pair_backward(n, &e->caption, m->d_text);
    pair_backward(n, &e->time, linear_backward(n, &e->time_block, m->d_time6));
}

/* The last layer, the loss and their gradients; returns that of x. */
static int32_t head(struct net *n, const struct model *m, int32_t x)
{
    struct norm norm;
    struct linear last;
    int32_t drows[2];
    int64_t bytes = n->tokens * 32 * 2;
    n->label = "final_layer";
    modulated_norm(n, &norm, x, m->time6);
    int32_t y = unary(n, "unpatchify", linear(n, &last, norm.u, n->tokens, WIDTH, 32), 0, bytes);
    int32_t loss = unary(n, "mse", y, m->noise, 4);
    int32_t d = backward(n, bytes, &(struct net_op){BACKWARD("mse_dx"), .in = {y, m->noise, loss}});
    d = linear_backward(n, &last, d);
    int32_t zero = backward(n, unit(n), &(struct net_op){BACKWARD("fill")});
    return norm_backward(n, &norm, m->time6, d, zero, drows);
}

struct graph *model_stdit_shape(const struct stdit_shape *s, const struct machine *machine)
{
    struct model m = {.n = net_new(), .n_blocks = 2 * s->depth};
    struct embedding e;
    char label[64];
    struct net *n = m.n;
    n->tokens = s->tokens;
    n->gradient = s->narrow ? 2 : 4;
    m.blocks = calloc((size_t)m.n_blocks, sizeof(*m.blocks));
    if (!m.blocks)
        exit(1);
    int32_t x = embed(n, &m, &e);
    n->label = label;
    for (int32_t i = 0; i < m.n_blocks; i++) {
        m.blocks[i].temporal = i % 2;
        snprintf(label, sizeof(label), "%s_blocks.%d", i % 2 ? "temporal" : "spatial", (int)i / 2);
        x = block_forward(n, &m, &m.blocks[i], x);
    }
    int32_t d = head(n, &m, x);
    n->label = label;
    for (int32_t i = m.n_blocks - 1; i >= 0; i--) {
        snprintf(label, sizeof(label), "%s_blocks.%d", i % 2 ? "temporal" : "spatial", (int)i / 2);
        d = block_backward(n, &m, &m.blocks[i], d);
    }
    embed_backward(n, &m, &e, d);
    n->label = "update";
    net_adamw(n, true, s->ema);
    free(m.blocks);
    return net_finish(n, machine);
}

struct graph *model_stdit(int32_t depth, bool ema, const struct machine *m)
{
    return model_stdit_shape(&(struct stdit_shape){depth, STDIT_TOKENS, ema, false}, m);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of experts: see experts.h.
 *
 * Each token has `chosen` rows, sorted by their expert, equal ones by the token, so the products of
 * an expert are one group of rows.  No expert has a capacity, and no row is dropped.
 */
#include "experts.h"
#include "ckpt_files.h"
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- parameters ---------------------------------------------------------------------------- */

enum { NAME = 256 };

/* Names of matrices of single experts, in the order of the rows of the parameter. */
static void split_in_files(ckpt *c, ckpt_tensor x, int64_t experts, const char *name, int n,
                           const char *const *part)
{
    const int64_t all = experts * n;
    char(*text)[NAME] = calloc((size_t)all, sizeof *text);
    const char **names = calloc((size_t)all, sizeof *names);

    for (int64_t i = 0; i < all && text && names; i++) {
        snprintf(text[i], NAME, "%s.experts.%lld.%s.weight", name, (long long)(i / n), part[i % n]);
        names[i] = text[i];
    }
    if (text && names && x.id)
        ckpt_param_file_parts(c, x, (int)all, names);
    free(text);
    free(names);
}

static ckpt_tensor make(const struct ckpt_nn *nn, const char *name, const char *part, int ndim,
                        const int64_t *shape, struct ckpt_init init)
{
    char whole[NAME];

    snprintf(whole, sizeof whole, "%s.experts.%s", name, part);
    return ckpt_param(nn->context, whole, nn->dtype, ndim, shape, init, !nn->frozen);
}

struct lm_experts lm_experts_make(const struct ckpt_nn *nn, const struct lm_experts_config *g,
                                  const struct lm_experts_names *f, int64_t width,
                                  const char *layer)
{
    const char *const two[] = {f->gate, f->up}, *const one[] = {f->down};
    const int64_t up[] = {g->count, 2 * g->inner, width}, down[] = {g->count, width, g->inner};
    const int turned[] = {0, 2, 1};
    struct lm_experts m = {.gate_up_bias = CKPT_NONE};
    char name[NAME / 2];

    snprintf(name, sizeof name, "%s.%s", layer, f->block);
    m.router = ckpt_nn_linear(nn, width, g->count, g->bias, "%s.%s", name, f->router);
    m.gate_up = make(nn, name, "gate_up_proj", 3, up, *nn->weight);
    if (g->bias)
        m.gate_up_bias = make(nn, name, "gate_up_proj_bias", 2, up, CKPT_ZEROS);
    m.down = make(nn, name, "down_proj", 3, down, *nn->weight);
    if (g->bias)
        m.down_bias = make(nn, name, "down_proj_bias", 2, down, CKPT_ZEROS);
    if (f->gate) {
        split_in_files(nn->context, m.gate_up, g->count, name, 2, two);
        split_in_files(nn->context, m.down, g->count, name, 1, one);
    } else if (m.gate_up.id && m.down.id) {
        ckpt_param_file_axes(nn->context, m.gate_up, 3, NULL, turned);
        ckpt_param_file_axes(nn->context, m.down, 3, NULL, turned);
    }
    return m;
}

/* ---- routes -------------------------------------------------------------------------------- */

/* The shares [n, chosen] of the chosen experts, fp32. */
static ckpt_tensor choose(const struct lm_experts *m, const struct lm_experts_config *g,
                          ckpt_tape *t, ckpt_tensor x, struct lm_routes *routes)
{
    ckpt_full_precision(t, true);
    ckpt_tensor score = ckpt_cast(t, ckpt_nn_apply_linear(t, &m->router, x), CKPT_F32);
    ckpt_full_precision(t, false);
    routes->probability = ckpt_softmax(t, score, 1);
    if (g->late_softmax)
        return ckpt_softmax(t, ckpt_topk(t, score, g->chosen, &routes->chosen), 1);
    ckpt_tensor share = ckpt_topk(t, routes->probability, g->chosen, &routes->chosen);
    return g->normalized ? ckpt_div(t, share, ckpt_sum(t, share, 1u << 1)) : share;
}

/* The rows of all choices, sorted by expert. */
struct rows {
    int64_t n;
    ckpt_tensor order;  /* i32 [n]: the choice of each row: its token times `chosen`, plus which */
    ckpt_tensor token;  /* i32 [n] */
    ckpt_tensor expert; /* i32 [n] */
    ckpt_tensor ends;   /* i32 [count]: of the rows of each expert */
};

static struct rows sort_rows(const struct lm_experts_config *g, ckpt_tape *t, int64_t tokens,
                             ckpt_tensor chosen)
{
    struct rows r = {.n = tokens * g->chosen};
    ckpt_tensor expert = ckpt_reshape(t, chosen, 1, &r.n);
    ckpt_tensor token = ckpt_iota(t, CKPT_I32, 2, (int64_t[]){tokens, g->chosen}, 0);
    ckpt_tensor hot = ckpt_one_hot(t, expert, g->count, CKPT_F32);

    r.order = ckpt_argsort(t, ckpt_cast(t, expert, CKPT_F32), false);
    r.token = ckpt_index_select(t, ckpt_reshape(t, token, 1, &r.n), 0, r.order);
    r.expert = ckpt_index_select(t, expert, 0, r.order);
    hot = ckpt_reshape(t, ckpt_sum(t, hot, 1u << 0), 1, &g->count);
    r.ends = ckpt_cast(t, ckpt_cumsum(t, hot, 0), CKPT_I32);
    return r;
}

/* ---- experts ------------------------------------------------------------------------------- */

static ckpt_tensor product(ckpt_tape *t, const struct rows *r, ckpt_tensor x, ckpt_tensor w,
                           ckpt_tensor bias)
{
    x = ckpt_grouped_matmul(t, x, w, r->ends, true);
    return bias.id ? ckpt_add(t, x, ckpt_index_select(t, bias, 0, r->expert)) : x;
}

/* Gate and up of x [n, 2 inner], whose axis `axis` of [n, 2, inner] or [n, inner, 2] has both. */
static ckpt_tensor activate(const struct lm_experts_config *g, ckpt_tape *t, ckpt_tensor x,
                            int64_t n)
{
    const int axis = g->clamped ? 2 : 1;
    const int64_t shape[] = {n, axis == 1 ? 2 : g->inner, axis == 1 ? g->inner : 2};
    ckpt_tensor part[2];

    ckpt_split(t, ckpt_reshape(t, x, 3, shape), axis, 2, part);
    ckpt_tensor gate = ckpt_squeeze(t, part[0], axis), up = ckpt_squeeze(t, part[1], axis);
    if (!g->clamped)
        return ckpt_mul(t, ckpt_silu(t, gate), up);
    gate = ckpt_clamp(t, gate, -FLT_MAX, g->limit);
    up = ckpt_affine(t, ckpt_clamp(t, up, -g->limit, g->limit), 1, 1);
    return ckpt_mul(t, up, ckpt_mul(t, gate, ckpt_sigmoid(t, ckpt_affine(t, gate, g->alpha, 0))));
}

ckpt_tensor lm_experts_apply(const struct lm_experts *m, const struct lm_experts_config *g,
                             ckpt_tape *t, ckpt_tensor x, struct lm_routes *routes)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t width = d.ndim > 0 ? d.shape[d.ndim - 1] : 1;
    int64_t tokens = 1;

    for (int i = 0; i < d.ndim - 1; i++)
        tokens *= d.shape[i];
    x = ckpt_reshape(t, x, 2, (int64_t[]){tokens, width});
    ckpt_tensor share = choose(m, g, t, x, routes);
    const struct rows r = sort_rows(g, t, tokens, routes->chosen);
    ckpt_tensor y = ckpt_index_select(t, x, 0, r.token);
    y = activate(g, t, product(t, &r, y, m->gate_up, m->gate_up_bias), r.n);
    y = product(t, &r, y, m->down, m->down_bias);
    share = ckpt_index_select(t, ckpt_reshape(t, share, 1, &r.n), 0, r.order);
    y = ckpt_mul(t, y, ckpt_unsqueeze(t, ckpt_cast(t, share, d.dtype), 1));
    y = ckpt_index_add(t, ckpt_full(t, 0, d.dtype, 2, (int64_t[]){tokens, width}), 0, r.token, y);
    return ckpt_reshape(t, y, d.ndim, d.shape);
}

/* ---- balance ------------------------------------------------------------------------------- */

static ckpt_tensor plus(ckpt_tape *t, ckpt_tensor sum, ckpt_tensor x)
{
    return sum.id ? ckpt_add(t, sum, x) : x;
}

ckpt_tensor lm_experts_balance(const struct lm_experts_config *g, ckpt_tape *t, int64_t n,
                               const struct lm_routes *routes)
{
    ckpt_tensor part = CKPT_NONE, chance = CKPT_NONE;
    const float each = 1 / (float)n;

    ckpt_couple_samples(t, "the balance of experts is that of a micro-batch");
    for (int64_t i = 0; i < n; i++) {
        ckpt_tensor hot = ckpt_one_hot(t, routes[i].chosen, g->count, CKPT_F32);
        hot = ckpt_squeeze(t, ckpt_sum(t, hot, 1u << 1), 1); /* [tokens, count] */
        part = plus(t, part, ckpt_mean(t, hot, 1u << 0));
        chance = plus(t, chance, ckpt_mean(t, routes[i].probability, 1u << 0));
    }
    ckpt_tensor both = ckpt_mul(t, ckpt_affine(t, part, each, 0), ckpt_affine(t, chance, each, 0));
    both = ckpt_affine(t, ckpt_sum(t, both, CKPT_ALL_AXES), (float)g->count, 0);
    return ckpt_reshape(t, both, 0, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops of transformers on random shapes: norms, attention, embeddings, losses.  As
 * test_gradients.
 */
#include "harness.h"

#include <math.h>
#include <string.h>

/* ---- norms and modulation ------------------------------------------------------------------- */

static void draw_norm(struct op_case *c, struct rng *r, int trial, int *ndim, int64_t *shape)
{
    *ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, *ndim, 4, shape);
    shape[*ndim - 1] = rng_range(r, 3, 11);
    if (trial >= TRIAL_LARGE) /* for a warp; for a block, in pieces of 16 bytes */
        shape[*ndim - 1] =
            trial > TRIAL_LARGE ? rng_range(r, 600, 1200) : 8 * rng_range(r, 161, 450);
    c->attr.eps = (float)(trial % 2 ? 1e-6 : 1e-5);
    struct operand *o = case_add(c, r, ROLE_PARAM, *ndim, shape);
    for (int64_t i = 0; trial % 3 == 0 && i < o->value.n; i++)
        o->value.x[i] += 3;
}

/* Two channels would become +-1 whatever their values; one becomes 0, with gradient 0. */
static void draw_layer_norm(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim;
    if (trial == TRIAL_TINY)
        case_add(c, r, ROLE_PARAM, 2, (int64_t[]){3, 1});
    else
        draw_norm(c, r, trial, &ndim, shape);
    c->attr.eps = (float)1e-6;
}

static ckpt_tensor record_layer_norm(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_layer_norm(t, in[0], CKPT_NONE, CKPT_NONE, (float)c->attr.eps);
}

/* Rows of single heads, with weight and bias: some are whole pieces of 16 bytes, some not. */
static void draw_layer_norm_heads(struct op_case *c, struct rng *r, int trial)
{
    static const int64_t large[][4] = {{2, 31, 48, 64}, {1, 13, 7, 72}};
    int64_t shape[4] = {1, rng_range(r, 1, 3), rng_range(r, 1, 4),
                        trial % 2 ? 8 * rng_range(r, 1, 3) : rng_range(r, 3, 11)};
    if (trial >= TRIAL_LARGE)
        memcpy(shape, large[trial - TRIAL_LARGE], sizeof shape);
    c->attr.eps = (float)1e-6;
    struct operand *x = case_add(c, r, ROLE_PARAM, 4, shape);
    for (int64_t i = 0; trial % 3 == 0 && i < x->value.n; i++)
        x->value.x[i] += 3;
    case_add(c, r, ROLE_PARAM, 1, &shape[3]);
    case_add(c, r, ROLE_PARAM, 1, &shape[3]);
}

static ckpt_tensor record_layer_norm_heads(ckpt_tape *t, const ckpt_tensor *in,
                                           const struct op_case *c)
{
    return ckpt_layer_norm(t, in[0], in[1], in[2], (float)c->attr.eps);
}

static void ref_layer_norm_heads(const struct array *in, struct array *out, const struct op_attr *a)
{
    const int64_t width = in[0].shape[in[0].ndim - 1];
    ref_layer_norm(in, out, a);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = out->x[i] * in[1].x[i % width] + in[2].x[i % width];
}

static void draw_rms_norm(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim;
    draw_norm(c, r, trial, &ndim, shape);
    case_add(c, r, ROLE_PARAM, 1, &shape[ndim - 1]);
}

static ckpt_tensor record_rms_norm(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_rms_norm(t, in[0], in[1], (float)c->attr.eps);
}

/* The gradient of the sum's other operand is added by the kernel of the norm. */
static ckpt_tensor record_rms_residual(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_add(t, in[0], record_rms_norm(t, in, c));
}

static void ref_rms_residual(const struct array *in, struct array *out, const struct op_attr *a)
{
    ref_rms_norm(in, out, a);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] += in[0].x[i];
}

/* The shape of a shift, scale or gate: each axis but the last may be 1. */
static void draw_condition(struct rng *r, int ndim, const int64_t *shape, int64_t *own)
{
    for (int i = 0; i < ndim; i++)
        own[i] = i + 1 < ndim && rng_range(r, 0, 1) ? 1 : shape[i];
}

static void draw_modulate(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS], own[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 5, shape);
    if (trial == TRIAL_LARGE)
        shape[ndim - 1] = 2501;
    case_add(c, r, ROLE_PARAM, ndim, shape);
    draw_condition(r, ndim, shape, own);
    case_add(c, r, ROLE_PARAM, ndim, own);
    if (trial % 4 == 3) /* shift and scale need not be shaped alike */
        draw_condition(r, ndim, shape, own);
    case_add(c, r, ROLE_PARAM, ndim, own);
}

static ckpt_tensor record_modulate(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_modulate(t, in[0], in[1], in[2]);
}

/* From the large trials on: rows of the real width, which kernels keep in registers. */
static void draw_layer_norm_modulate(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS], own[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 2, 4);
    draw_shape(r, trial, ndim, 4, shape);
    shape[ndim - 1] = trial == TRIAL_TINY ? 3 : trial % 2 ? 8 * rng_range(r, 1, 3) : 11;
    if (trial >= TRIAL_LARGE)
        memcpy(shape, (int64_t[]){2, 1, 1 + 60 * (trial % 2), trial % 2 ? 1152 : 2503},
               4 * sizeof *shape);
    ndim = trial >= TRIAL_LARGE ? 4 : ndim;
    struct operand *x = case_add(c, r, ROLE_PARAM, ndim, shape);
    for (int64_t i = 0; trial % 3 == 0 && i < x->value.n; i++)
        x->value.x[i] += 3;
    draw_condition(r, ndim, shape, own);
    case_add(c, r, ROLE_PARAM, ndim, own);
    if (trial % 4 == 3)
        draw_condition(r, ndim, shape, own);
    case_add(c, r, ROLE_PARAM, ndim, own);
    c->attr.eps = (float)1e-6;
}

static ckpt_tensor record_layer_norm_modulate(ckpt_tape *t, const ckpt_tensor *in,
                                              const struct op_case *c)
{
    return ckpt_layer_norm_modulate(t, in[0], in[1], in[2], (float)c->attr.eps);
}

static void draw_gated_residual(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS], own[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 2, 4);
    draw_shape(r, trial, ndim, 5, shape);
    if (trial == TRIAL_LARGE)
        shape[ndim - 1] = 2501;
    draw_condition(r, ndim, shape, own);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_PARAM, ndim, own);
    case_add(c, r, ROLE_PARAM, ndim, shape);
}

static ckpt_tensor record_gated_residual(ckpt_tape *t, const ckpt_tensor *in,
                                         const struct op_case *c)
{
    (void)c;
    return ckpt_gated_residual(t, in[0], in[1], in[2]);
}

/* ---- attention ------------------------------------------------------------------------------ */

/* A table for x [.., D] along attr.axis. */
static void draw_table(struct op_case *c, struct rng *r, int ndim, const int64_t *shape)
{
    c->attr.axis = (int)rng_range(r, 0, ndim - 2);
    int64_t positions = shape[c->attr.axis], pairs = shape[ndim - 1] / 2;
    struct operand *table = case_add(c, r, ROLE_FIXED, 3, (int64_t[]){positions, pairs, 2});
    for (int64_t i = 0; i < table->value.n; i += 2) {
        double angle = 3 * rng_normal(r);
        table->value.x[i] = cos(angle);
        table->value.x[i + 1] = sin(angle);
    }
}

static void draw_rope(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 2, 5);
    draw_shape(r, trial, ndim, 4, shape);
    /* every second row consists of pieces of 16 bytes, halves, too */
    shape[ndim - 1] = trial == TRIAL_LARGE ? 150 : trial % 2 ? 32 : 2 * rng_range(r, 1, 5);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    draw_table(c, r, ndim, shape);
}

static ckpt_tensor record_rope(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_rope(t, in[0], in[1], c->attr.axis);
}

/* Each row as [D/2, 2] with its axes exchanged, or as [2, D/2]. */
static ckpt_tensor exchange(ckpt_tape *t, ckpt_tensor x, bool pairs)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const int n = d.ndim;
    int64_t shape[CKPT_MAX_DIMS + 1];
    memcpy(shape, d.shape, sizeof d.shape);
    shape[n - 1] = pairs ? d.shape[n - 1] / 2 : 2;
    shape[n] = d.shape[n - 1] / shape[n - 1];
    x = ckpt_transpose(t, ckpt_reshape(t, x, n + 1, shape), n - 1, n);
    return ckpt_reshape(t, x, n, d.shape);
}

/* Pairs in halves are turned as adjacent ones are. */
static ckpt_tensor record_rope_halves(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor y = ckpt_rope_halves(t, exchange(t, in[0], true), in[1], c->attr.axis);
    return exchange(t, y, false);
}

/* From the large trials on: the heads of the real model, or rows for a warp each. */
static void draw_rms_norm_rope(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 2, 5);
    draw_shape(r, trial, ndim, 4, shape);
    shape[ndim - 1] = trial % 2 ? 8 * rng_range(r, 1, 3) : 2 * rng_range(r, 2, 6);
    if (trial >= TRIAL_LARGE)
        memcpy(shape, (int64_t[]){3, 5, 21, trial % 2 ? 72 : 302},
               (size_t)(ndim = 4) * sizeof *shape);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_PARAM, 1, &shape[ndim - 1]);
    draw_table(c, r, ndim, shape);
    c->attr.eps = (float)1e-5;
}

static ckpt_tensor record_rms_norm_rope(ckpt_tape *t, const ckpt_tensor *in,
                                        const struct op_case *c)
{
    return ckpt_rms_norm_rope(t, in[0], in[1], (float)c->attr.eps, in[2], c->attr.axis);
}

static void draw_attention(struct op_case *c, struct rng *r, int trial)
{
    int64_t q[CKPT_MAX_DIMS], k[CKPT_MAX_DIMS];
    int ndim = trial < TRIAL_LARGE ? draw_rank(r, 3, 5) : 4;
    draw_shape(r, trial, ndim, 4, q);
    if (trial == TRIAL_LARGE) /* many keys */
        memcpy(q, (int64_t[]){2, 219, 2, 72}, 4 * sizeof(*q));
    else if (trial > TRIAL_LARGE) /* many short sequences, the heads of the real model */
        memcpy(q, (int64_t[]){50, 7, 2, 72}, 4 * sizeof(*q));
    else if (trial == 9) /* a very wide head */
        q[ndim - 1] = 136;
    else if (trial % 3 == 2)
        q[ndim - 1] = rng_range(r, 5, 12);
    memcpy(k, q, sizeof(k));
    k[ndim - 3] = trial == TRIAL_LARGE ? 277 : trial == TRIAL_TINY ? 1 : rng_dim(r, 6);
    if (trial == 4) { /* not long, and not short */
        q[ndim - 3] = rng_range(r, 17, 32);
        k[ndim - 3] = rng_range(r, 17, 32);
    }
    case_add(c, r, ROLE_PARAM, ndim, q)->keep_last = true;
    case_add(c, r, ROLE_PARAM, ndim, k)->keep_last = true;
    case_add(c, r, ROLE_PARAM, ndim, k)->keep_last = true;
    c->attr.scale = (float)(1 / sqrt((double)q[ndim - 1]));
}

static ckpt_tensor record_attention(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct ckpt_attention_spec scaled = CKPT_ATTENTION_INIT;
    scaled.scale = (float)c->attr.scale;
    return ckpt_attention(t, in[0], in[1], in[2], CKPT_NONE, &scaled);
}

/* As Gemma 2 has it; the cap is of the size of the scores. */
static void draw_capped_attention(struct op_case *c, struct rng *r, int trial)
{
    draw_attention(c, r, trial);
    c->attr.a = 1.5;
}

static ckpt_tensor record_capped_attention(ckpt_tape *t, const ckpt_tensor *in,
                                           const struct op_case *c)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    spec.scale = (float)c->attr.scale;
    spec.cap = (float)c->attr.a;
    return ckpt_attention(t, in[0], in[1], in[2], CKPT_NONE, &spec);
}

/* Sequences that are neither short nor long, in heads of the real model from the large trials on.
 */
static void draw_middling_attention(struct op_case *c, struct rng *r, int trial)
{
    const bool large = trial >= TRIAL_LARGE;
    int64_t q[] = {large ? 2 : 1, rng_range(r, 33, large ? 128 : 36), large ? 2 : 1,
                   large ? 72 : 2};
    int64_t k[] = {q[0], rng_range(r, large ? 65 : 33, large ? 128 : 36), q[2], q[3]};
    case_add(c, r, ROLE_PARAM, 4, q)->keep_last = true;
    case_add(c, r, ROLE_PARAM, 4, k)->keep_last = true;
    case_add(c, r, ROLE_PARAM, 4, k)->keep_last = true;
    c->attr.scale = (float)(1 / sqrt((double)q[3]));
}

/* Heads too wide for attention kernels: from the large trials on, the VAE's head. */
static void draw_wide_attention(struct op_case *c, struct rng *r, int trial)
{
    const bool large = trial >= TRIAL_LARGE;
    const int64_t most = large ? 40 : 3, least = large ? 33 : 1;
    int64_t q[] = {rng_range(r, 1, 2), rng_range(r, least, most), trial % 4 ? 1 : 2,
                   large ? 512 : 8 * rng_range(r, 17, 18)};
    int64_t k[] = {q[0], rng_range(r, least, most), q[2], q[3]};
    case_add(c, r, ROLE_PARAM, 4, q)->keep_last = true;
    case_add(c, r, ROLE_PARAM, 4, k)->keep_last = true;
    case_add(c, r, ROLE_PARAM, 4, k)->keep_last = true;
    c->attr.scale = (float)(1 / sqrt((double)q[3]));
}

/* The other operands for queries [B, L, H, D]: the text of each sample, and `spare` rows of no
 * sample. */
static void add_text(struct op_case *c, struct rng *r, const int64_t q[4], const int64_t *lens,
                     int64_t spare)
{
    int64_t packed[] = {spare, q[2], q[3]};
    for (int64_t b = 0; b < q[0]; b++)
        packed[0] += lens[b];
    packed[0] += packed[0] == 0;
    case_add(c, r, ROLE_PARAM, 3, packed)->keep_last = true;
    case_add(c, r, ROLE_PARAM, 3, packed)->keep_last = true;
    struct operand *o = case_add(c, r, ROLE_INDEX, 1, q);
    for (int64_t b = 0; b < q[0]; b++)
        o->value.x[b] = (double)lens[b];
    c->attr.scale = (float)(1 / sqrt((double)q[3]));
}

/* Some samples have no text, and some rows belong to no sample. */
static void draw_cross_attention(struct op_case *c, struct rng *r, int trial)
{
    int64_t q[] = {rng_dim(r, 4), rng_dim(r, 5), rng_dim(r, 3), rng_dim(r, 7)}, lens[16];
    int64_t text = trial < TRIAL_LARGE ? 5 : 150, least = trial > TRIAL_LARGE ? 100 : 0;
    if (trial == TRIAL_LARGE)
        q[1] = 300;
    else if (trial > TRIAL_LARGE) /* many queries, the heads of the real model */
        memcpy(q, (int64_t[]){1, 520, 2, 72}, sizeof(q));
    case_add(c, r, ROLE_PARAM, 4, q)->keep_last = true;
    for (int64_t b = 0; b < q[0]; b++)
        lens[b] = trial == TRIAL_TINY ? 1 : rng_range(r, least, text);
    add_text(c, r, q, lens, trial == TRIAL_TINY ? 0 : rng_range(r, 0, 3));
}

/* In heads of the real model: more keys than fit in a multiprocessor, no keys, and as many as fit.
 * */
static void draw_many_keys(struct op_case *c, struct rng *r, int trial)
{
    if (trial < TRIAL_LARGE) {
        draw_cross_attention(c, r, trial);
        return;
    }
    const int64_t q[] = {3, rng_range(r, 65, 140), 1, 72};
    const int64_t lens[] = {rng_range(r, 321, 400), 0, 320};
    case_add(c, r, ROLE_PARAM, 4, q)->keep_last = true;
    add_text(c, r, q, lens, rng_range(r, 0, 3));
}

static ckpt_tensor record_cross_attention(ckpt_tape *t, const ckpt_tensor *in,
                                          const struct op_case *c)
{
    return ckpt_cross_attention(t, in[0], in[1], in[2], in[3], (float)c->attr.scale);
}

static void draw_pack(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[3];
    draw_shape(r, trial, 3, 6, shape);
    case_add(c, r, ROLE_PARAM, 3, shape);
    draw_mask(case_add(c, r, ROLE_INDEX, 2, shape), r);
}

static ckpt_tensor record_pack(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor lens;
    (void)c;
    return ckpt_pack(t, in[0], in[1], &lens);
}

/* ---- embeddings and patches ----------------------------------------------------------------- */

static void draw_timestep_embedding(struct op_case *c, struct rng *r, int trial)
{
    int64_t B = trial == TRIAL_TINY ? 1 : rng_dim(r, 5);
    struct operand *o = case_add(c, r, ROLE_FIXED, 1, &B);
    for (int64_t i = 0; i < B; i++)
        o->value.x[i] = trial == 1 ? 0 : (double)rng_range(r, 0, 20000) / 20;
    c->attr.size[0] = trial == TRIAL_TINY    ? 2
                      : trial >= TRIAL_LARGE ? 256
                                             : 2 * rng_range(r, 1, 20);
    c->attr.a = 10000;
}

static ckpt_tensor record_timestep_embedding(ckpt_tape *t, const ckpt_tensor *in,
                                             const struct op_case *c)
{
    return ckpt_timestep_embedding(t, in[0], c->attr.size[0], (float)c->attr.a, c->dtype);
}

static void draw_patch(struct op_case *c, struct rng *r, int trial)
{
    for (int i = 0; i < 3; i++)
        c->attr.size[i] = trial == TRIAL_TINY ? 1 : rng_range(r, 1, 3);
}

static void draw_patchify(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[5];
    draw_patch(c, r, trial);
    draw_shape(r, trial, 5, 5, shape);
    case_add(c, r, ROLE_PARAM, 5, shape);
}

static ckpt_tensor record_patchify(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    const int64_t *s = c->attr.size;
    return ckpt_patchify(t, in[0], s[0], s[1], s[2]);
}

static int64_t ceil_div(int64_t n, int64_t to)
{
    return (n + to - 1) / to;
}

static void draw_unpatchify(struct op_case *c, struct rng *r, int trial)
{
    int64_t *s = c->attr.size, B = rng_dim(r, 3);
    draw_patch(c, r, trial);
    draw_shape(r, trial, 4, 5, s + 3);
    int64_t grid = ceil_div(s[5], s[1]) * ceil_div(s[6], s[2]);
    int64_t tokens[] = {B, ceil_div(s[4], s[0]), grid, s[0] * s[1] * s[2] * s[3]};
    case_add(c, r, ROLE_PARAM, 4, tokens);
}

static ckpt_tensor record_unpatchify(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    const int64_t *s = c->attr.size;
    return ckpt_unpatchify(t, in[0], s[3], s[4], s[5], s[6], s[0], s[1], s[2]);
}

/* ---- losses -----------------------------------------------------------------------------------
 */

/* The target may have another dtype than pred; a sample may have no frame that counts. */
static void draw_mse(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 3, 5);
    draw_shape(r, trial, ndim, 4, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape)->keep_f32 = trial % 2;
    if (trial % 4 == 1)
        case_add_absent(c);
    else
        draw_mask(case_add(c, r, ROLE_INDEX, 2, (int64_t[]){shape[0], shape[2]}), r);
}

static ckpt_tensor record_mse(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_mse(t, in[0], in[1], in[2]);
}

static void draw_cross_entropy(struct op_case *c, struct rng *r, int trial)
{
    int64_t B = trial == TRIAL_TINY ? 1 : rng_dim(r, 6),
            V = trial == TRIAL_LARGE ? 1003 : rng_dim(r, 9);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){B, V});
    struct operand *label = case_add(c, r, ROLE_INDEX, 1, &B);
    for (int64_t b = 0; b < B; b++)
        label->value.x[b] = (double)rng_range(r, 0, V - 1);
}

static ckpt_tensor record_cross_entropy(ckpt_tape *t, const ckpt_tensor *in,
                                        const struct op_case *c)
{
    (void)c;
    return ckpt_cross_entropy(t, in[0], in[1], NULL);
}

static void draw_capped_cross_entropy(struct op_case *c, struct rng *r, int trial)
{
    draw_cross_entropy(c, r, trial);
    c->attr.a = 1.5;
}

static ckpt_tensor record_capped_cross_entropy(ckpt_tape *t, const ckpt_tensor *in,
                                               const struct op_case *c)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    spec.cap = (float)c->attr.a;
    return ckpt_cross_entropy(t, in[0], in[1], &spec);
}

static const struct op_row rows[] = {
    {"layer_norm", draw_layer_norm, record_layer_norm, ref_layer_norm},
    {"layer_norm (heads)", draw_layer_norm_heads, record_layer_norm_heads, ref_layer_norm_heads},
    {"rms_norm", draw_rms_norm, record_rms_norm, ref_rms_norm},
    {"rms_norm (residual)", draw_rms_norm, record_rms_residual, ref_rms_residual},
    {"modulate", draw_modulate, record_modulate, ref_modulate},
    {"layer_norm_modulate", draw_layer_norm_modulate, record_layer_norm_modulate,
     ref_layer_norm_modulate},
    {"gated_residual", draw_gated_residual, record_gated_residual, ref_gated_residual},
    {"rope", draw_rope, record_rope, ref_rope},
    {"rope of halves", draw_rope, record_rope_halves, ref_rope},
    {"rms_norm_rope", draw_rms_norm_rope, record_rms_norm_rope, ref_rms_norm_rope},
    {"attention", draw_attention, record_attention, ref_attention},
    {"attention (middling)", draw_middling_attention, record_attention, ref_attention},
    {"attention (capped)", draw_capped_attention, record_capped_attention, ref_attention},
    {"attention (wide)", draw_wide_attention, record_attention, ref_attention},
    {"cross_attention", draw_cross_attention, record_cross_attention, ref_cross_attention},
    {"cross_attention (many keys)", draw_many_keys, record_cross_attention, ref_cross_attention},
    {"pack", draw_pack, record_pack, ref_pack},
    {"timestep_embedding", draw_timestep_embedding, record_timestep_embedding,
     ref_timestep_embedding},
    {"patchify", draw_patchify, record_patchify, ref_patchify},
    {"unpatchify", draw_unpatchify, record_unpatchify, ref_unpatchify},
    {"mse", draw_mse, record_mse, ref_mse},
    {"cross_entropy", draw_cross_entropy, record_cross_entropy, ref_cross_entropy},
    {"cross_entropy (capped)", draw_capped_cross_entropy, record_capped_cross_entropy,
     ref_cross_entropy},
    {NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block.  Spatial and temporal blocks differ in the axis of their self-attention and in the
 * rotary embedding; neither copies tensors to reorder them.
 *
 *     x += gate_a SelfAttn(LN(x) (1 + scale_a) + shift_a)
 *     x += CrossAttn(x, y)
 *     x += gate_m MLP(LN(x) (1 + scale_m) + shift_m)
 */
#include <math.h>
#include "ckpt_dist.h"
#include "model.h"

enum { SHIFT_A, SCALE_A, GATE_A, SHIFT_M, SCALE_M, GATE_M };

/*
 * The six modulation rows of this block.  Without a frame mask [B, 1, 1, C] each; with one [B, T,
 * 1, C], selected per frame: selecting rows gives the same values as selecting between the two
 * modulated tensors, element by element.
 */
static void modulation(const struct stdit *m, const struct stdit_block *b, ckpt_tape *t,
                       const struct stdit_condition *c, ckpt_tensor row[6])
{
    int64_t batch = ckpt_desc_of(t, c->t6).shape[0];
    int64_t width = m->config.hidden, shape[] = {batch, 1, 6, width};
    ckpt_tensor table = ckpt_reshape(t, b->scale_shift_table, 3, (int64_t[]){1, 6, width});
    ckpt_tensor rows = ckpt_reshape(t, ckpt_add(t, table, c->t6), 4, shape);

    if (c->frame_mask.id) {
        ckpt_tensor rows0 = ckpt_reshape(t, ckpt_add(t, table, c->t06), 4, shape);
        rows = ckpt_where(t, c->frame_mask, rows, rows0);
    }
    ckpt_split(t, rows, 2, 6, row);
}

/*
 * A projection [..., n C] as n views [..., H, D]: queries, keys, values.  It is split along a
 * separate axis, after any permutation, so the gradients of the parts are written directly into the
 * gradient of the whole, without a copy.
 */
static void heads(const struct stdit *m, ckpt_tape *t, ckpt_tensor x, int n, const int *order,
                  ckpt_tensor *part)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int last = d.ndim - 1;

    if (last < 0)
        return;
    d.shape[last] = n;
    d.shape[last + 1] = m->config.heads;
    d.shape[last + 2] = m->config.hidden / m->config.heads;
    x = ckpt_reshape(t, x, last + 3, d.shape);
    if (order)
        x = ckpt_permute(t, x, order);
    ckpt_split(t, x, last, n, part);
    d = ckpt_desc_of(t, part[0]);
    for (int i = 0; i < 2; i++)
        d.shape[last + i] = d.shape[last + i + 1];
    for (int i = 0; i < n; i++)
        part[i] = ckpt_reshape(t, part[i], last + 2, d.shape);
}

static float attention_scale(const struct stdit *m)
{
    return 1.f / sqrtf((float)(m->config.hidden / m->config.heads));
}

/* u [B, T, S, C].  Temporal attention sees [B, S, T, H, D] through permuted views.  Ranks that
 * split the places of a frame have all of some frames in spatial attention, if the frames divide;
 * else some heads of all. */
static ckpt_tensor self_attention(const struct stdit *m, const struct stdit_block *b, ckpt_tape *t,
                                  const struct stdit_condition *c, ckpt_tensor u, bool temporal)
{
    static const int swap[] = {0, 2, 1, 3, 4, 5};
    ckpt_tensor qkv[3] = {CKPT_NONE};

    if (!temporal)
        u = ckpt_sequence_along(t, u, 1);
    struct ckpt_desc d = ckpt_desc_of(t, u);
    heads(m, t, ckpt_nn_apply_linear(t, &b->qkv, u), 3, temporal ? swap : NULL, qkv);
    ckpt_tensor q, k, a;
    if (temporal) {
        q = ckpt_rms_norm_rope(t, qkv[0], b->q_norm, 1e-6f, c->rope, 2);
        k = ckpt_rms_norm_rope(t, qkv[1], b->k_norm, 1e-6f, c->rope, 2);
    } else {
        q = ckpt_rms_norm(t, qkv[0], b->q_norm, 1e-6f);
        k = ckpt_rms_norm(t, qkv[1], b->k_norm, 1e-6f);
    }
    a = ckpt_attention(t, q, k, qkv[2], CKPT_NONE, NULL);
    if (temporal)
        a = ckpt_permute(t, a, swap);
    a = ckpt_nn_apply_linear(t, &b->proj, ckpt_reshape(t, a, d.ndim, d.shape));
    return ckpt_sequence_along(t, a, 2);
}

/* Cross-attention of x [B, T, S, C] to the packed text; queries of a sample see its own tokens
 * only. */
/* x plus its cross-attention to the text. */
static ckpt_tensor add_cross_attention(const struct stdit *m, const struct stdit_block *b,
                                       ckpt_tape *t, const struct stdit_condition *c, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t n = m->config.heads;
    int64_t shape[] = {d.shape[0], d.shape[1], d.shape[2], n, m->config.hidden / n};
    ckpt_tensor kv[2] = {CKPT_NONE};

    ckpt_tensor q = ckpt_reshape(t, ckpt_nn_apply_linear(t, &b->cross_q, x), 5, shape);
    heads(m, t, ckpt_nn_apply_linear(t, &b->cross_kv, c->y), 2, NULL, kv);
    ckpt_tensor a = ckpt_cross_attention(t, q, kv[0], kv[1], c->lens, attention_scale(m));
    return ckpt_linear_add(t, ckpt_reshape(t, a, d.ndim, d.shape), b->cross_proj.weight,
                           b->cross_proj.bias, x);
}

ckpt_tensor stdit_block_forward(const struct stdit *m, const struct stdit_block *b, ckpt_tape *t,
                                const struct stdit_condition *c, ckpt_tensor x, bool temporal)
{
    ckpt_tensor row[6], u, a;

    modulation(m, b, t, c, row);
    u = ckpt_layer_norm_modulate(t, x, row[SHIFT_A], row[SCALE_A], 1e-6f);
    a = self_attention(m, b, t, c, u, temporal);
    x = ckpt_gated_residual(t, x, row[GATE_A], a);
    x = add_cross_attention(m, b, t, c, x);
    u = ckpt_layer_norm_modulate(t, x, row[SHIFT_M], row[SCALE_M], 1e-6f);
    a = ckpt_nn_apply_linear(t, &b->fc2, ckpt_gelu_tanh(t, ckpt_nn_apply_linear(t, &b->fc1, u)));
    return ckpt_gated_residual(t, x, row[GATE_M], a);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One transformer block.  Text and video are two tensors that share all weights.  Products that
 * read both see them side by side, text first, without a copy.  Where ranks split the video
 * (--sequence) each has the whole text.
 *
 *   x += gate_a Attn(LN1(x) (1 + scale_a) + shift_a)
 *   x += gate_m MLP(LN2(x) (1 + scale_m) + shift_m)
 */
#include "model.h"

/* Shift, scale and gate of the video, then of the text. */
enum { SHIFT, SCALE, GATE, TEXT, PARTS = 2 * TEXT };

void cogvideo_rows(const struct cogvideo *m, ckpt_tape *t, const struct ckpt_nn_linear *linear,
                   ckpt_tensor time, int n, ckpt_tensor *row)
{
    int64_t batch = ckpt_desc_of(t, time).shape[0];
    ckpt_tensor all = ckpt_nn_apply_linear(t, linear, time);

    ckpt_split(t, ckpt_reshape(t, all, 4, (int64_t[]){batch, 1, n, m->config.width}), 2, n, row);
    for (int i = 0; i < n; i++)
        row[i] = ckpt_reshape(t, row[i], 3, (int64_t[]){batch, 1, m->config.width});
}

/*
 * The modulated LN(x) w + b is LN(x) W + B with W = w (1 + scale) and B = b (1 + scale) + shift.  W
 * and B have one row per sample; they are computed in fp32 and rounded once.
 */
ckpt_tensor cogvideo_modulated_norm(const struct cogvideo *m, ckpt_tape *t,
                                    const struct ckpt_nn_norm *n, ckpt_tensor x, ckpt_tensor shift,
                                    ckpt_tensor scale)
{
    ckpt_tensor factor = ckpt_affine(t, ckpt_cast(t, scale, CKPT_F32), 1.f, 1.f);
    ckpt_tensor w = ckpt_affine(t, ckpt_mul(t, factor, n->weight), 1.f, -1.f);
    ckpt_tensor b = ckpt_add(t, ckpt_mul(t, factor, n->bias), shift);

    return ckpt_layer_norm_modulate(t, x, ckpt_cast(t, b, m->dtype), ckpt_cast(t, w, m->dtype),
                                    n->eps);
}

/* Both streams after one norm: video [B, N, D], and text and video side by side [B, S + N, D]. */
struct normed {
    ckpt_tensor video, both;
};

static struct normed norm_both(const struct cogvideo *m, ckpt_tape *t, const struct ckpt_nn_norm *n,
                               const struct cogvideo_state *s, const ckpt_tensor *row)
{
    struct normed z;
    ckpt_tensor text =
        cogvideo_modulated_norm(m, t, n, s->text, row[TEXT + SHIFT], row[TEXT + SCALE]);

    z.video = cogvideo_modulated_norm(m, t, n, s->video, row[SHIFT], row[SCALE]);
    z.both = ckpt_concat(t, 1, 2, (ckpt_tensor[]){text, z.video});
    return z;
}

/* Adds a [B, S + N, D] to both streams, or [B, N, D] to the video alone. */
static void add_gated(ckpt_tape *t, struct cogvideo_state *s, const ckpt_tensor *row, ckpt_tensor a,
                      bool last)
{
    int64_t tokens = ckpt_desc_of(t, s->text).shape[1], all = ckpt_desc_of(t, a).shape[1];

    if (last) {
        s->video = ckpt_gated_residual(t, s->video, row[GATE], a);
        return;
    }
    s->text = ckpt_gated_residual(t, s->text, row[TEXT + GATE], ckpt_slice(t, a, 1, 0, tokens));
    s->video = ckpt_gated_residual(t, s->video, row[GATE], ckpt_slice(t, a, 1, tokens, all));
}

/* [B, L, D] as heads [B, L, H, D/H]. */
static ckpt_tensor heads(const struct cogvideo *m, ckpt_tape *t, const struct ckpt_nn_linear *w,
                         ckpt_tensor z)
{
    const struct cogvideo_config *c = &m->config;
    int64_t batch = ckpt_desc_of(t, z).shape[0];

    return ckpt_reshape(t, ckpt_nn_apply_linear(t, w, z), 4,
                        (int64_t[]){batch, -1, c->heads, c->head});
}

/* Normalizes each head and applies the rotary embedding.  Queries of the video alone use the last
 * rows of the table. */
static ckpt_tensor turned(ckpt_tape *t, const struct ckpt_nn_norm *n, ckpt_tensor x,
                          ckpt_tensor rope)
{
    ckpt_tensor y = ckpt_nn_apply_norm(t, n, x);
    int64_t rows = ckpt_desc_of(t, y).shape[1], all;

    if (!rope.id)
        return y;
    all = ckpt_desc_of(t, rope).shape[0];
    return ckpt_rope(t, y, rows < all ? ckpt_slice(t, rope, 0, all - rows, all) : rope, 1);
}

/* No mask: attention includes the padding of a prompt, as it did when the model was trained. */
static ckpt_tensor attention(const struct cogvideo *m, const struct cogvideo_block *b, ckpt_tape *t,
                             const struct cogvideo_state *s, const struct normed *z, bool last)
{
    ckpt_tensor from = last ? z->video : z->both;
    struct ckpt_desc d = ckpt_desc_of(t, from);
    ckpt_tensor q = turned(t, &b->norm_q, heads(m, t, &b->q, from), s->rope);
    ckpt_tensor k = turned(t, &b->norm_k, heads(m, t, &b->k, z->both), s->rope);
    ckpt_tensor v = heads(m, t, &b->v, z->both);
    ckpt_tensor a = ckpt_attention(t, q, k, v, CKPT_NONE, NULL);

    return ckpt_nn_apply_linear(t, &b->out, ckpt_reshape(t, a, d.ndim, d.shape));
}

void cogvideo_block_forward(const struct cogvideo *m, const struct cogvideo_block *b, ckpt_tape *t,
                            struct cogvideo_state *s, bool last)
{
    ckpt_tensor row[PARTS], u;

    cogvideo_rows(m, t, &b->norm1.linear, s->time, PARTS, row);
    struct normed z = norm_both(m, t, &b->norm1.norm, s, row);
    add_gated(t, s, row, attention(m, b, t, s, &z, last), last);
    cogvideo_rows(m, t, &b->norm2.linear, s->time, PARTS, row);
    u = last ? cogvideo_modulated_norm(m, t, &b->norm2.norm, s->video, row[SHIFT], row[SCALE])
             : norm_both(m, t, &b->norm2.norm, s, row).both;
    u = ckpt_gelu_tanh(t, ckpt_nn_apply_linear(t, &b->up, u));
    add_gated(t, s, row, ckpt_nn_apply_linear(t, &b->down, u), last);
    if (last)
        s->text = CKPT_NONE;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One transformer block.
 *
 *   x += gate1 SelfAttn(LN(x) (1 + scale1) + shift1)
 *   x += CrossAttn(LN2(x), text), to which I2V of 2.1 adds attention to a picture's features
 *   x += gate2 MLP(LN(x) (1 + scale2) + shift2)
 *
 * Frames that a clip is given and frames that are noise have different timesteps: two modulations,
 * of which each frame has one.  The published code keeps one for each token.
 */
#include "model.h"

enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };

/* ---- modulation ------------------------------------------------------------------------------ */

void wan_rows(const struct wan *m, ckpt_tape *t, ckpt_tensor rows, ckpt_tensor table, int n,
              ckpt_tensor *row)
{
    ckpt_tensor all = ckpt_cast(t, ckpt_add(t, rows, table), m->dtype);

    ckpt_split(t, all, 2, n, row);
}

/* [B, N, D] as frames [B, F, N / F, D], where each frame has its row; else as it is. */
static ckpt_tensor by_frame(ckpt_tape *t, ckpt_tensor x, ckpt_tensor *row)
{
    struct ckpt_desc d = ckpt_desc_of(t, x), r = ckpt_desc_of(t, *row);

    if (r.shape[1] > 1)
        return ckpt_reshape(t, x, 4, (int64_t[]){d.shape[0], r.shape[1], -1, d.shape[2]});
    *row = ckpt_reshape(t, *row, 3, (int64_t[]){r.shape[0], 1, r.shape[3]});
    return x;
}

ckpt_tensor wan_modulated_norm(const struct wan *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor shift,
                               ckpt_tensor scale)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);

    (void)by_frame(t, x, &scale);
    x = by_frame(t, x, &shift);
    x = ckpt_layer_norm_modulate(t, x, shift, scale, (float)m->config.eps);
    return ckpt_reshape(t, x, d.ndim, d.shape);
}

static ckpt_tensor gated(ckpt_tape *t, ckpt_tensor x, ckpt_tensor gate, ckpt_tensor a)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor same = gate;

    a = by_frame(t, a, &same);
    x = by_frame(t, x, &gate);
    return ckpt_reshape(t, ckpt_gated_residual(t, x, gate, a), d.ndim, d.shape);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* [B, L, D] as heads [B, L, H, D / H], after the norm of all of them, if there is one. */
static ckpt_tensor heads(const struct wan *m, ckpt_tape *t, const struct ckpt_nn_linear *w,
                         const struct ckpt_nn_norm *norm, ckpt_tensor x)
{
    const struct wan_config *c = &m->config;
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor y = ckpt_nn_apply_linear(t, w, x);

    if (norm)
        y = ckpt_nn_apply_norm(t, norm, y);
    return ckpt_reshape(t, y, 4, (int64_t[]){d.shape[0], d.shape[1], c->heads, c->head});
}

/* The same queries read the features of a picture, whose result is added before the projection. */
static ckpt_tensor attend_picture(const struct wan *m, const struct wan_attention *a, ckpt_tape *t,
                                  ckpt_tensor q, ckpt_tensor sight)
{
    ckpt_tensor k = heads(m, t, &a->sight_k, &a->norm_sight, sight);
    ckpt_tensor v = heads(m, t, &a->sight_v, NULL, sight);

    return ckpt_attention(t, q, k, v, CKPT_NONE, NULL);
}

/* No mask: the rows behind a prompt, which are zeros before the embedder, are attended to. */
static ckpt_tensor attention(const struct wan *m, const struct wan_attention *a, ckpt_tape *t,
                             ckpt_tensor x, ckpt_tensor context, ckpt_tensor sight,
                             ckpt_tensor rope)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor q = heads(m, t, &a->q, &a->norm_q, x);
    ckpt_tensor k = heads(m, t, &a->k, &a->norm_k, context);
    ckpt_tensor v = heads(m, t, &a->v, NULL, context);

    if (rope.id) {
        q = ckpt_rope(t, q, rope, 1);
        k = ckpt_rope(t, k, rope, 1);
    }
    ckpt_tensor y = ckpt_attention(t, q, k, v, CKPT_NONE, NULL);
    if (sight.id)
        y = ckpt_add(t, y, attend_picture(m, a, t, q, sight));
    return ckpt_reshape(t, y, d.ndim, d.shape);
}

void wan_block_forward(const struct wan *m, const struct wan_block *b, ckpt_tape *t,
                       struct wan_state *s)
{
    ckpt_tensor row[ROWS], x = s->video, u, a;

    wan_rows(m, t, s->rows, b->table, ROWS, row);
    u = wan_modulated_norm(m, t, x, row[SHIFT1], row[SCALE1]);
    a = attention(m, &b->self, t, u, u, CKPT_NONE, s->rope);
    x = gated(t, x, row[GATE1], ckpt_nn_apply_linear(t, &b->self.out, a));
    u = ckpt_nn_apply_norm(t, &b->norm2, x);
    a = attention(m, &b->cross, t, u, s->text, s->sight, CKPT_NONE);
    x = ckpt_linear_add(t, a, b->cross.out.weight, b->cross.out.bias, x);
    u = wan_modulated_norm(m, t, x, row[SHIFT2], row[SCALE2]);
    u = ckpt_gelu_tanh(t, ckpt_nn_apply_linear(t, &b->up, u));
    s->video = gated(t, x, row[GATE2], ckpt_nn_apply_linear(t, &b->down, u));
}

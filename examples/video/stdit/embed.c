/* SPDX-License-Identifier: Apache-2.0 */
/* The embedders: timestep and frame rate, and the caption with its null replacement. */
#include <stdlib.h>
#include "model.h"

/* Linear, SiLU, Linear on [B, 256] sinusoidal features. */
static ckpt_tensor scalar_embed(const struct stdit *m, ckpt_tape *t,
                                const struct ckpt_nn_linear *mlp, ckpt_tensor value)
{
    ckpt_tensor f = ckpt_timestep_embedding(t, value, 256, 10000.f, m->config.dtype);

    return ckpt_nn_apply_linear(t, &mlp[1], ckpt_silu(t, ckpt_nn_apply_linear(t, &mlp[0], f)));
}

/* The six modulation rows [B, 6, C] of a time embedding [B, C]. */
static ckpt_tensor six_rows(const struct stdit *m, ckpt_tape *t, ckpt_tensor time)
{
    int64_t batch = ckpt_desc_of(t, time).shape[0];
    ckpt_tensor flat = ckpt_nn_apply_linear(t, &m->time_block, ckpt_silu(t, time));

    return ckpt_reshape(t, flat, 3, (int64_t[]){batch, 6, m->config.hidden});
}

/* Open-Sora casts timestep and frame rate to the weights' dtype before it computes the features. */
static ckpt_tensor as_weights(const struct stdit *m, ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_cast(t, ckpt_cast(t, x, m->config.dtype), CKPT_F32);
}

static void embed_time(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g,
                       const struct stdit_inputs *in, struct stdit_condition *c)
{
    ckpt_tensor fps = scalar_embed(m, t, m->fps, as_weights(m, t, in->fps));
    ckpt_tensor time = m->config.exact_timestep ? in->t : as_weights(m, t, in->t);

    c->t = ckpt_add(t, scalar_embed(m, t, m->time, time), fps);
    c->t6 = six_rows(m, t, c->t);
    c->t0 = c->t06 = c->frame_mask = CKPT_NONE;
    if (!in->x_mask.id)
        return;
    int64_t batch = ckpt_desc_of(t, in->x_mask).shape[0];
    ckpt_tensor zero = ckpt_affine(t, time, 0.f, 0.f);
    c->t0 = ckpt_add(t, scalar_embed(m, t, m->time, zero), fps);
    c->t06 = six_rows(m, t, c->t0);
    c->frame_mask = ckpt_reshape(t, in->x_mask, 4, (int64_t[]){batch, g->frames, 1, 1});
}

/* The null caption for a text of n tokens: its first rows, or all rows and repetitions of the
 * last. */
static ckpt_tensor null_rows(const struct stdit *m, ckpt_tape *t, int64_t n)
{
    int64_t rows = m->config.text_tokens, more = n - rows;

    if (more <= 0)
        return ckpt_slice(t, m->null_caption, 0, 0, n);
    float *zeros = calloc((size_t)more, sizeof *zeros);
    if (!zeros) {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for a null caption of %lld rows", (long long)n);
        return CKPT_NONE;
    }
    ckpt_tensor column =
        ckpt_constant(t, "null_rows", m->config.dtype, 2, (int64_t[]){more, 1}, zeros);
    free(zeros);
    ckpt_tensor last = ckpt_slice(t, m->null_caption, 0, rows - 1, rows);
    return ckpt_concat(t, 0, 2, (ckpt_tensor[]){m->null_caption, ckpt_add(t, column, last)});
}

/*
 * A dropped caption becomes the null caption before the projection; the text mask stays, so the
 * null caption has the length of the original.  Then the valid tokens are packed.
 */
static void embed_text(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g,
                       const struct stdit_inputs *in, struct stdit_condition *c)
{
    int64_t batch = ckpt_desc_of(t, in->mask).shape[0];
    ckpt_tensor y = in->y;

    if (in->drop.id) {
        int64_t row[] = {1, g->tokens, m->config.caption_channels};
        ckpt_tensor null = null_rows(m, t, g->tokens);
        ckpt_tensor drop = ckpt_reshape(t, in->drop, 3, (int64_t[]){batch, 1, 1});
        y = ckpt_where(t, drop, ckpt_reshape(t, null, 3, row), y);
    }
    y = ckpt_nn_apply_linear(t, &m->caption[1],
                             ckpt_gelu_tanh(t, ckpt_nn_apply_linear(t, &m->caption[0], y)));
    c->y = ckpt_pack(t, y, in->mask, &c->lens);
}

void stdit_embed(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g,
                 const struct stdit_inputs *in, struct stdit_condition *c)
{
    embed_time(m, t, g, in, c);
    embed_text(m, t, g, in, c);
    c->rope = stdit_rope(m, t, g->frames);
}

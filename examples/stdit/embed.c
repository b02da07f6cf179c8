/* The embedders: timestep and frame rate, and the caption with its null replacement. */
#include "model.h"

/* Linear, SiLU, Linear on [B, 256] sinusoidal features. */
static ckpt_tensor scalar_embed(const struct stdit *m, ckpt_tape *t, const struct stdit_linear *mlp,
                                ckpt_tensor value)
{
    ckpt_tensor f = ckpt_timestep_embedding(t, value, 256, 10000.f, m->config.dtype);

    return stdit_apply(t, &mlp[1], ckpt_silu(t, stdit_apply(t, &mlp[0], f)));
}

/* The six modulation rows [B, 6, C] of a time embedding [B, C]. */
static ckpt_tensor six_rows(const struct stdit *m, ckpt_tape *t, ckpt_tensor time)
{
    int64_t batch = ckpt_desc_of(t, time).shape[0];
    ckpt_tensor flat = stdit_apply(t, &m->time_block, ckpt_silu(t, time));

    return ckpt_reshape(t, flat, 3, (int64_t[]){batch, 6, m->config.hidden});
}

/* Open-Sora casts timestep and frame rate to the weights' dtype before it makes the features. */
static ckpt_tensor as_weights(const struct stdit *m, ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_cast(t, ckpt_cast(t, x, m->config.dtype), CKPT_F32);
}

static void embed_time(const struct stdit *m, ckpt_tape *t, const struct stdit_geometry *g,
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

/*
 * A dropped caption becomes the null caption before the projection; the text mask stays, so the
 * null caption has the length of the real one.  Then the tokens that count are packed.
 */
static void embed_text(const struct stdit *m, ckpt_tape *t, const struct stdit_geometry *g,
                       const struct stdit_inputs *in, struct stdit_condition *c)
{
    int64_t batch = ckpt_desc_of(t, in->mask).shape[0];
    ckpt_tensor y = in->y;

    if (in->drop.id) {
        int64_t row[] = {1, g->tokens, m->config.caption_channels};
        ckpt_tensor null = ckpt_slice(t, m->null_caption, 0, 0, g->tokens);
        ckpt_tensor drop = ckpt_reshape(t, in->drop, 3, (int64_t[]){batch, 1, 1});
        y = ckpt_where(t, drop, ckpt_reshape(t, null, 3, row), y);
    }
    y = stdit_apply(t, &m->caption[1], ckpt_gelu(t, stdit_apply(t, &m->caption[0], y)));
    c->y = ckpt_pack(t, y, in->mask, &c->lens);
}

void stdit_embed(const struct stdit *m, ckpt_tape *t, const struct stdit_geometry *g,
                 const struct stdit_inputs *in, struct stdit_condition *c)
{
    embed_time(m, t, g, in, c);
    embed_text(m, t, g, in, c);
    c->rope = stdit_rope(m, t, g->frames);
}

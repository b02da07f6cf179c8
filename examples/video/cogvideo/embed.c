/* SPDX-License-Identifier: Apache-2.0 */
/* The embedders: timestep, offset, text, patches, positions. */
#include <stdlib.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "model.h"

#define OFFSET 2.f /* the value in the training of 1.5-I2V; always fed */

/* Linear, SiLU, Linear on the features of a scalar. */
static ckpt_tensor scalar_embed(const struct cogvideo *m, ckpt_tape *t,
                                const struct ckpt_nn_linear *mlp, ckpt_tensor value, int64_t width)
{
    ckpt_tensor f = ckpt_timestep_embedding(t, value, width, 10000.f, m->dtype);

    return ckpt_nn_apply_linear(t, &mlp[1], ckpt_silu(t, ckpt_nn_apply_linear(t, &mlp[0], f)));
}

/* SiLU of the embedded timestep, the input of all modulations. */
static ckpt_tensor embed_time(const struct cogvideo *m, ckpt_tape *t, ckpt_tensor time)
{
    const struct cogvideo_config *c = &m->config;
    ckpt_tensor x = scalar_embed(m, t, m->time, time, c->width);

    if (c->ofs_width) {
        ckpt_tensor offset = ckpt_full(t, OFFSET, CKPT_F32, 1, (int64_t[]){1});
        x = ckpt_add(t, x, scalar_embed(m, t, m->ofs, offset, c->ofs_width));
    }
    return ckpt_silu(t, x);
}

/* The condition of I2V follows the noisy channels: an image in the first frame, then zeros. */
static ckpt_tensor with_image(ckpt_tape *t, const struct video_geometry *g, ckpt_tensor x,
                              ckpt_tensor image)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor all = image;

    if (d.ndim != 5)
        return x;
    d.shape[2] = g->frames - 1;
    if (g->frames > 1) {
        ckpt_tensor zeros = ckpt_full(t, 0.f, d.dtype, 5, d.shape);
        all = ckpt_concat(t, 2, 2, (ckpt_tensor[]){image, zeros});
    }
    return ckpt_concat(t, 1, 2, (ckpt_tensor[]){x, all});
}

/* [B, C, F, h, w] -> [B, N, D], of which ranks may split the tokens (--sequence). */
static ckpt_tensor embed_patches(const struct cogvideo *m, ckpt_tape *t, ckpt_tensor x)
{
    const struct cogvideo_config *c = &m->config;
    int64_t flat[] = {c->width, -1}, batch = ckpt_desc_of(t, x).shape[0];
    ckpt_tensor weight = ckpt_reshape(t, m->patch.weight, 2, flat);
    int64_t rows[] = {batch, -1, ckpt_desc_of(t, weight).shape[1]};
    ckpt_tensor patches =
        ckpt_patchify(t, ckpt_cast(t, x, m->dtype), c->patch_frames, c->patch, c->patch);

    patches = ckpt_sequence(t, ckpt_reshape(t, patches, 3, rows), 1);
    return ckpt_linear(t, patches, weight, m->patch.bias);
}

/* A constant of n rows that fill computes in fp32, rounded to the dtype. */
static ckpt_tensor table(const struct cogvideo *m, ckpt_tape *t, const struct video_geometry *g,
                         const char *name, enum ckpt_dtype dtype, int ndim, const int64_t *shape,
                         void (*fill)(const struct cogvideo_config *c,
                                      const struct video_geometry *g, float *table))
{
    int64_t n = shape[0] * shape[1] * (ndim > 2 ? shape[2] : 1);
    uint16_t *rounded = malloc((size_t)n * sizeof *rounded);
    float *value = malloc((size_t)n * sizeof *value);

    if (!value || !rounded) {
        free(value);
        free(rounded);
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the table %s", name);
        return CKPT_NONE;
    }
    fill(&m->config, g, value);
    if (dtype == CKPT_BF16)
        ckpt_to_bf16(value, rounded, n);
    ckpt_tensor x =
        ckpt_constant(t, name, dtype, ndim, shape, dtype == CKPT_BF16 ? (void *)rounded : value);
    free(value);
    free(rounded);
    return x;
}

/* Adds the positions: a computed table to the video, a learned one to text and video. */
static void add_positions(const struct cogvideo *m, ckpt_tape *t, const struct video_geometry *g,
                          struct cogvideo_state *s)
{
    int64_t tokens = cogvideo_grid(&m->config, g).tokens, shape[] = {tokens, m->config.width};
    int64_t all = g->tokens + tokens;

    if (m->position.id) {
        s->text = ckpt_add(t, s->text, ckpt_slice(t, m->position, 1, 0, g->tokens));
        s->video = ckpt_add(t, s->video,
                            ckpt_sequence(t, ckpt_slice(t, m->position, 1, g->tokens, all), 1));
    } else if (!m->config.rotary) {
        ckpt_tensor x = table(m, t, g, "position", m->dtype, 2, shape, cogvideo_position_table);
        s->video = ckpt_add(t, s->video, ckpt_sequence(t, x, 0));
    }
}

void cogvideo_embed(const struct cogvideo *m, ckpt_tape *t, const struct video_geometry *g,
                    const struct video_inputs *in, struct cogvideo_state *s)
{
    int64_t turned[] = {g->tokens + cogvideo_grid(&m->config, g).tokens, m->config.head / 2, 2};

    s->time = embed_time(m, t, in->t);
    s->text = ckpt_nn_apply_linear(t, &m->text, in->text);
    s->video = embed_patches(m, t, in->image.id ? with_image(t, g, in->x, in->image) : in->x);
    add_positions(m, t, g, s);
    s->rope = CKPT_NONE;
    if (m->config.rotary)
        s->rope = ckpt_sequence_after(
            t, table(m, t, g, "rope", CKPT_F32, 3, turned, cogvideo_rotary_table), 0, g->tokens);
}

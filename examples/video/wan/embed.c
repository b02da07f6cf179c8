/* SPDX-License-Identifier: Apache-2.0 */
/* The embedders: timestep, text, patches; and the rotary table. */
#include <math.h>
#include <stdlib.h>
#include "ckpt_dist.h"
#include "model.h"

#define THETA 10000.

/* ---- timestep -------------------------------------------------------------------------------- */

/* [B, 2, ...], of the first frame and of the others, as one row for each frame. */
static ckpt_tensor spread(ckpt_tape *t, ckpt_tensor rows, int64_t frames)
{
    struct ckpt_desc d = ckpt_desc_of(t, rows);
    ckpt_tensor first = ckpt_slice(t, rows, 1, 0, 1), rest = ckpt_slice(t, rows, 1, 1, 2);

    if (frames == 1)
        return first;
    d.shape[1] = frames - 1;
    return ckpt_concat(t, 1, 2, (ckpt_tensor[]){first, ckpt_expand(t, rest, d.ndim, d.shape)});
}

/* Fills s->head and s->rows.  The embedded timestep is fp32, its projection of the model's dtype.
 */
static void embed_time(const struct wan *m, ckpt_tape *t, ckpt_tensor time, int64_t frames,
                       struct wan_state *s)
{
    const struct wan_config *c = &m->config;
    struct ckpt_desc d = ckpt_desc_of(t, time);
    int64_t rows = d.ndim > 1 ? d.shape[1] : 1, flat[] = {d.shape[0] * rows};
    int64_t one[] = {d.shape[0], rows, 1, c->width}, six[] = {d.shape[0], rows, 6, c->width};
    ckpt_tensor x = ckpt_timestep_embedding(t, ckpt_reshape(t, time, 1, flat), c->frequencies,
                                            (float)THETA, CKPT_F32);

    x = ckpt_silu(t, ckpt_nn_apply_linear(t, &m->time[0], x));
    x = ckpt_nn_apply_linear(t, &m->time[1], x);
    s->head = ckpt_reshape(t, x, 4, one);
    x = ckpt_nn_apply_linear(t, &m->time_proj, ckpt_silu(t, ckpt_cast(t, x, m->dtype)));
    s->rows = ckpt_reshape(t, ckpt_cast(t, x, CKPT_F32), 4, six);
    if (rows == 1)
        return;
    s->head = spread(t, s->head, frames);
    s->rows = spread(t, s->rows, frames);
}

/* ---- a picture ------------------------------------------------------------------------------- */

/* Its features [B, 257, sight] at the width of the model. */
static ckpt_tensor embed_sight(const struct wan *m, ckpt_tape *t, ckpt_tensor x)
{
    x = ckpt_nn_apply_norm(t, &m->norm_sight[0], ckpt_cast(t, x, m->dtype));
    x = ckpt_gelu_erf(t, ckpt_nn_apply_linear(t, &m->sight[0], x));
    return ckpt_nn_apply_norm(t, &m->norm_sight[1], ckpt_nn_apply_linear(t, &m->sight[1], x));
}

/* ---- patches --------------------------------------------------------------------------------- */

/* The condition of I2V follows the noisy channels: a mask of 4 channels, 1 in the first frame, and
 * the latents of a clip of the picture and grey frames. */
static ckpt_tensor with_image(ckpt_tape *t, ckpt_tensor x, ckpt_tensor image)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t frames = d.shape[2];

    d.shape[1] = 4;
    d.shape[2] = 1;
    ckpt_tensor mask = ckpt_full(t, 1.f, CKPT_F32, 5, d.shape);
    d.shape[2] = frames - 1;
    if (frames > 1)
        mask = ckpt_concat(t, 2, 2, (ckpt_tensor[]){mask, ckpt_full(t, 0.f, CKPT_F32, 5, d.shape)});
    return ckpt_concat(t, 1, 3, (ckpt_tensor[]){x, mask, image});
}

/* [B, C, F, h, w] -> [B, N, D], of which ranks may split the tokens (--sequence). */
static ckpt_tensor embed_patches(const struct wan *m, ckpt_tape *t, ckpt_tensor x)
{
    int64_t flat[] = {m->config.width, -1}, batch = ckpt_desc_of(t, x).shape[0];
    ckpt_tensor weight = ckpt_reshape(t, m->patch.weight, 2, flat);
    int64_t rows[] = {batch, -1, ckpt_desc_of(t, weight).shape[1]};
    ckpt_tensor patches = ckpt_patchify(t, ckpt_cast(t, x, m->dtype), 1, 2, 2);

    patches = ckpt_sequence(t, ckpt_reshape(t, patches, 3, rows), 1);
    return ckpt_linear(t, patches, weight, m->patch.bias);
}

/* ---- positions ------------------------------------------------------------------------------- */

/* Writes `width` channels of one axis at a position, as (cos, sin) pairs; returns the end. */
static float *turn(float *dst, int64_t place, int64_t width)
{
    for (int64_t k = 0; k < width / 2; k++) {
        double angle = (double)place * pow(THETA, -2. * (double)k / (double)width);
        *dst++ = (float)cos(angle);
        *dst++ = (float)sin(angle);
    }
    return dst;
}

/* Rows and columns have a third of the pairs of a head each, rounded down; frames the rest. */
static ckpt_tensor rotary(const struct wan *m, ckpt_tape *t, const struct video_geometry *g)
{
    const int64_t n = wan_tokens(g), rows = g->height / 2, columns = g->width / 2;
    const int64_t head = m->config.head, space = head / 6 * 2;
    float *table = malloc((size_t)(n * head) * sizeof *table), *to = table;

    if (!table) {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for the table rope");
        return CKPT_NONE;
    }
    for (int64_t i = 0; i < n; i++) {
        to = turn(to, i / (rows * columns), head - 2 * space);
        to = turn(to, i / columns % rows, space);
        to = turn(to, i % columns, space);
    }
    ckpt_tensor x = ckpt_constant(t, "rope", CKPT_F32, 3, (int64_t[]){n, head / 2, 2}, table);
    free(table);
    return ckpt_sequence(t, x, 0);
}

/* ---- all ------------------------------------------------------------------------------------- */

void wan_embed(const struct wan *m, ckpt_tape *t, const struct video_geometry *g,
               const struct video_inputs *in, struct wan_state *s)
{
    ckpt_tensor y = ckpt_nn_apply_linear(t, &m->text[0], in->text);

    embed_time(m, t, in->t, g->frames, s);
    s->text = ckpt_nn_apply_linear(t, &m->text[1], ckpt_gelu_tanh(t, y));
    s->sight = in->sight.id ? embed_sight(m, t, in->sight) : CKPT_NONE;
    s->video = embed_patches(m, t, in->image.id ? with_image(t, in->x, in->image) : in->x);
    s->rope = rotary(m, t, g);
}

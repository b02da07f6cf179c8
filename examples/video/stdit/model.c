/* SPDX-License-Identifier: Apache-2.0 */
/* STDiT3: its parameters under Open-Sora's names, and the forward pass from patches to patches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "ckpt_dist.h"
#include "model.h"

/* ---- parameters ---------------------------------------------------------------------------- */

static ckpt_tensor parameter(const struct stdit *m, ckpt *c, const char *prefix, const char *name,
                             int ndim, const int64_t *shape, struct ckpt_init init, bool trainable)
{
    char key[128];

    snprintf(key, sizeof key, "%s%s", prefix, name);
    return ckpt_param(c, key, m->config.dtype, ndim, shape, init, trainable);
}

static struct ckpt_nn_linear linear(const struct stdit *m, ckpt *c, const char *prefix,
                                    const char *name, int64_t out, int64_t in,
                                    struct ckpt_init init, bool trainable)
{
    struct ckpt_init zeros = CKPT_ZEROS;
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    nn.dtype = m->config.dtype;
    nn.frozen = !trainable;
    nn.weight = &init;
    nn.bias = &zeros;
    return ckpt_nn_linear(&nn, in, out, true, "%s%s", prefix, name);
}

/* In a new temporal block the last projection of every branch is zero, so the block is the
 * identity. */
static void create_block(const struct stdit *m, ckpt *c, struct stdit_block *b, const char *list,
                         int64_t i, bool temporal)
{
    const struct stdit_config *g = &m->config;
    int64_t width = g->hidden, mlp = (int64_t)((double)width * g->mlp_ratio);
    int64_t head[] = {width / g->heads};
    struct ckpt_init last = temporal ? CKPT_ZEROS : CKPT_XAVIER;
    char at[64];

    snprintf(at, sizeof at, "%s.%lld.", list, (long long)i);
    b->scale_shift_table = parameter(m, c, at, "scale_shift_table", 2, (int64_t[]){6, width},
                                     CKPT_NORMAL(1.f / sqrtf((float)width)), true);
    b->qkv = linear(m, c, at, "attn.qkv", 3 * width, width, CKPT_XAVIER, true);
    b->q_norm = parameter(m, c, at, "attn.q_norm.weight", 1, head, CKPT_ONES, true);
    b->k_norm = parameter(m, c, at, "attn.k_norm.weight", 1, head, CKPT_ONES, true);
    b->proj = linear(m, c, at, "attn.proj", width, width, last, true);
    b->cross_q = linear(m, c, at, "cross_attn.q_linear", width, width, CKPT_XAVIER, true);
    b->cross_kv = linear(m, c, at, "cross_attn.kv_linear", 2 * width, width, CKPT_XAVIER, true);
    b->cross_proj = linear(m, c, at, "cross_attn.proj", width, width, last, true);
    b->fc1 = linear(m, c, at, "mlp.fc1", mlp, width, CKPT_XAVIER, true);
    b->fc2 = linear(m, c, at, "mlp.fc2", width, mlp, last, true);
}

static void create_embedders(struct stdit *m, ckpt *c)
{
    const struct stdit_config *g = &m->config;
    int64_t width = g->hidden, text = g->caption_channels;
    struct ckpt_init patch = CKPT_UNIFORM(1.f / sqrtf((float)(g->in_channels * 4)));
    bool caption = !g->freeze_caption;

    m->patch.weight = parameter(m, c, "x_embedder.proj.", "weight", 5,
                                (int64_t[]){width, g->in_channels, 1, 2, 2}, patch, true);
    m->patch.bias = parameter(m, c, "x_embedder.proj.", "bias", 1, &width, patch, true);
    m->time[0] = linear(m, c, "t_embedder.", "mlp.0", width, 256, CKPT_XAVIER, true);
    m->time[1] = linear(m, c, "t_embedder.", "mlp.2", width, width, CKPT_XAVIER, true);
    m->fps[0] = linear(m, c, "fps_embedder.", "mlp.0", width, 256, CKPT_NORMAL(0.02f), true);
    m->fps[1] = linear(m, c, "fps_embedder.", "mlp.2", width, width, CKPT_ZEROS, true);
    m->time_block = linear(m, c, "t_block.", "1", 6 * width, width, CKPT_XAVIER, true);
    m->null_caption =
        parameter(m, c, "y_embedder.", "y_embedding", 2, (int64_t[]){g->text_tokens, text},
                  CKPT_NORMAL(1.f / sqrtf((float)text)), false);
    m->caption[0] = linear(m, c, "y_embedder.y_proj.", "fc1", width, text, CKPT_XAVIER, caption);
    m->caption[1] = linear(m, c, "y_embedder.y_proj.", "fc2", width, width, CKPT_XAVIER, caption);
    m->rope_freqs =
        parameter(m, c, "rope.", "freqs", 1, (int64_t[]){width / g->heads / 2}, CKPT_ZEROS, false);
}

int stdit_create(struct stdit *m, ckpt *c, const struct stdit_config *config)
{
    int64_t width = config->hidden, depth = config->depth;

    *m = (struct stdit){.config = *config};
    m->spatial = calloc((size_t)depth, sizeof *m->spatial);
    m->temporal = calloc((size_t)depth, sizeof *m->temporal);
    if (!m->spatial || !m->temporal)
        return CKPT_ENOMEM;
    create_embedders(m, c);
    for (int64_t i = 0; i < depth; i++)
        create_block(m, c, &m->spatial[i], "spatial_blocks", i, false);
    for (int64_t i = 0; i < depth; i++)
        create_block(m, c, &m->temporal[i], "temporal_blocks", i, true);
    m->final_table = parameter(m, c, "final_layer.", "scale_shift_table", 2, (int64_t[]){2, width},
                               CKPT_NORMAL(1.f / sqrtf((float)width)), true);
    m->final =
        linear(m, c, "final_layer.", "linear", 8 * config->in_channels, width, CKPT_XAVIER, true);
    return stdit_set_rope(m, c);
}

void stdit_free(struct stdit *m)
{
    free(m->spatial);
    free(m->temporal);
    *m = (struct stdit){0};
}

int stdit_set_rope(const struct stdit *m, ckpt *c)
{
    int64_t half = m->config.hidden / m->config.heads / 2;
    float *value = malloc((size_t)half * sizeof *value);

    if (!value)
        return CKPT_ENOMEM;
    stdit_rope_frequencies(&m->config, value);
    int rc = ckpt_param_set(c, m->rope_freqs, CKPT_VALUE, value, half);
    free(value);
    return rc;
}

/* ---- forward pass -------------------------------------------------------------------------- */

/* [B, in, T, H, W] -> [B, T, S, C]: a convolution of kernel and stride (1, 2, 2), plus position
 * embedding.  Ranks may split the places of a frame (--sequence). */
static ckpt_tensor patch_embed(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g,
                               ckpt_tensor x)
{
    int64_t flat[] = {m->config.hidden, m->config.in_channels * 4};
    ckpt_tensor weight = ckpt_reshape(t, m->patch.weight, 2, flat);
    ckpt_tensor patches = ckpt_patchify(t, ckpt_cast(t, x, m->config.dtype), 1, 2, 2);
    ckpt_tensor tokens = ckpt_linear(t, ckpt_sequence(t, patches, 2), weight, m->patch.bias);
    ckpt_tensor table = ckpt_sequence(t, stdit_position(m, t, g), 0);
    struct ckpt_desc d = ckpt_desc_of(t, table);

    return ckpt_add(t, tokens,
                    ckpt_reshape(t, table, 4, (int64_t[]){1, 1, d.shape[0], d.shape[1]}));
}

/* LN(x) (1 + scale) + shift, with shift and scale from the table and a time embedding [B, C]. */
static ckpt_tensor final_modulate(const struct stdit *m, ckpt_tape *t, ckpt_tensor x,
                                  ckpt_tensor time)
{
    int64_t batch = ckpt_desc_of(t, time).shape[0], width = m->config.hidden;
    ckpt_tensor row = ckpt_reshape(t, time, 3, (int64_t[]){batch, 1, width}), part[2];
    ckpt_tensor table = ckpt_reshape(t, m->final_table, 3, (int64_t[]){1, 2, width});
    ckpt_tensor both = ckpt_add(t, table, row);

    ckpt_split(t, ckpt_reshape(t, both, 4, (int64_t[]){batch, 1, 2, width}), 2, 2, part);
    return ckpt_layer_norm_modulate(t, x, part[0], part[1], 1e-6f);
}

/*
 * Frames that are not noised are modulated for time 0.  As in Open-Sora, the input of this
 * modulation is already modulated for t; it is not x itself.
 */
static ckpt_tensor final_layer(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g,
                               const struct stdit_condition *c, ckpt_tensor x)
{
    ckpt_tensor z = final_modulate(m, t, x, c->t);

    if (c->frame_mask.id)
        z = ckpt_where(t, c->frame_mask, z, final_modulate(m, t, z, c->t0));
    z = ckpt_sequence_all(t, ckpt_nn_apply_linear(t, &m->final, z));
    return ckpt_unpatchify(t, z, 2 * m->config.in_channels, g->frames, g->height, g->width, 1, 2,
                           2);
}

ckpt_tensor stdit_forward(const struct stdit *m, ckpt_tape *t, const struct video_geometry *g,
                          const struct stdit_inputs *in)
{
    struct stdit_condition c;

    ckpt_label(t, "embedders");
    stdit_embed(m, t, g, in, &c);
    ckpt_tensor x = patch_embed(m, t, g, in->x);
    for (int64_t i = 0; i < m->config.depth; i++) {
        ckpt_label(t, "spatial_blocks.%lld", (long long)i);
        x = stdit_block_forward(m, &m->spatial[i], t, &c, x, false);
        ckpt_label(t, "temporal_blocks.%lld", (long long)i);
        x = stdit_block_forward(m, &m->temporal[i], t, &c, x, true);
    }
    ckpt_label(t, "final_layer");
    return final_layer(m, t, g, &c, x);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Wan: its parameters under diffusers' names, and the forward pass from latents to latents. */
#include "model.h"
#include <stdlib.h>
#include "../../common/say.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"

#define NORM_SIGHT 1e-5f /* eps, not that of the config */

enum { PLACES = 4 /* latents of a patch */, NAME = 96 };

/* ---- parameters ---------------------------------------------------------------------------- */

static struct wan_attention create_attention(const struct ckpt_nn *nn, const struct wan_config *g,
                                             const char *block, const char *name)
{
    const int64_t d = g->width;
    const float eps = (float)g->eps;
    char at[64];

    snprintf(at, sizeof at, "%s.%s", block, name);
    return (struct wan_attention){.q = ckpt_nn_linear(nn, d, d, true, "%s.to_q", at),
                                  .k = ckpt_nn_linear(nn, d, d, true, "%s.to_k", at),
                                  .v = ckpt_nn_linear(nn, d, d, true, "%s.to_v", at),
                                  .out = ckpt_nn_linear(nn, d, d, true, "%s.to_out.0", at),
                                  .norm_q = ckpt_nn_rms_norm(nn, d, eps, "%s.norm_q", at),
                                  .norm_k = ckpt_nn_rms_norm(nn, d, eps, "%s.norm_k", at)};
}

/* Cross-attention to the features of a picture. */
static void add_sight(struct wan_attention *a, const struct ckpt_nn *nn, const struct wan_config *g,
                      const char *block)
{
    const int64_t d = g->width;

    a->sight_k = ckpt_nn_linear(nn, d, d, true, "%s.attn2.add_k_proj", block);
    a->sight_v = ckpt_nn_linear(nn, d, d, true, "%s.attn2.add_v_proj", block);
    a->norm_sight = ckpt_nn_rms_norm(nn, d, (float)g->eps, "%s.attn2.norm_added_k", block);
}

/* fp32 in every dtype of the model, as in diffusers, because it is added to the modulation. */
static ckpt_tensor create_table(const struct ckpt_nn *nn, const struct wan_config *g, int64_t rows,
                                const char *name)
{
    return ckpt_param(nn->context, name, CKPT_F32, 3, (int64_t[]){1, rows, g->width},
                      CKPT_NORMAL(0.02f), true);
}

static void create_block(struct wan *m, const struct ckpt_nn *nn, int64_t i, const char *begin)
{
    const struct wan_config *g = &m->config;
    struct wan_block *b = &m->block[i];
    char at[48], name[NAME];

    snprintf(at, sizeof at, "%sblocks.%lld", begin, (long long)i);
    snprintf(name, sizeof name, "%s.scale_shift_table", at);
    b->table = create_table(nn, g, 6, name);
    b->self = create_attention(nn, g, at, "attn1");
    b->cross = create_attention(nn, g, at, "attn2");
    if (g->sight)
        add_sight(&b->cross, nn, g, at);
    b->norm2 = ckpt_nn_layer_norm(nn, g->width, (float)g->eps, "%s.norm2", at);
    b->up = ckpt_nn_linear(nn, g->width, g->inner, true, "%s.ffn.net.0.proj", at);
    b->down = ckpt_nn_linear(nn, g->inner, g->width, true, "%s.ffn.net.2", at);
}

static void create_sight(struct wan *m, const struct ckpt_nn *nn, const char *embedder)
{
    const struct wan_config *g = &m->config;
    const int64_t n = g->sight, d = g->width;
    char at[72];

    snprintf(at, sizeof at, "%s.image_embedder", embedder);
    m->norm_sight[0] = ckpt_nn_layer_norm(nn, n, NORM_SIGHT, "%s.norm1", at);
    m->sight[0] = ckpt_nn_linear(nn, n, n, true, "%s.ff.net.0.proj", at);
    m->sight[1] = ckpt_nn_linear(nn, n, d, true, "%s.ff.net.2", at);
    m->norm_sight[1] = ckpt_nn_layer_norm(nn, d, NORM_SIGHT, "%s.norm2", at);
}

/* The timestep is embedded in fp32. */
static void create_embedders(struct wan *m, const struct ckpt_nn *nn, const char *begin)
{
    const struct wan_config *g = &m->config;
    int64_t kernel[] = {g->width, wan_in_channels(g), 1, 2, 2}, d = g->width;
    struct ckpt_nn full = *nn;
    char at[48], name[NAME];

    full.dtype = CKPT_F32;
    snprintf(name, sizeof name, "%spatch_embedding.weight", begin);
    m->patch.weight = ckpt_param(nn->context, name, m->dtype, 5, kernel, CKPT_XAVIER, true);
    snprintf(name, sizeof name, "%spatch_embedding.bias", begin);
    m->patch.bias = ckpt_param(nn->context, name, m->dtype, 1, &d, CKPT_ZEROS, true);
    snprintf(at, sizeof at, "%scondition_embedder", begin);
    m->time[0] = ckpt_nn_linear(&full, g->frequencies, d, true, "%s.time_embedder.linear_1", at);
    m->time[1] = ckpt_nn_linear(&full, d, d, true, "%s.time_embedder.linear_2", at);
    m->time_proj = ckpt_nn_linear(nn, d, 6 * d, true, "%s.time_proj", at);
    m->text[0] = ckpt_nn_linear(nn, g->text_width, d, true, "%s.text_embedder.linear_1", at);
    m->text[1] = ckpt_nn_linear(nn, d, d, true, "%s.text_embedder.linear_2", at);
    if (g->sight)
        create_sight(m, nn, at);
}

int wan_create(struct wan *m, ckpt *c, const struct wan_config *config, enum ckpt_dtype dtype,
               const char *begin)
{
    struct ckpt_nn nn = CKPT_NN_INIT;
    char name[NAME];

    *m = (struct wan){.config = *config, .dtype = dtype};
    m->block = calloc((size_t)config->layers, sizeof *m->block);
    if (!m->block)
        return CKPT_ENOMEM;
    nn.context = c;
    nn.dtype = dtype;
    create_embedders(m, &nn, begin);
    for (int64_t i = 0; i < config->layers; i++)
        create_block(m, &nn, i, begin);
    snprintf(name, sizeof name, "%sscale_shift_table", begin);
    m->table = create_table(&nn, config, 2, name);
    m->proj =
        ckpt_nn_linear(&nn, config->width, PLACES * config->channels, true, "%sproj_out", begin);
    return 0;
}

void wan_free(struct wan *m)
{
    free(m->block);
    *m = (struct wan){0};
}

int64_t wan_parameters(const struct wan_config *c)
{
    int64_t d = c->width, attention = 4 * d * (d + 1) + 2 * d;
    int64_t block = 6 * d + 2 * attention + 2 * d + c->inner * (d + 1) + d * (c->inner + 1);
    int64_t n = d * (PLACES * wan_in_channels(c) + 1);

    if (c->sight) {
        block += 2 * d * (d + 1) + d;
        n += c->sight * (c->sight + 3) + d * (c->sight + 3);
    }
    n += d * (c->frequencies + 1) + d * (d + 1) + 6 * d * (d + 1);
    n += d * (c->text_width + 1) + d * (d + 1);
    return n + c->layers * block + 2 * d + PLACES * c->channels * (d + 1);
}

/* ---- shapes -------------------------------------------------------------------------------- */

int64_t wan_tokens(const struct video_geometry *g)
{
    return g->frames * g->height * g->width / PLACES;
}

int wan_check_geometry(const struct wan_config *c, const struct video_geometry *g)
{
    if (g->height % 2 || g->width % 2)
        return say_fail("latents of %lld x %lld: height and width must be even, for patches of "
                        "2 x 2",
                        (long long)g->height, (long long)g->width);
    if (g->tokens != c->text_tokens)
        return say_fail("%lld text tokens: this model takes %lld", (long long)g->tokens,
                        (long long)c->text_tokens);
    if (g->frames > WAN_POSITIONS || g->height / 2 > WAN_POSITIONS || g->width / 2 > WAN_POSITIONS)
        return say_fail("%lld latent frames of %lld x %lld: this model has %d positions along an "
                        "axis",
                        (long long)g->frames, (long long)g->height, (long long)g->width,
                        WAN_POSITIONS);
    return 0;
}

/* ---- forward pass -------------------------------------------------------------------------- */

static ckpt_tensor project(const struct wan *m, ckpt_tape *t, const struct video_geometry *g,
                           const struct wan_state *s)
{
    int64_t batch = ckpt_desc_of(t, s->video).shape[0], out = m->config.channels;
    int64_t shape[] = {batch, g->frames, -1, PLACES * out};
    ckpt_tensor row[2], x;

    wan_rows(m, t, s->head, m->table, 2, row);
    x = wan_modulated_norm(m, t, s->video, row[0], row[1]);
    x = ckpt_sequence_all(t, ckpt_nn_apply_linear(t, &m->proj, x));
    x = ckpt_reshape(t, x, 4, shape);
    return ckpt_unpatchify(t, x, out, g->frames, g->height, g->width, 1, 2, 2);
}

ckpt_tensor wan_forward(const struct wan *m, ckpt_tape *t, const struct video_geometry *g,
                        const struct video_inputs *in)
{
    struct wan_state s;

    ckpt_label(t, "embedders");
    wan_embed(m, t, g, in, &s);
    for (int64_t i = 0; i < m->config.layers; i++) {
        ckpt_label(t, "blocks.%lld", (long long)i);
        wan_block_forward(m, &m->block[i], t, &s);
    }
    ckpt_label(t, "proj_out");
    return project(m, t, g, &s);
}

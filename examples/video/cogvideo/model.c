/* SPDX-License-Identifier: Apache-2.0 */
/* CogVideoX: its parameters under diffusers' names, and the forward pass from latents to latents.
 */
#include <stdlib.h>
#include "../../common/say.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "model.h"

#define HEAD_EPS 1e-6f /* of the layer norms of q and k; the others use config.eps */

/* ---- parameters ---------------------------------------------------------------------------- */

static struct cogvideo_norm create_norm(const struct ckpt_nn *nn, const struct cogvideo_config *g,
                                        int parts, const char *name)
{
    return (struct cogvideo_norm){
        ckpt_nn_linear(nn, g->time_width, parts * g->width, true, "%s.linear", name),
        ckpt_nn_layer_norm(nn, g->width, (float)g->eps, "%s.norm", name)};
}

static void create_block(struct cogvideo *m, const struct ckpt_nn *nn, int64_t i)
{
    const struct cogvideo_config *g = &m->config;
    struct cogvideo_block *b = &m->block[i];
    int64_t width = g->width;
    char at[64], name[96];

    snprintf(at, sizeof at, "transformer_blocks.%lld", (long long)i);
    snprintf(name, sizeof name, "%s.norm1", at);
    b->norm1 = create_norm(nn, g, 6, name);
    b->q = ckpt_nn_linear(nn, width, width, true, "%s.attn1.to_q", at);
    b->k = ckpt_nn_linear(nn, width, width, true, "%s.attn1.to_k", at);
    b->v = ckpt_nn_linear(nn, width, width, true, "%s.attn1.to_v", at);
    b->norm_q = ckpt_nn_layer_norm(nn, g->head, HEAD_EPS, "%s.attn1.norm_q", at);
    b->norm_k = ckpt_nn_layer_norm(nn, g->head, HEAD_EPS, "%s.attn1.norm_k", at);
    b->out = ckpt_nn_linear(nn, width, width, true, "%s.attn1.to_out.0", at);
    snprintf(name, sizeof name, "%s.norm2", at);
    b->norm2 = create_norm(nn, g, 6, name);
    b->up = ckpt_nn_linear(nn, width, 4 * width, true, "%s.ff.net.0.proj", at);
    b->down = ckpt_nn_linear(nn, 4 * width, width, true, "%s.ff.net.2", at);
}

/* A patch is a row of (channel, frame, y, x), for any number of axes of the weight. */
static void create_patch(struct cogvideo *m, ckpt *c)
{
    const struct cogvideo_config *g = &m->config;
    int64_t inputs = g->in_channels * g->patch_frames * g->patch * g->patch;
    int64_t flat[] = {g->width, inputs}, conv[] = {g->width, g->in_channels, g->patch, g->patch};
    struct ckpt_init first = CKPT_XAVIER, zeros = CKPT_ZEROS;

    m->patch.weight = ckpt_param(c, "patch_embed.proj.weight", m->dtype, g->flat_patch ? 2 : 4,
                                 g->flat_patch ? flat : conv, first, true);
    m->patch.bias = ckpt_param(c, "patch_embed.proj.bias", m->dtype, 1, &g->width, zeros, true);
}

/* The last projection gives (frame, y, x, channel); files have (channel, frame, y, x). */
static void create_projection(struct cogvideo *m, const struct ckpt_nn *nn)
{
    const struct cogvideo_config *g = &m->config;
    int64_t places = g->patch_frames * g->patch * g->patch;

    m->proj = ckpt_nn_linear(nn, g->width, places * g->out_channels, true, "proj_out");
    if (!m->proj.weight.id)
        return;
    ckpt_param_file_axes(nn->context, m->proj.weight, 3,
                         (int64_t[]){places, g->out_channels, g->width}, (int[]){1, 0, 2});
    ckpt_param_file_axes(nn->context, m->proj.bias, 2, (int64_t[]){places, g->out_channels},
                         (int[]){1, 0});
}

static struct cogvideo_grid sample_grid(const struct cogvideo_config *c)
{
    struct video_geometry g = {.frames = cogvideo_latent_frames(c, c->sample_frames),
                               .height = c->sample_height,
                               .width = c->sample_width,
                               .tokens = c->text_tokens};

    return cogvideo_grid(c, &g);
}

static void create_embedders(struct cogvideo *m, const struct ckpt_nn *nn)
{
    const struct cogvideo_config *g = &m->config;
    int64_t time = g->time_width, ofs = g->ofs_width;
    int64_t table[] = {1, g->text_tokens + sample_grid(g).tokens, g->width};

    create_patch(m, nn->context);
    m->text = ckpt_nn_linear(nn, g->text_width, g->width, true, "patch_embed.text_proj");
    if (g->learned)
        m->position = ckpt_param(nn->context, "patch_embed.pos_embedding", m->dtype, 3, table,
                                 CKPT_ZEROS, false);
    m->time[0] = ckpt_nn_linear(nn, g->width, time, true, "time_embedding.linear_1");
    m->time[1] = ckpt_nn_linear(nn, time, time, true, "time_embedding.linear_2");
    if (!ofs)
        return;
    m->ofs[0] = ckpt_nn_linear(nn, ofs, ofs, true, "ofs_embedding.linear_1");
    m->ofs[1] = ckpt_nn_linear(nn, ofs, ofs, true, "ofs_embedding.linear_2");
}

int cogvideo_create(struct cogvideo *m, ckpt *c, const struct cogvideo_config *config,
                    enum ckpt_dtype dtype)
{
    struct ckpt_nn nn = CKPT_NN_INIT;

    *m = (struct cogvideo){.config = *config, .dtype = dtype};
    m->block = calloc((size_t)config->layers, sizeof *m->block);
    if (!m->block)
        return CKPT_ENOMEM;
    nn.context = c;
    nn.dtype = dtype;
    create_embedders(m, &nn);
    for (int64_t i = 0; i < config->layers; i++)
        create_block(m, &nn, i);
    m->norm = ckpt_nn_layer_norm(&nn, config->width, (float)config->eps, "norm_final");
    m->norm_out = create_norm(&nn, config, 2, "norm_out");
    create_projection(m, &nn);
    return 0;
}

void cogvideo_free(struct cogvideo *m)
{
    free(m->block);
    *m = (struct cogvideo){0};
}

int64_t cogvideo_parameters(const struct cogvideo_config *c)
{
    int64_t d = c->width, time = c->time_width, places = c->patch_frames * c->patch * c->patch;
    int64_t norm = 6 * d * (time + 1) + 2 * d;
    int64_t block = 2 * norm + 4 * d * (d + 1) + 4 * c->head + 4 * d * (d + 1) + d * (4 * d + 1);
    int64_t n = d * (c->in_channels * places + 1) + d * (c->text_width + 1);

    n += time * (d + 1) + time * (time + 1);
    n += 2 * c->ofs_width * (c->ofs_width + 1);
    n += c->layers * block;
    n += 2 * d + 2 * d * (time + 1) + 2 * d;
    return n + places * c->out_channels * (d + 1);
}

/* ---- shapes -------------------------------------------------------------------------------- */

struct cogvideo_grid cogvideo_grid(const struct cogvideo_config *c, const struct video_geometry *g)
{
    struct cogvideo_grid n = {g->frames / c->patch_frames, g->height / c->patch,
                              g->width / c->patch, 0};

    n.tokens = n.frames * n.rows * n.columns;
    return n;
}

/* A learned table has a row for every token of one size. */
static int check_learned(const struct cogvideo_config *c, const struct video_geometry *g)
{
    int64_t frames = cogvideo_latent_frames(c, c->sample_frames);

    if (g->frames == frames && g->height == c->sample_height && g->width == c->sample_width &&
        g->tokens == c->text_tokens)
        return 0;
    return say_fail("the position table of this model is for %lld latent frames of %lld x %lld and "
                    "%lld text tokens, not for %lld of %lld x %lld and %lld",
                    (long long)frames, (long long)c->sample_height, (long long)c->sample_width,
                    (long long)c->text_tokens, (long long)g->frames, (long long)g->height,
                    (long long)g->width, (long long)g->tokens);
}

int cogvideo_check_geometry(const struct cogvideo_config *c, const struct video_geometry *g)
{
    if (g->height % c->patch || g->width % c->patch)
        return say_fail("latents of %lld x %lld: height and width must be multiples of %lld, the "
                        "side of a patch",
                        (long long)g->height, (long long)g->width, (long long)c->patch);
    if (g->frames % c->patch_frames)
        return say_fail("%lld latent frames: this model takes multiples of %lld",
                        (long long)g->frames, (long long)c->patch_frames);
    if (c->learned)
        return check_learned(c, g);
    if (!c->rotary && g->tokens != c->text_tokens)
        return say_fail("%lld text tokens: this model takes %lld", (long long)g->tokens,
                        (long long)c->text_tokens);
    if (c->flat_patch && (g->height > c->sample_height || g->width > c->sample_width))
        return say_fail("latents of %lld x %lld: this model has positions for %lld x %lld",
                        (long long)g->height, (long long)g->width, (long long)c->sample_height,
                        (long long)c->sample_width);
    return 0;
}

/* ---- forward pass -------------------------------------------------------------------------- */

/* Two consecutive layer norms, the second modulated, shift first. */
static ckpt_tensor project(const struct cogvideo *m, ckpt_tape *t, const struct video_geometry *g,
                           const struct cogvideo_state *s)
{
    const struct cogvideo_config *c = &m->config;
    struct cogvideo_grid n = cogvideo_grid(c, g);
    int64_t batch = ckpt_desc_of(t, s->video).shape[0], shape[] = {batch, n.frames, -1, 0};
    ckpt_tensor row[2], x = ckpt_nn_apply_norm(t, &m->norm, s->video);

    cogvideo_rows(m, t, &m->norm_out.linear, s->time, 2, row);
    x = cogvideo_modulated_norm(m, t, &m->norm_out.norm, x, row[0], row[1]);
    shape[3] = c->patch_frames * c->patch * c->patch * c->out_channels;
    x = ckpt_sequence_all(t, ckpt_nn_apply_linear(t, &m->proj, x));
    x = ckpt_reshape(t, x, 4, shape);
    return ckpt_unpatchify(t, x, c->out_channels, g->frames, g->height, g->width, c->patch_frames,
                           c->patch, c->patch);
}

ckpt_tensor cogvideo_forward(const struct cogvideo *m, ckpt_tape *t, const struct video_geometry *g,
                             const struct video_inputs *in)
{
    struct cogvideo_state s;

    ckpt_label(t, "embedders");
    cogvideo_embed(m, t, g, in, &s);
    for (int64_t i = 0; i < m->config.layers; i++) {
        ckpt_label(t, "transformer_blocks.%lld", (long long)i);
        cogvideo_block_forward(m, &m->block[i], t, &s, i + 1 == m->config.layers);
    }
    ckpt_label(t, "norm_out");
    return project(m, t, g, &s);
}

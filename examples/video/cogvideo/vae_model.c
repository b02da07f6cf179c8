/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the autoencoder, and the sizes of its inputs and outputs. */
#include <stdio.h>
#include <string.h>
#include "vae.h"

/* Makes parameters under a prefix; all are frozen. */
struct maker {
    const struct cogvae_config *config;
    struct ckpt_nn nn;
    const char *side; /* "vae.encoder" or "vae.decoder" */
    bool decoder;     /* norms also read the latents */
};

/* Makes a convolution with kernels of size^axes. */
static struct ckpt_nn_conv make_conv(const struct maker *k, const char *name, int64_t in,
                                     int64_t out, int axes, int64_t size)
{
    return ckpt_nn_conv(&k->nn, in, out, axes, (int64_t[]){size, size, size}, NULL, true, "%s.%s",
                        k->side, name);
}

static struct cogvae_norm make_norm(const struct maker *k, const char *name, int64_t width)
{
    char at[3][96];
    struct cogvae_norm n = {0};

    snprintf(at[0], sizeof at[0], "%s%s", name, k->decoder ? ".norm_layer" : "");
    snprintf(at[1], sizeof at[1], "%s.conv_y.conv", name);
    snprintf(at[2], sizeof at[2], "%s.conv_b.conv", name);
    struct ckpt_nn_norm affine = ckpt_nn_layer_norm(&k->nn, width, 0, "%s.%s", k->side, at[0]);
    n.weight = affine.weight;
    n.bias = affine.bias;
    if (k->decoder) {
        n.a = make_conv(k, at[1], k->config->latent, width, 3, 1);
        n.b = make_conv(k, at[2], k->config->latent, width, 3, 1);
    }
    return n;
}

static struct cogvae_res make_res(const struct maker *k, const char *name, int64_t in, int64_t out)
{
    char at[96];
    struct cogvae_res r = {0};

    for (int i = 0; i < 2; i++) {
        snprintf(at, sizeof at, "%s.norm%d", name, i + 1);
        r.norm[i] = make_norm(k, at, i ? out : in);
        snprintf(at, sizeof at, "%s.conv%d.conv", name, i + 1);
        r.conv[i] = make_conv(k, at, i ? out : in, out, 3, 3);
    }
    snprintf(at, sizeof at, "%s.conv_shortcut", name);
    if (in != out)
        r.shortcut = make_conv(k, at, in, out, 3, 1);
    return r;
}

static void make_middle(const struct maker *k, struct cogvae_tower *s, int64_t width)
{
    char at[96];

    for (int i = 0; i < 2; i++) {
        snprintf(at, sizeof at, "mid_block.resnets.%d", i);
        s->middle[i] = make_res(k, at, width, width);
    }
}

static void make_encoder(const struct maker *k, struct cogvae_tower *s)
{
    const struct cogvae_config *c = k->config;
    int64_t in = c->width[0], last = c->width[c->levels - 1];
    char at[96];

    s->in = make_conv(k, "conv_in.conv", c->channels, in, 3, 3);
    for (int i = 0; i < c->levels; i++) {
        for (int j = 0; j < c->layers; j++) {
            snprintf(at, sizeof at, "down_blocks.%d.resnets.%d", i, j);
            s->level[i].res[j] = make_res(k, at, in, c->width[i]);
            in = c->width[i];
        }
        snprintf(at, sizeof at, "down_blocks.%d.downsamplers.0.conv", i);
        if (i + 1 < c->levels)
            s->level[i].resample = make_conv(k, at, in, in, 2, 3);
    }
    make_middle(k, s, last);
    s->norm = make_norm(k, "norm_out", last);
    s->out = make_conv(k, "conv_out.conv", last, 2 * c->latent, 3, 3);
}

/* Files number the levels of a decoder in the order of the forward pass: block 0 is the widest. */
static void make_decoder(const struct maker *k, struct cogvae_tower *s)
{
    const struct cogvae_config *c = k->config;
    int64_t in = c->width[c->levels - 1];
    char at[96];

    s->in = make_conv(k, "conv_in.conv", c->latent, in, 3, 3);
    make_middle(k, s, in);
    for (int i = c->levels - 1; i >= 0; i--) {
        int block = c->levels - 1 - i;
        for (int j = 0; j <= c->layers; j++) {
            snprintf(at, sizeof at, "up_blocks.%d.resnets.%d", block, j);
            s->level[i].res[j] = make_res(k, at, in, c->width[i]);
            in = c->width[i];
        }
        snprintf(at, sizeof at, "up_blocks.%d.upsamplers.0.conv", block);
        if (i > 0)
            s->level[i].resample = make_conv(k, at, in, in, 2, 3);
    }
    s->norm = make_norm(k, "norm_out", in);
    s->out = make_conv(k, "conv_out.conv", in, c->channels, 3, 3);
}

int cogvae_create(struct cogvae *m, ckpt *c, const struct cogvae_config *config, int halves)
{
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    nn.dtype = config->dtype;
    nn.frozen = true;
    *m = (struct cogvae){.config = *config};
    struct maker k[] = {{config, nn, COGVAE_PREFIX "encoder", false},
                        {config, nn, COGVAE_PREFIX "decoder", true}};
    if (halves & COGVAE_ENCODER)
        make_encoder(&k[0], &m->encoder);
    if (halves & COGVAE_DECODER)
        make_decoder(&k[1], &m->decoder);
    return 0;
}

/* ---- sizes --------------------------------------------------------------------------------- */

int64_t cogvae_factor(const struct cogvae_config *config)
{
    return (int64_t)1 << (config->levels - 1);
}

struct autoencoder_passes cogvae_passes(int64_t frames, int64_t each)
{
    int64_t n = frames / each > 1 ? frames / each : 1;

    return (struct autoencoder_passes){n, frames - (n - 1) * each, each};
}

int64_t cogvae_encoded(const struct cogvae_config *config, int64_t frames)
{
    for (int i = 0; i < config->time_levels; i++)
        frames = frames / 2 + frames % 2;
    return frames;
}

int64_t cogvae_decoded(const struct cogvae_config *config, int64_t latents)
{
    for (int i = 0; i < config->time_levels; i++)
        latents = 2 * latents - latents % 2;
    return latents;
}

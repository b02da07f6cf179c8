/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The autoencoder over time: causal 3-D convolutions; two levels halve the number of frames.  A
 * frame depends on itself and earlier frames; a clip is padded at its start to a multiple of four.
 */
#include <stdio.h>
#include "model.h"

/* Time is halved between the last three levels only. */
static bool halves(const struct vae_widths *w, int level)
{
    return level + 1 < w->levels && level + 3 >= w->levels;
}

/* ---- parameters ---------------------------------------------------------------------------- */

static void make_blocks(const struct vae_maker *k, struct vae_res *res, const char *side, int level,
                        int64_t in, int64_t out)
{
    char at[96];

    for (int j = 0; j < k->config->temporal.layers; j++) {
        if (level < 0)
            snprintf(at, sizeof at, "%s.res_blocks.%d", side, j);
        else
            snprintf(at, sizeof at, "%s.block_res_blocks.%d.%d", side, level, j);
        res[j] = vae_make_res(k, at, j ? out : in, out);
    }
}

static void make_encoder(const struct vae_maker *k, struct vae_tower *s)
{
    const struct vae_widths *w = &k->config->temporal;
    int64_t latent = k->config->latent, in = w->width[0], last = w->width[w->levels - 1];
    char at[96];

    s->in = vae_make_conv(k, "encoder.conv_in", in, latent, 3, false);
    for (int i = 0; i < w->levels; i++) {
        make_blocks(k, s->level[i].res, "encoder", i, in, w->width[i]);
        in = w->width[i];
        snprintf(at, sizeof at, "encoder.conv_blocks.%d", i);
        if (halves(w, i))
            s->level[i].resample = vae_make_conv(k, at, in, in, 3, true);
    }
    make_blocks(k, s->middle, "encoder", -1, last, last);
    s->norm = vae_make_norm(k, "encoder.norm1", last);
    s->out = vae_make_conv(k, "encoder.conv2", 2 * latent, last, 1, true);
    s->quant = vae_make_conv(k, "quant_conv", 2 * latent, 2 * latent, 1, true);
}

static void make_decoder(const struct vae_maker *k, struct vae_tower *s)
{
    const struct vae_widths *w = &k->config->temporal;
    int64_t latent = k->config->latent, in = w->width[w->levels - 1];
    char at[96];

    s->quant = vae_make_conv(k, "post_quant_conv", latent, latent, 1, true);
    s->in = vae_make_conv(k, "decoder.conv1", in, latent, 3, true);
    make_blocks(k, s->middle, "decoder", -1, in, in);
    for (int i = w->levels - 1; i >= 0; i--) {
        make_blocks(k, s->level[i].res, "decoder", i, in, w->width[i]);
        in = w->width[i];
        snprintf(at, sizeof at, "decoder.conv_blocks.%d", i - 1);
        if (i > 0 && halves(w, i - 1))
            s->level[i].resample = vae_make_conv(k, at, 2 * in, in, 3, true);
    }
    s->norm = vae_make_norm(k, "decoder.norm1", in);
    s->out = vae_make_conv(k, "decoder.conv_out", latent, in, 3, true);
}

void vae_make_temporal(struct vae *m, ckpt *c)
{
    struct vae_maker k = {c, &m->config, "temporal_vae.", m->config.trained & VAE_TEMPORAL, true};

    make_encoder(&k, &m->temporal[0]);
    make_decoder(&k, &m->temporal[1]);
}

/* ---- recording ----------------------------------------------------------------------------- */

/* Pads time by lead zero frames, all at the start. */
static ckpt_tensor causal(ckpt_tape *t, const struct ckpt_nn_conv *w, ckpt_tensor x, int64_t stride,
                          int64_t lead)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    int64_t size = ckpt_desc_of(t, w->weight).shape[1];

    spec.stride[0] = stride;
    spec.before[0] = size - stride + lead;
    for (int i = 1; i < 3; i++)
        spec.before[i] = spec.after[i] = size / 2;
    return ckpt_conv(t, x, w->weight, w->bias, &spec);
}

static ckpt_tensor conv(ckpt_tape *t, const struct ckpt_nn_conv *w, ckpt_tensor x)
{
    return causal(t, w, x, 1, 0);
}

static struct vae_style style(const struct vae *m)
{
    return (struct vae_style){conv, 1e-5f, (int)m->config.groups, false};
}

static ckpt_tensor blocks(const struct vae *m, ckpt_tape *t, const struct vae_res *res,
                          ckpt_tensor x)
{
    struct vae_style by = style(m);

    for (int j = 0; j < m->config.temporal.layers; j++)
        x = vae_res(t, &by, &res[j], x);
    return x;
}

/* Frames missing to a multiple of four. */
static int64_t missing(int64_t frames)
{
    return (VAE_TIME - frames % VAE_TIME) % VAE_TIME;
}

static ckpt_tensor encode(const struct vae *m, ckpt_tape *t, ckpt_tensor z)
{
    const struct vae_widths *w = &m->config.temporal;
    const struct vae_tower *s = &m->temporal[0];
    struct vae_style by = style(m);

    ckpt_label(t, "temporal encoder.conv_in");
    ckpt_tensor x = causal(t, &s->in, z, 1, missing(ckpt_desc_of(t, z).shape[1]));
    for (int i = 0; i < w->levels; i++) {
        ckpt_label(t, "temporal encoder.block_res_blocks.%d", i);
        x = blocks(m, t, s->level[i].res, x);
        if (s->level[i].resample.weight.id)
            x = causal(t, &s->level[i].resample, x, 2, 0);
    }
    ckpt_label(t, "temporal encoder.res_blocks");
    x = blocks(m, t, s->middle, x);
    ckpt_label(t, "temporal encoder.conv2");
    x = conv(t, &s->out, vae_norm_silu(t, &by, &s->norm, x));
    return conv(t, &s->quant, x);
}

/* Channel 2c + i of frame f becomes channel c of frame 2f + i. */
static ckpt_tensor unshuffle(ckpt_tape *t, ckpt_tensor x)
{
    static const int order[] = {0, 1, 5, 2, 3, 4};
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t *s = d.shape;

    if (d.ndim != 5)
        return CKPT_NONE;
    x = ckpt_reshape(t, x, 6, (int64_t[]){s[0], s[1], s[2], s[3], s[4] / 2, 2});
    x = ckpt_permute(t, x, order);
    return ckpt_reshape(t, x, 5, (int64_t[]){s[0], 2 * s[1], s[2], s[3], s[4] / 2});
}

static ckpt_tensor decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t frames)
{
    const struct vae_widths *w = &m->config.temporal;
    const struct vae_tower *s = &m->temporal[1];
    struct vae_style by = style(m);

    ckpt_label(t, "temporal decoder.conv1");
    ckpt_tensor x = conv(t, &s->in, conv(t, &s->quant, z));
    ckpt_label(t, "temporal decoder.res_blocks");
    x = blocks(m, t, s->middle, x);
    for (int i = w->levels - 1; i >= 0; i--) {
        ckpt_label(t, "temporal decoder.block_res_blocks.%d", i);
        x = blocks(m, t, s->level[i].res, x);
        if (s->level[i].resample.weight.id)
            x = unshuffle(t, conv(t, &s->level[i].resample, x));
    }
    ckpt_label(t, "temporal decoder.conv_out");
    x = conv(t, &s->out, vae_norm_silu(t, &by, &s->norm, x));
    return vae_part(t, x, 1, missing(frames), missing(frames) + frames);
}

/* One tensor per chunk, up to the limit of a concat. */
static ckpt_tensor join(ckpt_tape *t, int64_t n, const ckpt_tensor *out)
{
    return n > 1 ? ckpt_concat(t, 1, (int)n, out) : out[0];
}

static int64_t chunk_of(ckpt_tape *t, int64_t frames, int64_t chunk)
{
    if (chunk < 1 || chunk > frames)
        chunk = frames;
    if ((frames + chunk - 1) / chunk > CKPT_MAX_PARTS)
        ckpt_tape_fail(t, CKPT_EINVAL,
                       "%lld frames are more than %d chunks of %lld: encode them in parts",
                       (long long)frames, CKPT_MAX_PARTS, (long long)chunk);
    return chunk;
}

ckpt_tensor vae_temporal_encode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t chunk)
{
    int64_t frames = ckpt_desc_of(t, z).shape[1], n = 0;
    ckpt_tensor out[CKPT_MAX_PARTS];

    chunk = chunk_of(t, frames, chunk);
    z = ckpt_cast(t, z, m->config.dtype);
    for (int64_t at = 0; at < frames && n < CKPT_MAX_PARTS; at += chunk)
        out[n++] = encode(m, t, vae_part(t, z, 1, at, at + chunk < frames ? at + chunk : frames));
    return join(t, n, out);
}

ckpt_tensor vae_temporal_decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t frames,
                                int64_t chunk)
{
    int64_t n = 0, from = 0;
    ckpt_tensor out[CKPT_MAX_PARTS];

    chunk = chunk_of(t, frames, chunk);
    z = ckpt_cast(t, z, m->config.dtype);
    for (int64_t at = 0; at < frames && n < CKPT_MAX_PARTS; at += chunk) {
        int64_t now = frames - at < chunk ? frames - at : chunk;
        int64_t to = from + vae_latent_frames(now, 0);
        out[n++] = decode(m, t, vae_part(t, z, 1, from, to), now);
        from = to;
    }
    return join(t, n, out);
}

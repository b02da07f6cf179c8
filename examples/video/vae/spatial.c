/* SPDX-License-Identifier: Apache-2.0 */
/* The 2-D autoencoder: frames are independent; each level but the last halves height and width. */
#include <stdio.h>
#include "model.h"

/* ---- parameters ---------------------------------------------------------------------------- */

static void make_middle(const struct vae_maker *k, struct vae_tower *s, const char *side,
                        int64_t width)
{
    static const char *const linear[] = {"to_q", "to_k", "to_v", "to_out.0"};
    struct vae_attention *a = &s->attention;
    struct ckpt_nn_linear *layer[] = {&a->q, &a->k, &a->v, &a->out};
    char at[96];

    for (int i = 0; i < 2; i++) {
        snprintf(at, sizeof at, "%s.mid_block.resnets.%d", side, i);
        s->middle[i] = vae_make_res(k, at, width, width);
    }
    snprintf(at, sizeof at, "%s.mid_block.attentions.0.group_norm", side);
    a->norm = vae_make_norm(k, at, width);
    for (int i = 0; i < 4; i++) {
        snprintf(at, sizeof at, "%s.mid_block.attentions.0.%s", side, linear[i]);
        *layer[i] = vae_make_linear(k, at, width);
    }
}

static void make_encoder(const struct vae_maker *k, struct vae_tower *s)
{
    const struct vae_widths *w = &k->config->spatial;
    int64_t latent = k->config->latent, in = w->width[0], last = w->width[w->levels - 1];
    char at[96];

    s->in = vae_make_conv(k, "encoder.conv_in", in, 3, 3, true);
    for (int i = 0; i < w->levels; i++) {
        for (int j = 0; j < w->layers; j++) {
            snprintf(at, sizeof at, "encoder.down_blocks.%d.resnets.%d", i, j);
            s->level[i].res[j] = vae_make_res(k, at, in, w->width[i]);
            in = w->width[i];
        }
        snprintf(at, sizeof at, "encoder.down_blocks.%d.downsamplers.0.conv", i);
        if (i + 1 < w->levels)
            s->level[i].resample = vae_make_conv(k, at, in, in, 3, true);
    }
    make_middle(k, s, "encoder", last);
    s->norm = vae_make_norm(k, "encoder.conv_norm_out", last);
    s->out = vae_make_conv(k, "encoder.conv_out", 2 * latent, last, 3, true);
    s->quant = vae_make_conv(k, "quant_conv", 2 * latent, 2 * latent, 1, true);
}

/* Decoder levels have the numbers of the files, in the order of execution: block 0 is the
 * widest. */
static void make_decoder(const struct vae_maker *k, struct vae_tower *s)
{
    const struct vae_widths *w = &k->config->spatial;
    int64_t latent = k->config->latent, in = w->width[w->levels - 1];
    char at[96];

    s->quant = vae_make_conv(k, "post_quant_conv", latent, latent, 1, true);
    s->in = vae_make_conv(k, "decoder.conv_in", in, latent, 3, true);
    make_middle(k, s, "decoder", in);
    for (int i = w->levels - 1; i >= 0; i--) {
        int block = w->levels - 1 - i;
        for (int j = 0; j <= w->layers; j++) {
            snprintf(at, sizeof at, "decoder.up_blocks.%d.resnets.%d", block, j);
            s->level[i].res[j] = vae_make_res(k, at, in, w->width[i]);
            in = w->width[i];
        }
        snprintf(at, sizeof at, "decoder.up_blocks.%d.upsamplers.0.conv", block);
        if (i > 0)
            s->level[i].resample = vae_make_conv(k, at, in, in, 3, true);
    }
    s->norm = vae_make_norm(k, "decoder.conv_norm_out", in);
    s->out = vae_make_conv(k, "decoder.conv_out", 3, in, 3, true);
}

void vae_make_spatial(struct vae *m, ckpt *c)
{
    struct vae_maker k = {c, &m->config, "spatial_vae.module.", false, false};

    k.trainable = m->config.trained & VAE_SPATIAL_ENCODER;
    make_encoder(&k, &m->spatial[0]);
    k.trainable = m->config.trained & VAE_SPATIAL_DECODER;
    make_decoder(&k, &m->spatial[1]);
}

/* ---- recording ----------------------------------------------------------------------------- */

/* Kernels of 3 are padded by one zero on every side, kernels of 1 are not padded. */
static ckpt_tensor conv_as(ckpt_tape *t, const struct ckpt_nn_conv *w, ckpt_tensor x,
                           bool invariant)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;

    spec.invariant = invariant;
    for (int i = 0; i < 2; i++)
        spec.before[i] = spec.after[i] = ckpt_desc_of(t, w->weight).shape[1] / 2;
    return ckpt_conv(t, x, w->weight, w->bias, &spec);
}

static ckpt_tensor conv(ckpt_tape *t, const struct ckpt_nn_conv *w, ckpt_tensor x)
{
    return conv_as(t, w, x, false);
}

static ckpt_tensor conv_invariant(ckpt_tape *t, const struct ckpt_nn_conv *w, ckpt_tensor x)
{
    return conv_as(t, w, x, true);
}

/* Stride 2, with padding on the right and at the bottom only. */
static ckpt_tensor down(ckpt_tape *t, const struct vae_style *by, const struct ckpt_nn_conv *w,
                        ckpt_tensor x)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;

    spec.invariant = by->invariant;
    for (int i = 0; i < 2; i++) {
        spec.stride[i] = 2;
        spec.after[i] = 1;
    }
    return ckpt_conv(t, x, w->weight, w->bias, &spec);
}

static ckpt_tensor up(ckpt_tape *t, const struct vae_style *by, const struct ckpt_nn_conv *w,
                      ckpt_tensor x)
{
    return by->conv(t, w, ckpt_upsample_nearest(t, x, (int64_t[]){2, 2}));
}

struct vae_style vae_spatial_style(const struct vae *m, bool invariant)
{
    return (struct vae_style){invariant ? conv_invariant : conv, 1e-6f, (int)m->config.groups,
                              invariant};
}

/* One head as wide as the model, over all positions of a frame. */
static ckpt_tensor attention(ckpt_tape *t, const struct vae_style *by,
                             const struct vae_attention *a, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t rows[] = {d.shape[0], d.shape[1] * d.shape[2], 1, d.shape[3]};
    const struct ckpt_nn_linear *layer[] = {&a->q, &a->k, &a->v};
    ckpt_tensor qkv[3], h;

    h = ckpt_reshape(t, vae_norm(t, by, &a->norm, x, false), 4, rows);
    for (int i = 0; i < 3; i++)
        qkv[i] = ckpt_nn_apply_linear(t, layer[i], h);
    h = ckpt_attention(t, qkv[0], qkv[1], qkv[2], CKPT_NONE, NULL);
    h = ckpt_nn_apply_linear(t, &a->out, h);
    return ckpt_add(t, x, ckpt_reshape(t, h, 4, d.shape));
}

/* One frame at a time if the bits must not depend on the number of frames: the library may select
 * another matrix product algorithm for more rows. */
static ckpt_tensor attend(ckpt_tape *t, const struct vae_style *by, const struct vae_attention *a,
                          ckpt_tensor x)
{
    int64_t frames = ckpt_desc_of(t, x).shape[0];
    ckpt_tensor out[CKPT_MAX_PARTS];

    if (!by->invariant || frames < 2)
        return attention(t, by, a, x);
    for (int64_t i = 0; i < frames; i++)
        out[i] = attention(t, by, a, vae_part(t, x, 0, i, i + 1));
    return ckpt_concat(t, 0, (int)frames, out);
}

ckpt_tensor vae_spatial_middle(ckpt_tape *t, const struct vae_style *by, const struct vae_tower *s,
                               ckpt_tensor x)
{
    x = vae_res(t, by, &s->middle[0], x);
    x = attend(t, by, &s->attention, x);
    return vae_res(t, by, &s->middle[1], x);
}

ckpt_tensor vae_encode_frames(const struct vae *m, ckpt_tape *t, const struct vae_style *by,
                              ckpt_tensor x)
{
    const struct vae_widths *w = &m->config.spatial;
    const struct vae_tower *s = &m->spatial[0];

    ckpt_label(t, "encoder.conv_in");
    x = by->conv(t, &s->in, x);
    for (int i = 0; i < w->levels; i++) {
        ckpt_label(t, "encoder.down_blocks.%d", i);
        for (int j = 0; j < w->layers; j++)
            x = vae_res(t, by, &s->level[i].res[j], x);
        if (i + 1 < w->levels)
            x = down(t, by, &s->level[i].resample, x);
    }
    ckpt_label(t, "encoder.mid_block");
    x = vae_spatial_middle(t, by, s, x);
    ckpt_label(t, "encoder.conv_out");
    x = by->conv(t, &s->out, vae_norm_silu(t, by, &s->norm, x));
    return by->conv(t, &s->quant, x);
}

ckpt_tensor vae_decode_frames(const struct vae *m, ckpt_tape *t, const struct vae_style *by,
                              ckpt_tensor z)
{
    const struct vae_widths *w = &m->config.spatial;
    const struct vae_tower *s = &m->spatial[1];

    ckpt_label(t, "decoder.conv_in");
    ckpt_tensor x = by->conv(t, &s->in, by->conv(t, &s->quant, z));
    ckpt_label(t, "decoder.mid_block");
    x = vae_spatial_middle(t, by, s, x);
    for (int i = w->levels - 1; i >= 0; i--) {
        ckpt_label(t, "decoder.up_blocks.%d", w->levels - 1 - i);
        for (int j = 0; j <= w->layers; j++)
            x = vae_res(t, by, &s->level[i].res[j], x);
        if (i > 0)
            x = up(t, by, &s->level[i].resample, x);
    }
    ckpt_label(t, "decoder.conv_out");
    return by->conv(t, &s->out, vae_norm_silu(t, by, &s->norm, x));
}

/* Records frames of [B, T, ...], part at a time, and concatenates the results. */
static ckpt_tensor in_parts(const struct vae *m, ckpt_tape *t, ckpt_tensor x, int64_t part,
                            ckpt_tensor (*record)(const struct vae *, ckpt_tape *,
                                                  const struct vae_style *, ckpt_tensor))
{
    struct vae_style by = vae_spatial_style(m, false);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t batch = d.shape[0], frames = d.shape[0] * d.shape[1], n = 0;
    ckpt_tensor out[CKPT_MAX_PARTS];

    if (d.ndim != 5)
        return CKPT_NONE;
    if (part < 1 || part > frames)
        part = frames;
    if ((frames + part - 1) / part > CKPT_MAX_PARTS)
        part = (frames + CKPT_MAX_PARTS - 1) / CKPT_MAX_PARTS;
    x = ckpt_cast(t, ckpt_reshape(t, x, 4, (int64_t[]){frames, d.shape[2], d.shape[3], d.shape[4]}),
                  m->config.dtype);
    for (int64_t at = 0; at < frames; at += part) {
        int64_t end = at + part < frames ? at + part : frames;
        out[n++] = record(m, t, &by, vae_part(t, x, 0, at, end));
    }
    x = n > 1 ? ckpt_concat(t, 0, (int)n, out) : out[0];
    d = ckpt_desc_of(t, x);
    return ckpt_reshape(t, x, 5,
                        (int64_t[]){batch, frames / batch, d.shape[1], d.shape[2], d.shape[3]});
}

ckpt_tensor vae_spatial_encode(const struct vae *m, ckpt_tape *t, ckpt_tensor x, int64_t part)
{
    return in_parts(m, t, x, part, vae_encode_frames);
}

ckpt_tensor vae_spatial_decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t part)
{
    return in_parts(m, t, ckpt_affine(t, z, 1.f / VAE_FACTOR, 0.f), part, vae_decode_frames);
}

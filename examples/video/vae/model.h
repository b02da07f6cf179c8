/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The video autoencoder of Open-Sora 1.2: a 2-D autoencoder of pictures, with 8 x 8 pixels per
 * cell, and a causal autoencoder over time that compresses 4 frames of latents to one.  Parameters
 * have the names of Open-Sora's files; under spatial_vae they are the names of diffusers.
 *
 * All tensors are channels last: clips [B, T, H, W, 3] with values in [-1, 1], latents [B, T, h, w,
 * Z].
 */
#ifndef VAE_MODEL_H
#define VAE_MODEL_H

#include "ckpt.h"

enum { VAE_LEVELS = 6, VAE_LAYERS = 8, VAE_LATENT = 64 }; /* at most */

/* Bits of the trained parts. */
enum { VAE_SPATIAL_ENCODER = 1, VAE_SPATIAL_DECODER = 2, VAE_TEMPORAL = 4, VAE_ALL = 7 };

/* The widths of a part, level by level. */
struct vae_widths {
    int levels;
    int64_t width[VAE_LEVELS];
    int64_t layers; /* residual blocks of a level; the 2-D decoder has one more */
};

struct vae_config {
    int64_t latent, groups;
    struct vae_widths spatial, temporal;
    enum ckpt_dtype dtype;
    unsigned trained; /* VAE_... */
};

struct vae_norm {
    ckpt_tensor weight, bias;
};

/* x + conv(silu(norm(conv(silu(norm(x)))))), with x projected by shortcut where widths differ. */
struct vae_res {
    struct vae_norm norm[2];
    struct ckpt_nn_conv conv[2], shortcut;
};

struct vae_attention {
    struct vae_norm norm;
    struct ckpt_nn_linear q, k, v, out;
};

struct vae_level {
    struct vae_res res[VAE_LAYERS + 1];
    struct ckpt_nn_conv resample; /* to the next level; no weight: no resampling */
};

/* An encoder or a decoder, spatial or temporal.  Level 0 is the one next to the pixels. */
struct vae_tower {
    struct ckpt_nn_conv in, out, quant;
    struct vae_norm norm;
    struct vae_res middle[VAE_LAYERS];
    struct vae_attention attention; /* spatial only */
    struct vae_level level[VAE_LEVELS];
};

struct vae {
    struct vae_config config;
    struct vae_tower spatial[2], temporal[2]; /* encoder, decoder */
    ckpt_tensor scale, shift;                 /* buffers [1, Z, 1, 1, 1] */
};

/* The presets "v1.2" and "tiny".  Returns false for any other name. */
bool vae_preset(struct vae_config *config, const char *name);

/* Creates the parameters in c.  Returns 0 or a code; parameter errors are sticky in c. */
int vae_create(struct vae *m, ckpt *c, const struct vae_config *config);

/* ---- sizes --------------------------------------------------------------------------------- */

enum { VAE_CHUNK = 17 /* frames that v1.2 encodes at a time */, VAE_TIME = 4 };

/* Pixels per side of a cell: 8 with four levels. */
int64_t vae_factor(const struct vae_config *config);

/* Latent frames of a clip in chunks of `chunk` frames; 0: the whole clip is one chunk. */
int64_t vae_latent_frames(int64_t frames, int64_t chunk);

/* ---- recording ----------------------------------------------------------------------------- */

/*
 * The 2-D parts, part frames at a time (0: all at once): clip [B, T, H, W, 3] to moments [B, T, h,
 * w, 2Z], and latents [B, T, h, w, Z] from vae_sample, times VAE_FACTOR, to a clip.  Frames are
 * independent, so part changes the results only by the order of sums.  For training programs;
 * vae_tiled_encode and vae_tiled_decode give the same bits for every part.
 */
#define VAE_FACTOR 0.18215f
ckpt_tensor vae_spatial_encode(const struct vae *m, ckpt_tape *t, ckpt_tensor x, int64_t part);
ckpt_tensor vae_spatial_decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t part);

/*
 * The temporal parts: latents of pictures [B, T, h, w, Z] to moments [B, T', h, w, 2Z], and back to
 * T = frames.  Chunks of chunk frames (0: one) are independent, as in v1.2.
 */
ckpt_tensor vae_temporal_encode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t chunk);
ckpt_tensor vae_temporal_decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t frames,
                                int64_t chunk);

/* The two halves of the moments, as fp32. */
struct vae_posterior {
    ckpt_tensor mean, logvar;
};
struct vae_posterior vae_posterior(ckpt_tape *t, ckpt_tensor moments);

/* A sample of the posterior; noise has the shape of mean, or is CKPT_NONE: returns the mean. */
ckpt_tensor vae_sample(ckpt_tape *t, const struct vae_posterior *p, ckpt_tensor noise);

/* Conversion between the latents of the temporal autoencoder and the latents of a diffusion model,
 * (z - shift) / scale; z and the result fp32. */
ckpt_tensor vae_normalize(const struct vae *m, ckpt *c, ckpt_tape *t, ckpt_tensor z);
ckpt_tensor vae_denormalize(const struct vae *m, ckpt *c, ckpt_tape *t, ckpt_tensor z);

/* ---- internal to the model's files --------------------------------------------------------- */

/* Creates parameters under a prefix. */
struct vae_maker {
    ckpt *c;
    const struct vae_config *config;
    char prefix[48];
    bool trainable;
    bool temporal; /* 3-D kernels, whose names end in .conv */
};

/* Convolutions with kernels of size^2 or size^3, and linear layers. */
struct ckpt_nn_conv vae_make_conv(const struct vae_maker *k, const char *name, int64_t out,
                                  int64_t in, int64_t size, bool bias);
struct ckpt_nn_linear vae_make_linear(const struct vae_maker *k, const char *name, int64_t width);
struct vae_norm vae_make_norm(const struct vae_maker *k, const char *name, int64_t width);
struct vae_res vae_make_res(const struct vae_maker *k, const char *name, int64_t in, int64_t out);
void vae_make_spatial(struct vae *m, ckpt *c);
void vae_make_temporal(struct vae *m, ckpt *c);

/* Convolution, padding and epsilon of a residual block: spatial and temporal parts differ. */
struct vae_style {
    ckpt_tensor (*conv)(ckpt_tape *t, const struct ckpt_nn_conv *w, ckpt_tensor x);
    float eps;
    int groups;
    /* Bits of a frame do not depend on the number of frames and bands: for forward-only
     * programs. */
    bool invariant;
};
/* Group norm, followed by SiLU if silu. */
ckpt_tensor vae_norm(ckpt_tape *t, const struct vae_style *s, const struct vae_norm *n,
                     ckpt_tensor x, bool silu);
ckpt_tensor vae_norm_silu(ckpt_tape *t, const struct vae_style *s, const struct vae_norm *n,
                          ckpt_tensor x);
ckpt_tensor vae_res(ckpt_tape *t, const struct vae_style *s, const struct vae_res *r,
                    ckpt_tensor x);

/* The convolution style of the 2-D part, and its middle, whose attention covers a whole frame. */
struct vae_style vae_spatial_style(const struct vae *m, bool invariant);
ckpt_tensor vae_spatial_middle(ckpt_tape *t, const struct vae_style *by, const struct vae_tower *s,
                               ckpt_tensor x);

/* The 2-D parts on frames [N, H, W, C]; decoding expects latents scaled for the decoder. */
ckpt_tensor vae_encode_frames(const struct vae *m, ckpt_tape *t, const struct vae_style *by,
                              ckpt_tensor x);
ckpt_tensor vae_decode_frames(const struct vae *m, ckpt_tape *t, const struct vae_style *by,
                              ckpt_tensor z);

/* The range [begin, end) of an axis; x itself if that is all of it. */
ckpt_tensor vae_part(ckpt_tape *t, ckpt_tensor x, int axis, int64_t begin, int64_t end);

#endif

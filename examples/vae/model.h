/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The video autoencoder of Open-Sora 1.2: a 2-D autoencoder of pictures, 8 x 8 pixels to a cell,
 * and a causal one over time that makes 4 frames of its latents to one.  The names of the
 * parameters are those of Open-Sora's files, which are those of diffusers inside spatial_vae.
 *
 * All tensors are channels last: clips [B, T, H, W, 3] with values in [-1, 1], latents
 * [B, T, h, w, Z].
 */
#ifndef VAE_MODEL_H
#define VAE_MODEL_H

#include "ckpt_nn.h"

enum { VAE_LEVELS = 6, VAE_LAYERS = 8, VAE_LATENT = 64 }; /* at most */

/* Which parts are trained. */
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

/* x + conv(silu(norm(conv(silu(norm(x)))))), with x through shortcut where widths differ. */
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
    struct ckpt_nn_conv resample; /* on the way to the next level; no weight: none */
};

/* An encoder or a decoder, of pictures or of time.  Level 0 is the one next to the pixels. */
struct vae_tower {
    struct ckpt_nn_conv in, out, quant;
    struct vae_norm norm;
    struct vae_res middle[VAE_LAYERS];
    struct vae_attention attention; /* of pictures only */
    struct vae_level level[VAE_LEVELS];
};

struct vae {
    struct vae_config config;
    struct vae_tower spatial[2], temporal[2]; /* encoder, decoder */
    ckpt_tensor scale, shift;                 /* buffers [1, Z, 1, 1, 1] */
};

/* The presets "v1.2" and "tiny".  Returns false for another name. */
bool vae_preset(struct vae_config *config, const char *name);

/* Makes the parameters in c.  Returns 0 or a code; errors of parameters stick to c. */
int vae_create(struct vae *m, ckpt *c, const struct vae_config *config);

/* ---- sizes --------------------------------------------------------------------------------- */

enum { VAE_CHUNK = 17 /* frames that v1.2 encodes at a time */, VAE_TIME = 4 };

/* Pixels of a side of a cell: 8 with four levels. */
int64_t vae_factor(const struct vae_config *config);

/* Latent frames of a clip in chunks of so many frames; 0: the whole clip is one. */
int64_t vae_latent_frames(int64_t frames, int64_t chunk);

/* ---- recording ----------------------------------------------------------------------------- */

/*
 * The 2-D parts, part frames at a time (0: all at once): clip [B, T, H, W, 3] to moments
 * [B, T, h, w, 2Z], and latents [B, T, h, w, Z] as vae_sample gives them, times VAE_FACTOR, back to
 * a clip.  Frames do not see each other, so the numbers depend on part up to the order of sums.
 * For programs that train; vae_tiled_encode and vae_tiled_decode give every part the same bits.
 */
#define VAE_FACTOR 0.18215f
ckpt_tensor vae_spatial_encode(const struct vae *m, ckpt_tape *t, ckpt_tensor x, int64_t part);
ckpt_tensor vae_spatial_decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t part);

/*
 * The temporal parts: latents of pictures [B, T, h, w, Z] to moments [B, T', h, w, 2Z], and back to
 * T = frames.  Chunks of chunk frames (0: one) know nothing of each other, as in v1.2.
 */
ckpt_tensor vae_temporal_encode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t chunk);
ckpt_tensor vae_temporal_decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, int64_t frames,
                                int64_t chunk);

/* Halves of the moments, as fp32. */
struct vae_posterior {
    ckpt_tensor mean, logvar;
};
struct vae_posterior vae_posterior(ckpt_tape *t, ckpt_tensor moments);

/* A sample of it; noise like mean, or CKPT_NONE: the mean itself. */
ckpt_tensor vae_sample(ckpt_tape *t, const struct vae_posterior *p, ckpt_tensor noise);

/* Between the latents of the temporal autoencoder and those a diffusion model sees,
 * (z - shift) / scale; z and the result fp32. */
ckpt_tensor vae_normalize(const struct vae *m, ckpt *c, ckpt_tape *t, ckpt_tensor z);
ckpt_tensor vae_denormalize(const struct vae *m, ckpt *c, ckpt_tape *t, ckpt_tensor z);

/* ---- between the files of the model -------------------------------------------------------- */

/* Makes parameters under a prefix. */
struct vae_maker {
    ckpt *c;
    const struct vae_config *config;
    char prefix[48];
    bool trainable;
    bool temporal; /* kernels over three axes, under the name of their .conv */
};

/* Kernels of size^2 or size^3, and layers that are linear, of kernels that are none. */
struct ckpt_nn_conv vae_make_conv(const struct vae_maker *k, const char *name, int64_t out,
                                  int64_t in, int64_t size, bool bias);
struct ckpt_nn_linear vae_make_linear(const struct vae_maker *k, const char *name, int64_t width);
struct vae_norm vae_make_norm(const struct vae_maker *k, const char *name, int64_t width);
struct vae_res vae_make_res(const struct vae_maker *k, const char *name, int64_t in, int64_t out);
void vae_make_spatial(struct vae *m, ckpt *c);
void vae_make_temporal(struct vae *m, ckpt *c);

/* How a residual block convolves: spatial and temporal parts differ in padding and epsilon. */
struct vae_style {
    ckpt_tensor (*conv)(ckpt_tape *t, const struct ckpt_nn_conv *w, ckpt_tensor x);
    float eps;
    int groups;
    /* Frames have the same bits however many there are, and in however many bands: for programs
     * that run forward only. */
    bool invariant;
};
/* Group norm, then SiLU where silu says so. */
ckpt_tensor vae_norm(ckpt_tape *t, const struct vae_style *s, const struct vae_norm *n,
                     ckpt_tensor x, bool silu);
ckpt_tensor vae_norm_silu(ckpt_tape *t, const struct vae_style *s, const struct vae_norm *n,
                          ckpt_tensor x);
ckpt_tensor vae_res(ckpt_tape *t, const struct vae_style *s, const struct vae_res *r,
                    ckpt_tensor x);

/* How the 2-D part convolves, and its middle, which looks at all places of a frame at once. */
struct vae_style vae_spatial_style(const struct vae *m, bool invariant);
ckpt_tensor vae_spatial_middle(ckpt_tape *t, const struct vae_style *by, const struct vae_tower *s,
                               ckpt_tensor x);

/* The 2-D parts of frames [N, H, W, C], latents being those of the decoder. */
ckpt_tensor vae_encode_frames(const struct vae *m, ckpt_tape *t, const struct vae_style *by,
                              ckpt_tensor x);
ckpt_tensor vae_decode_frames(const struct vae *m, ckpt_tape *t, const struct vae_style *by,
                              ckpt_tensor z);

/* The part [begin, end) of an axis; x itself where that is all. */
ckpt_tensor vae_part(ckpt_tape *t, ckpt_tensor x, int axis, int64_t begin, int64_t end);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The video autoencoder of CogVideoX: causal convolutions in three dimensions; a latent cell covers
 * 4 frames and 8 x 8 pixels.  Parameters have the names and shapes of diffusers'
 * AutoencoderKLCogVideoX; the results agree with it.
 *
 * All tensors are channels last: clips [T, H, W, 3] with values in [-1, 1], latents [T, h, w, Z].
 *
 * A clip is encoded or decoded in passes over some frames each.  The passes
 * are part of the model: norms read all frames of one pass and no other.  Convolutions also read
 * the last two input frames of the previous pass: their caches.  All passes of a clip are one
 * program, so a cache is a tensor like any other: the plan keeps or offloads it.
 */
#ifndef COGVIDEO_VAE_H
#define COGVIDEO_VAE_H

#include "../autoencoder.h"

enum { COGVAE_LEVELS = 6, COGVAE_LAYERS = 8, COGVAE_LATENT = 64 }; /* upper bounds */
enum { COGVAE_FRONT = 2 }; /* frames before the first one that a convolution reads */

/* The values of vae/config.json. */
struct cogvae_config {
    int levels;
    int64_t width[COGVAE_LEVELS]; /* level 0 is next to the pixels */
    int64_t layers;               /* residual blocks per level of the encoder */
    int64_t channels, latent;     /* of frames and of latents */
    int64_t groups;
    double eps;
    int time_levels;              /* number of levels that halve the frames */
    double scaling;               /* latents of the diffusion model = scaling times our latents */
    bool invert;                  /* the pipeline divides an encoded image by scaling instead */
    int64_t height, width_pixels; /* of the training frames: tiles are half of it */
    enum ckpt_dtype dtype;
};

/* The halves that have parameters. */
enum { COGVAE_ENCODER = 1, COGVAE_DECODER = 2, COGVAE_BOTH = 3 };

/* Group norm; in the decoder its result is multiplied by a(z), plus b(z), where z are the
 * latents. */
struct cogvae_norm {
    ckpt_tensor weight, bias;
    struct ckpt_nn_conv a, b; /* 1 x 1 x 1; no weight: plain norm */
};

/* x + conv(silu(norm(conv(silu(norm(x)))))); x goes through shortcut where widths differ. */
struct cogvae_res {
    struct cogvae_norm norm[2];
    struct ckpt_nn_conv conv[2], shortcut;
};

struct cogvae_level {
    struct cogvae_res res[COGVAE_LAYERS + 1];
    struct ckpt_nn_conv resample; /* per frame, before the next level; or none */
};

struct cogvae_tower {
    struct ckpt_nn_conv in, out;
    struct cogvae_norm norm;
    struct cogvae_res middle[2];
    struct cogvae_level level[COGVAE_LEVELS];
};

struct cogvae {
    struct cogvae_config config;
    struct cogvae_tower encoder, decoder;
};

/* ---- files --------------------------------------------------------------------------------- */

/* Reads DIR/config.json; does not change dtype.  Returns 0, or -1 after an error message, as do all
 * that follow. */
int cogvae_config_read(struct cogvae_config *config, const char *dir);

/* Prefix of the parameter names in the context, which may hold other models; files omit it. */
#define COGVAE_PREFIX "vae."

/* Makes the parameters of these halves in c.  Returns 0 or an error code; c keeps errors of
 * parameters. */
int cogvae_create(struct cogvae *m, ckpt *c, const struct cogvae_config *config, int halves);

/* ---- sizes --------------------------------------------------------------------------------- */

/* Pixels along the side of a latent cell. */
int64_t cogvae_factor(const struct cogvae_config *config);

/* The passes of a clip of that many frames, or latent frames when decoding.  The first pass also
 * has the remainder. */
enum { COGVAE_ENCODE_PASS = 8, COGVAE_DECODE_PASS = 2 };
struct autoencoder_passes cogvae_passes(int64_t frames, int64_t each);

/* Output frames of one pass: an odd number of frames keeps its first frame, and a single frame
 * stays one. */
int64_t cogvae_encoded(const struct cogvae_config *config, int64_t frames);
int64_t cogvae_decoded(const struct cogvae_config *config, int64_t latents);

/* ---- recording ----------------------------------------------------------------------------- */

/* Record all passes of a clip; the first one repeats its first frame in front.  See struct
 * autoencoder, whose recorder they are.  Return the last output. */
ckpt_tensor cogvae_encode(const struct cogvae *m, const struct autoencoder_clip *clip,
                          ckpt_tape *t);
ckpt_tensor cogvae_decode(const struct cogvae *m, const struct autoencoder_clip *clip,
                          ckpt_tape *t);

extern const struct autoencoder cogvideo_autoencoder;

#endif

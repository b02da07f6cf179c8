/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The video autoencoders of Wan 2.1 and 2.2: causal convolutions in three dimensions; a latent cell
 * covers 4 frames and 8 x 8 pixels (2.1) or 16 x 16 (2.2).  Parameters have the names and shapes of
 * diffusers' AutoencoderKLWan; the results agree with it.
 *
 * A clip of 4 N + 1 frames has N + 1 latent frames.  Norms act on single positions, and
 * convolutions read only their frame and earlier ones.  So a clip may be cut anywhere in time: a
 * group of frames goes through all layers, and each convolution keeps the last two frames that it
 * read, its cache, for the next group.  All groups are one program, in which a cache is a tensor
 * like any other: the plan keeps or offloads it.
 */
#ifndef WAN_VAE_H
#define WAN_VAE_H

#include "../autoencoder.h"

enum { WANVAE_LEVELS = 4, WANVAE_LAYERS = 8, WANVAE_LATENT = 64 }; /* the last two: at most */
enum { WANVAE_CACHES = 2 * (WANVAE_LEVELS * (WANVAE_LAYERS + 1) + 2) + WANVAE_LEVELS + 2 };

/* What is wrong with the "_class_name" of the original release. */
#define WANVAE_ORIGINAL                                                                            \
    "is \"WanModel\": this is the original release, whose autoencoder is a pickle; take the one "  \
    "whose name ends in -Diffusers"

/* The values of vae/config.json. */
struct wanvae_config {
    bool shortcuts;             /* around levels, without parameters (2.2) */
    int64_t patch;              /* pixels along the side of a folded cell: 1, or 2 (2.2) */
    int64_t base, decoder_base; /* the widths of levels are 1, 2, 4 and 4 times these */
    int64_t layers; /* residual blocks per level of the encoder; the decoder has 1 more */
    int64_t latent; /* channels of latents */
    double mean[WANVAE_LATENT], std[WANVAE_LATENT]; /* of latents, for the diffusion model */
    enum ckpt_dtype dtype;
};

/* cache: the index of its cache; -1: it reads single frames. */
struct wanvae_conv {
    struct ckpt_nn_conv w;
    int cache;
};

/* x + conv(silu(norm(conv(silu(norm(x)))))); x goes through shortcut where widths differ. */
struct wanvae_res {
    ckpt_tensor gamma[2];
    struct wanvae_conv conv[2], shortcut;
};

struct wanvae_level {
    struct wanvae_res res[WANVAE_LAYERS + 1];
    struct wanvae_conv space, time; /* the convolutions of its resampling, or none */
};

struct wanvae_tower {
    struct wanvae_conv in, out, quant; /* quant: 1 x 1 x 1, of moments or latents */
    struct wanvae_res middle[2];
    ckpt_tensor attention_gamma;
    struct wanvae_conv qkv, proj;
    struct wanvae_level level[WANVAE_LEVELS]; /* in the order of the forward pass */
    ckpt_tensor gamma;
    int caches;
};

struct wanvae {
    struct wanvae_config config;
    struct wanvae_tower tower; /* of the encoder or of the decoder */
};

/* Reads DIR/config.json; does not change dtype.  Returns 0, or -1 after an error message. */
int wanvae_config_read(struct wanvae_config *config, const char *dir);

/* Prefix of the parameter names in the context, which may hold other models; files omit it. */
#define WANVAE_PREFIX "vae."

/* Makes the parameters of the encoder or the decoder in c, which keeps their errors. */
void wanvae_create(struct wanvae *m, ckpt *c, bool decode);

/* Whether a level of the encoder halves the frames, or one of the decoder doubles them. */
bool wanvae_halves(int level);
bool wanvae_doubles(int level);

/* Records all passes of a clip: see struct autoencoder. */
ckpt_tensor wanvae_record(const struct wanvae *m, const struct autoencoder_clip *clip,
                          const struct autoencoder_passes *passes, ckpt_tape *t);

extern const struct autoencoder wan_autoencoder;

#endif

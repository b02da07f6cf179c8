/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The video autoencoder of CogVideoX: causal convolutions in three dimensions, 4 frames and 8 x 8
 * pixels to a cell.  Names and shapes of the parameters are those of diffusers'
 * AutoencoderKLCogVideoX, whose numbers it gives.
 *
 * All tensors are channels last: clips [T, H, W, 3] with values in [-1, 1], latents [T, h, w, Z].
 *
 * A clip is coded in passes over some frames each (struct cogvae_passes), which is part of the
 * model: norms look at all frames of a pass and at no other.  Convolutions see, in front of the
 * frames of a pass, the last two that the pass before put into them: their caches.  All passes of a
 * clip are one program, so a cache is a tensor like any other: the plan keeps or offloads it.
 */
#ifndef COGVIDEO_VAE_H
#define COGVIDEO_VAE_H

#include "ckpt_nn.h"

enum { COGVAE_LEVELS = 6, COGVAE_LAYERS = 8, COGVAE_LATENT = 64 }; /* at most */
enum { COGVAE_FRONT = 2 }; /* frames that a convolution sees before the first one */

/* As vae/config.json has it. */
struct cogvae_config {
    int levels;
    int64_t width[COGVAE_LEVELS]; /* level 0 is the one next to the pixels */
    int64_t layers;               /* residual blocks of a level of the encoder */
    int64_t channels, latent;     /* of frames and of latents */
    int64_t groups;
    double eps;
    int time_levels;              /* levels after which frames are halved */
    double scaling;               /* latents of the diffusion model are so many times ours */
    bool invert;                  /* the pipeline divides an encoded picture by that instead */
    int64_t height, width_pixels; /* of the frames it was trained with: tiles are half of it */
    enum ckpt_dtype dtype;
};

/* Which halves have parameters. */
enum { COGVAE_ENCODER = 1, COGVAE_DECODER = 2, COGVAE_BOTH = 3 };

/* Group norm; in the decoder its result is times a(z) plus b(z), z being the latents. */
struct cogvae_norm {
    ckpt_tensor weight, bias;
    struct ckpt_nn_conv a, b; /* 1 x 1 x 1; no weight: plain */
};

/* x + conv(silu(norm(conv(silu(norm(x)))))), with x through shortcut where widths differ. */
struct cogvae_res {
    struct cogvae_norm norm[2];
    struct ckpt_nn_conv conv[2], shortcut;
};

struct cogvae_level {
    struct cogvae_res res[COGVAE_LAYERS + 1];
    struct ckpt_nn_conv resample; /* of single frames, on the way to the next level; or none */
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

/* Reads DIR/config.json; dtype stays.  Returns 0, or -1 after a sentence, as all that follow. */
int cogvae_config_read(struct cogvae_config *config, const char *dir);
/* DIR itself, or DIR/vae where that has the files of the autoencoder, into dst. */
const char *cogvae_directory(char *dst, size_t size, const char *dir);

/* Parameters are called so in the context, which may hold other models; in files without it. */
#define COGVAE_PREFIX "vae."
bool cogvae_owns(const char *name);

/* Makes the parameters of these halves in c.  Returns 0 or a code; errors of parameters stick to c.
 */
int cogvae_create(struct cogvae *m, ckpt *c, const struct cogvae_config *config, int halves);
/* Their values out of DIR/diffusion_pytorch_model.safetensors; all must be there. */
int cogvae_load(struct cogvae *m, ckpt *c, const char *dir, int halves);

/* ---- sizes --------------------------------------------------------------------------------- */

/* Pixels of a side of a cell, and frames to one of latents. */
int64_t cogvae_factor(const struct cogvae_config *config);
int64_t cogvae_time(const struct cogvae_config *config);

/* The passes of a clip of so many frames, or latents when it is decoded: first, then `each` again
 * and again.  What does not divide is in the first one. */
struct cogvae_passes {
    int64_t n, first, each;
};
enum { COGVAE_ENCODE_PASS = 8, COGVAE_DECODE_PASS = 2 };
struct cogvae_passes cogvae_passes(int64_t frames, int64_t each);
int64_t cogvae_pass_frames(const struct cogvae_passes *p, int64_t pass);
int64_t cogvae_pass_begin(const struct cogvae_passes *p, int64_t pass);

/* What so many frames of one pass become: an odd number keeps its first, a single one stays. */
int64_t cogvae_encoded(const struct cogvae_config *config, int64_t frames);
int64_t cogvae_decoded(const struct cogvae_config *config, int64_t latents);
/* Of a whole clip, pass by pass. */
int64_t cogvae_clip_latents(const struct cogvae_config *config, int64_t frames);
int64_t cogvae_clip_frames(const struct cogvae_config *config, int64_t latents);

/* ---- recording ----------------------------------------------------------------------------- */

/* A clip to code, [frames, height, width] of what goes in. */
struct cogvae_clip {
    const struct cogvae *m;
    int64_t frames, height, width;
    /* Frames that a layer computes at a time, 0: all of a pass.  The bits are the same; fewer need
     * less memory and take longer. */
    int64_t slice;
};

/* Slices from the fastest to the one that needs least, so many as are returned. */
enum { COGVAE_SLICES = 4 };
int cogvae_slices(int64_t slice[COGVAE_SLICES]);

/*
 * All passes of a clip.  The inputs "in.0", "in.1", ... are fp32 [1, COGVAE_FRONT + frames of the
 * pass, height, width, channels]: the last frames of the pass before stand in front of those of a
 * pass, in the first one its own first frame, again and again.  The outputs "out.0", ... are fp32
 * [frames of the pass, ...]: moments with 2 Z channels, mean then logvar, or pixels.  Return the
 * last output.
 */
ckpt_tensor cogvae_encode(const struct cogvae_clip *clip, ckpt_tape *t);
ckpt_tensor cogvae_decode(const struct cogvae_clip *clip, ckpt_tape *t);

#endif

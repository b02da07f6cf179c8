/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The video autoencoder of examples/vae beside the diffusion model: programs of one context, so
 * that one budget holds both.  Clips become latents in chunks of 17 frames, as in Open-Sora 1.2.
 */
#ifndef STDIT_AUTOENCODER_H
#define STDIT_AUTOENCODER_H

#include "../vae/coder.h"
#include "options.h"

enum stdit_direction { STDIT_ENCODE, STDIT_DECODE, STDIT_DIRECTIONS };

struct stdit_vae {
    /* per direction: of a whole chunk, and of what a clip has left after those */
    struct vae_coder coder[STDIT_DIRECTIONS][2];
    int64_t frames, height, width;
    int64_t channels, latent_frames, rows, columns;
    float *x, *z; /* of a chunk */
};

/* The sizes of clips and of their latents; needs no device.  All return 0, or -1 after a sentence.
 */
int stdit_vae_configure(struct stdit_vae *v, const struct stdit_options *o, int64_t frames,
                        int64_t height, int64_t width);

/* Makes the autoencoder in c and loads it; to be called before other parameters are made. */
int stdit_vae_open(struct stdit_vae *v, ckpt *c, const struct stdit_options *o);
void stdit_vae_close(struct stdit_vae *v);

/*
 * Compiles the programs that encode or decode, instead of those that were there.  Parameters stand
 * below what programs work in, and a program is planned with the parameters that are known then.
 * So: these first, with least, in as few bytes as can be; then what shares the context; then these
 * once more, in whatever that leaves.
 */
int stdit_vae_compile(struct stdit_vae *v, enum stdit_direction direction, bool least);

/* A clip [frames][height][width][3] to latents [channels, latent_frames, rows, columns], and back.
 * The latents are drawn from their distribution by the number of the sample alone. */
int stdit_vae_encode(struct stdit_vae *v, int64_t sample, const uint8_t *rgb, float *z);
int stdit_vae_decode(struct stdit_vae *v, const float *z, uint8_t *rgb);

/* Whether a parameter is the autoencoder's. */
bool stdit_vae_owns(const char *name);

#endif

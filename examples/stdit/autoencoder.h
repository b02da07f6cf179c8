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

/* Clips of one size and length, and their latents. */
struct stdit_clips {
    int64_t frames, height, width; /* frames 0: none pass the autoencoder */
    int64_t latent_frames, rows, columns;
    /* of the autoencoder: the coder of a whole chunk, and of what a clip has left after those */
    int coder[STDIT_DIRECTIONS][2];
};

struct stdit_vae {
    struct vae_coder plain;                    /* of no size yet: what all coders have */
    struct vae_coder *coder[STDIT_DIRECTIONS]; /* each of one chunk, for all clips that have it */
    int n[STDIT_DIRECTIONS];
    int64_t channels; /* of latents; 0: there is no autoencoder */
    int64_t chunks;   /* of a clip, the most */
    float *x, *z;     /* the largest chunk */
};

/* Its model; needs no device, as the next does.  All return 0, or -1 after a sentence. */
int stdit_vae_configure(struct stdit_vae *v, const struct stdit_options *o);
/* The sizes of clips and of their latents. */
void stdit_vae_size(const struct stdit_vae *v, struct stdit_clips *c, int64_t frames,
                    int64_t height, int64_t width);

/* Makes the autoencoder in c and loads it; to be called before other parameters are made. */
int stdit_vae_open(struct stdit_vae *v, ckpt *c, const struct stdit_options *o);
void stdit_vae_close(struct stdit_vae *v);

/* Such clips will be encoded or decoded. */
int stdit_vae_add(struct stdit_vae *v, struct stdit_clips *c, enum stdit_direction direction);

/*
 * Compiles the programs for all clips that were added, instead of those that were there.
 * Parameters stand below what programs work in, and a program is planned with the parameters that
 * are known then.  So: these first, with least, in as few bytes as can be; then what shares the
 * context; then these once more, in whatever that leaves.
 */
int stdit_vae_compile(struct stdit_vae *v, bool least);

/* A clip [frames][height][width][3] to latents [channels, latent_frames, rows, columns], and back.
 * The latents are drawn from their distribution by the number of the sample alone. */
int stdit_vae_encode(struct stdit_vae *v, const struct stdit_clips *c, int64_t sample,
                     const uint8_t *rgb, float *z);

/* Which latent frames of a decoded clip are made again of its frames, as numbers and not as bytes;
 * chunk by chunk, so that those of the chunks around are made, too. */
struct stdit_again {
    int64_t sample, first, end;
    float *z;
};
/* again NULL: none are. */
int stdit_vae_decode(struct stdit_vae *v, const struct stdit_clips *c, const float *z, uint8_t *rgb,
                     const struct stdit_again *again);

/* The chunk that begins with frame `at`, a multiple of VAE_CHUNK: its frames; from them to its
 * latents among those of the whole clip. */
int64_t stdit_vae_chunk(const struct stdit_clips *c, int64_t at);
int stdit_vae_encode_chunk(struct stdit_vae *v, const struct stdit_clips *c, int64_t sample,
                           int64_t at, const uint8_t *rgb, float *z);

/* Whether a parameter is the autoencoder's. */
bool stdit_vae_owns(const char *name);

#endif

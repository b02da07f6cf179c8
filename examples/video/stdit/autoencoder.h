/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The video autoencoder of ../vae used with the diffusion model: its programs share one
 * context and so one budget.  Clips are encoded in chunks of 17 frames, as in Open-Sora 1.2.
 */
#ifndef STDIT_AUTOENCODER_H
#define STDIT_AUTOENCODER_H

#include "../shapes.h"
#include "../vae/coder.h"
#include "options.h"

enum stdit_direction { STDIT_ENCODE, STDIT_DECODE };

struct stdit_vae {
    struct vae_coder plain;                    /* template of all coders, without a size */
    struct vae_coder *coder[VIDEO_DIRECTIONS]; /* one per chunk size, shared by all clips */
    int n[VIDEO_DIRECTIONS];
    int64_t channels; /* of latents; 0: there is no autoencoder */
    int64_t chunks;   /* of the longest clip */
    float *x, *z;     /* buffers for the largest chunk */
};

/* Configures the model; this call and the next need no device.  All return 0, or -1 after a
 * sentence. */
int stdit_vae_configure(struct stdit_vae *v, const struct video_options *o);
/* The sizes of clips and of their latents. */
void stdit_vae_size(const struct stdit_vae *v, struct video_clips *c, int64_t frames,
                    int64_t height, int64_t width);

/* Creates the autoencoder in c and loads its weights; must precede the creation of other
 * parameters. */
int stdit_vae_open(struct stdit_vae *v, ckpt *c, const struct video_options *o);
void stdit_vae_close(struct stdit_vae *v);

/* Registers clips that will be encoded or decoded. */
int stdit_vae_add(struct stdit_vae *v, struct video_clips *c, enum stdit_direction direction);

/*
 * Compiles the programs for all registered clips, replacing earlier programs.  Parameters lie below
 * the programs' working memory, and a program is planned with the parameters known at that time.
 * So: compile these programs first with `least`, in the smallest possible memory; then the other
 * programs of the context; then these again, in the remaining memory.
 */
int stdit_vae_compile(struct stdit_vae *v, bool least);

/* Encodes a clip [frames][height][width][3] to latents [channels, latent_frames, rows, columns], or
 * decodes them.  The number of the sample alone determines the random draw of the latents. */
int stdit_vae_encode(struct stdit_vae *v, const struct video_clips *c, int64_t sample,
                     const uint8_t *rgb, float *z);

/* Latent frames [first, end) of a decoded clip that are encoded again from its frames, as numbers
 * and not as bytes.  This works on whole chunks, so latents of all frames of these chunks are
 * replaced. */
struct stdit_again {
    int64_t sample, first, end;
    float *z;
};
/* again NULL: nothing is encoded again. */
int stdit_vae_decode(struct stdit_vae *v, const struct video_clips *c, const float *z, uint8_t *rgb,
                     const struct stdit_again *again);

/* The frames of the chunk that starts at frame `at`, a multiple of VAE_CHUNK; encodes them into the
 * latents of the whole clip. */
int64_t stdit_vae_chunk(const struct video_clips *c, int64_t at);
int stdit_vae_encode_chunk(struct stdit_vae *v, const struct video_clips *c, int64_t sample,
                           int64_t at, const uint8_t *rgb, float *z);

/* Whether a parameter belongs to the autoencoder. */
bool stdit_vae_owns(const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The 2-D autoencoder band by band: the same bits, in less memory. */
#ifndef VAE_TILES_H
#define VAE_TILES_H

#include "model.h"

/* Cuts of the 2-D part: part frames at a time (0: all), each in `bands` bands of rows; blend: bands
 * are coded independently, which is approximate. */
struct vae_cut {
    int64_t part, bands;
    bool blend;
};

/*
 * vae_spatial_encode and vae_spatial_decode for forward-only programs.  Bands are exact: a
 * convolution reads the neighbour rows of its band, a norm sums all bands before it maps the first,
 * and the last level with its attention is not cut.  Every cut without blend gives the same bits:
 * these kernels' bits do not depend on the number of rows and frames.
 *
 * With cut.blend each band is coded as an independent picture, with its own statistics and
 * attention, and overlaps its neighbours by some rows; there the result is a weighted mean of both.
 */
ckpt_tensor vae_tiled_encode(const struct vae *m, ckpt_tape *t, ckpt_tensor x, struct vae_cut cut);
ckpt_tensor vae_tiled_decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, struct vae_cut cut);

/* Candidate cuts from the fastest to the smallest in memory, for planes with `rows` rows of
 * latents.  Returns their number. */
enum { VAE_CUTS = 8 }; /* at most */
int vae_cuts(struct vae_cut cut[VAE_CUTS], int64_t frames, int64_t rows);

#endif

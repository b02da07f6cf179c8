/* SPDX-License-Identifier: Apache-2.0 */
/* The 2-D autoencoder band by band: the same bits, in less memory. */
#ifndef VAE_TILES_H
#define VAE_TILES_H

#include "model.h"

/* How the 2-D part is cut: part frames at a time (0: all), each in so many bands of rows; blend:
 * these are coded apart, which is not exact. */
struct vae_cut {
    int64_t part, bands;
    bool blend;
};

/*
 * vae_spatial_encode and vae_spatial_decode for programs that run forward only.  Bands are exact:
 * a convolution sees the rows next to its band, a norm sums all bands before it maps the first, and
 * the last level with its attention is whole.  Every cut without blend gives the same bits: the
 * kernels are those whose bits do not depend on how many rows and frames they see.
 *
 * With cut.blend each band is a picture of its own, with its own statistics and attention, and goes
 * on for some rows into its neighbours; there the result is a mixture of both.
 */
ckpt_tensor vae_tiled_encode(const struct vae *m, ckpt_tape *t, ckpt_tensor x, struct vae_cut cut);
ckpt_tensor vae_tiled_decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, struct vae_cut cut);

/* Cuts from the fastest to the one that needs least, for planes with so many rows of latents.
 * Returns how many there are. */
enum { VAE_CUTS = 8 }; /* at most */
int vae_cuts(struct vae_cut cut[VAE_CUTS], int64_t frames, int64_t rows);

#endif

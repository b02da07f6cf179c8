/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The condition images of I2V training.  Each step adds noise to them and encodes them again, as in
 * the published trainers:
 *
 *   x = p / 127.5 - 1 + sigma eps, log sigma normal; image = sample of the posterior of x, scaled
 *
 * Sigma, eps and the posterior sample of an image depend only on the seed and the number of the
 * sample in the whole run.  They depend on no rank, and a resumed run continues them.
 */
#ifndef COGVIDEO_IMAGES_H
#define COGVIDEO_IMAGES_H

#include "coder.h"
#include "run.h"
#include "vae_videos.h"

struct cogvideo_images {
    struct cogvae_videos files; /* one per line of the data; n 0: none */
    struct cogvae_coder encoder;
    uint64_t seed;
    double mean, deviation; /* of log sigma */
    int64_t height, width;  /* of the images */
    uint8_t *rgb;
    float *x;
};

/* Call after the data and before the model: reads the list of --images, makes the encoder and loads
 * it.  Returns 0, or -1 after an error message, as do all below. */
int cogvideo_images_open(struct cogvideo_images *m, const struct cogvideo_run *r);
/* Makes only the encoder, for latents [h, w], in an open context. */
int cogvideo_images_join(struct cogvideo_images *m, ckpt *c, int64_t height, int64_t width);
void cogvideo_images_close(struct cogvideo_images *m);

/* least: in as few bytes as possible, until it is compiled again. */
int cogvideo_images_compile(struct cogvideo_images *m, bool least);

/* Encodes the image of a line of the data as the latents [C, 1, h, w] of that sample. */
int cogvideo_images_read(struct cogvideo_images *m, int64_t line, int64_t sample, float *image);
/* The same for the bytes in m->rgb. */
int cogvideo_images_encode(struct cogvideo_images *m, int64_t sample, float *image);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures that I2V is trained to go on from, noised and encoded anew at each step, as the
 * published trainers do it:
 *
 *     x = p / 127.5 - 1 + sigma eps,  log sigma normal;  image = sample of the posterior of x,
 * scaled
 *
 * A picture's sigma, eps and sample follow from the seed and the number of the sample alone,
 * counted over the whole run: they depend on no rank, and a run goes on with them.
 */
#ifndef COGVIDEO_IMAGES_H
#define COGVIDEO_IMAGES_H

#include "coder.h"
#include "run.h"
#include "vae_videos.h"

struct cogvideo_images {
    struct cogvae_videos files; /* of the lines of the data; n 0: there are none */
    struct cogvae_coder encoder;
    uint64_t seed;
    double mean, deviation; /* of log sigma */
    int64_t height, width;  /* of pictures */
    uint8_t *rgb;
    float *x;
};

/* Behind the data and before the model: reads the list of --images, makes the encoder and loads it.
 * Returns 0, or -1 after a sentence, as all below. */
int cogvideo_images_open(struct cogvideo_images *m, const struct cogvideo_run *r);
/* The encoder alone, of latents [h, w], in a context. */
int cogvideo_images_join(struct cogvideo_images *m, ckpt *c, int64_t height, int64_t width);
void cogvideo_images_close(struct cogvideo_images *m);

/* least: in as few bytes as can be, until it is compiled again. */
int cogvideo_images_compile(struct cogvideo_images *m, bool least);

/* The picture of a line of the data as latents [C, 1, h, w] of that sample. */
int cogvideo_images_read(struct cogvideo_images *m, int64_t line, int64_t sample, float *image);
/* The same of the bytes in m->rgb. */
int cogvideo_images_encode(struct cogvideo_images *m, int64_t sample, float *image);

#endif

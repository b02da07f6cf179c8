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
#ifndef VIDEO_IMAGES_H
#define VIDEO_IMAGES_H

#include "coder.h"
#include "run.h"
#include "../common/video.h"

struct video_images {
    struct video_list files; /* one per line of the data; n 0: none */
    struct video_coder encoder;
    uint64_t seed;
    double mean, deviation; /* of log sigma */
    int64_t height, width;  /* of the images */
    uint8_t *rgb;
    float *x;
};

/* Call after the data and before the model: reads the list of --images, makes the encoder and loads
 * it.  Returns 0, or -1 after an error message, as do all below. */
int video_images_open(struct video_images *m, const struct video_run *r);
/* Makes only the encoder, for latents [h, w], in an open context. */
int video_images_join(struct video_images *m, ckpt *c, int64_t height, int64_t width);
void video_images_close(struct video_images *m);

/* least: in as few bytes as possible, until it is compiled again. */
int video_images_compile(struct video_images *m, bool least);

/* Encodes the image of a line of the data as the latents [C, 1, h, w] of that sample. */
int video_images_read(struct video_images *m, int64_t line, int64_t sample, float *image);
/* The same for the bytes in m->rgb. */
int video_images_encode(struct video_images *m, int64_t sample, float *image);

#endif

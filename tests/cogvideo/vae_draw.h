/* SPDX-License-Identifier: Apache-2.0 */
/* Weights and inputs derived from names, the same as in make_vae_reference.py, and a model
 * directory with them. */
#ifndef TESTS_COGVIDEO_VAE_DRAW_H
#define TESTS_COGVIDEO_VAE_DRAW_H

#include "examples/video/cogvideo/vae.h"

/* n numbers in [-0.5, 0.5) with 24 bits, times scale. */
void vae_draw(const char *name, float scale, float *dst, int64_t n);

/* Writes DIR/config.json and weights with the shapes of the parameters of c. */
struct vae_drawn {
    int levels;
    int64_t width[4], layers, groups;
};

/* Two that are small. */
extern const struct vae_drawn vae_four, vae_three;

/* A context of the device that "make check-gpu" names, or of the CPU, with freed bytes poisoned. */
ckpt *vae_draw_context(int64_t vram, int64_t host);

void vae_draw_config(const char *dir, const struct vae_drawn *d);
void vae_draw_weights(const char *dir, ckpt *c);

/* Both, in DIR. */
void vae_draw_model(const char *dir, const struct vae_drawn *d);
/* The stored part of a result, in the folder of a model in tests/, malloc'ed; *n: how many
 * values. */
float *vae_expected(const char *model, const char *name, int64_t *n);
/* Largest difference between every step-th value of y and e [n], divided by the largest of e. */
double vae_difference(const float *y, int64_t step, const float *e, int64_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A 3-D U-Net in the manner of nnU-Net (Isensee et al. 2021): two convolutions a level, each with
 * instance norm and leaky ReLU; strides of 2 in the encoder, nearest-neighbour upsampling in the
 * decoder. */
#ifndef ZOO_UNET_H
#define ZOO_UNET_H

#include "ckpt.h"

enum { UNET_LEVELS = 8 };

struct unet_shape {
    int64_t levels;          /* 1 to UNET_LEVELS: an axis is halved levels - 1 times */
    int64_t width, widest;   /* channels of the first level, doubled at each level up to widest */
    int64_t inputs, classes; /* input and output channels */
    enum ckpt_dtype dtype;
};

struct unet_layer { /* a convolution, instance norm, leaky ReLU */
    struct ckpt_nn_conv conv;
    struct ckpt_nn_norm norm; /* of each channel: weight and bias */
};

struct unet {
    struct unet_shape shape;
    struct unet_layer down[UNET_LEVELS][2], up[UNET_LEVELS][2];
    struct ckpt_nn_conv head;
};

void unet_create(struct unet *m, ckpt *c, const struct unet_shape *shape);

/* Logits [N, D, H, W, classes] of x [N, D, H, W, inputs], in the dtype of the model.  D, H and W
 * are multiples of 2^(levels - 1).  invariant: see struct ckpt_conv_spec. */
ckpt_tensor unet_apply(const struct unet *m, ckpt_tape *t, ckpt_tensor x, bool invariant);

#endif

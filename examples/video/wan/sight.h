/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder of a picture for I2V of Wan 2.1: the vision tower of CLIP (Radford et al. 2021), in
 * the format of transformers' CLIPVisionModel.  Its features are the result of the last layer but
 * one, without a norm.  As the text encoder it has a context of its own, and weights that exceed
 * the budget are fetched while the previous layer computes.
 */
#ifndef WAN_SIGHT_H
#define WAN_SIGHT_H

#include "../../common/video.h"
#include "ckpt.h"

struct sight_config {
    int64_t width, heads, inner, layers; /* layers: those that are computed */
    int64_t side, patch;                 /* pixels along a picture, along a patch */
    double eps;
    double mean[3], deviation[3]; /* of pixels from 0 to 1: of the processor */
};

struct sight {
    struct sight_config config;
    enum ckpt_dtype dtype;
    ckpt_tensor cls, positions, patches; /* parameters: [D], [rows, D], [D, 3, p, p] */
    struct ckpt_nn_norm norm;
    struct ckpt_nn_transformer_layer *layer; /* [config.layers] */
    ckpt *context;
    ckpt_program *program; /* owned by the context */
    float *x;              /* a picture as it is fed */
};

/* The directory of the encoder: image_encoder in that of a model, or the directory itself. */
const char *sight_path(const char *directory, char path[4096]);

/* The settings of the processor that prepares its pictures, beside the encoder or in its directory;
 * NULL: there are none, and CLIP's own hold. */
const char *sight_processor(const char *encoder, char path[4096]);

/* Reads the settings of the encoder and of its processor.  Returns 0, or -1 after an error message,
 * as do all below. */
int sight_config(struct sight_config *c, const char *directory);

/* Reads these settings, opens a context with those options, compiles, and loads the weights unless
 * only a plan is requested.  Close it in any case. */
int sight_open(struct sight *s, const struct ckpt_options *library, const char *directory,
               enum ckpt_dtype dtype);
void sight_close(struct sight *s);

/* Rows of the features of a picture. */
int64_t sight_rows(const struct sight_config *c);

/* Checks that a transformer that reads these features was trained with such an encoder. */
int sight_check(const struct sight *s, const char *directory, int64_t rows, int64_t width);

/* The first frame of an open file as bytes [side, side, 3]: scaled by its shorter side and cropped
 * in the middle. */
int sight_read(const struct sight_config *c, struct video *v, uint8_t *rgb);

/* The features [rows, width] of such bytes. */
int sight_encode(struct sight *s, const uint8_t *rgb, float *features);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of a CogVideoX transformer, from the config.json that diffusers writes beside it. */
#ifndef COGVIDEO_CONFIG_H
#define COGVIDEO_CONFIG_H

#include "ckpt.h"

struct cogvideo_config {
    int64_t heads, head, layers;
    int64_t width; /* heads times head width */
    int64_t in_channels, out_channels;
    int64_t time_width;   /* width of the embedded timestep */
    int64_t ofs_width;    /* width of the embedded offset of 1.5-I2V; 0: no offset */
    int64_t text_width;   /* width of the text features */
    int64_t text_tokens;  /* tokens of a prompt */
    int64_t patch;        /* side of a patch */
    int64_t patch_frames; /* latent frames of a patch; 1 in the 1.0 models */
    bool flat_patch;      /* the patch projection is a matrix, as in the 1.5 models */
    int64_t sample_frames, sample_height,
        sample_width;               /* training size: frames, latent rows, columns */
    int64_t compression;            /* video frames per latent frame */
    double space_scale, time_scale; /* of the sin-cos table */
    double eps;                     /* of the layer norms except the norms of q and k */
    bool rotary;                    /* q and k of the video have a rotary embedding */
    bool learned;                   /* the file has the position table; if neither, computed */
};

/* Reads a config.json, given as its path, its directory or a directory with
 * transformer/config.json.  Returns 0, or -1 after an error message. */
int cogvideo_config_read(struct cogvideo_config *c, const char *path);

/* "CogVideoX 2B", "CogVideoX 1.5 I2V" or similar. */
const char *cogvideo_config_name(const struct cogvideo_config *c);

/* Whether the model has an image condition beside the noisy latents. */
static inline bool cogvideo_has_image(const struct cogvideo_config *c)
{
    return c->in_channels > c->out_channels;
}

/* Latent frames of a video. */
static inline int64_t cogvideo_latent_frames(const struct cogvideo_config *c, int64_t frames)
{
    return (frames - 1) / c->compression + 1;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of a CogVideoX transformer, from the config.json that diffusers writes beside it. */
#ifndef COGVIDEO_CONFIG_H
#define COGVIDEO_CONFIG_H

#include "ckpt.h"

struct cogvideo_config {
    int64_t heads, head, layers;
    int64_t width; /* heads times head */
    int64_t in_channels, out_channels;
    int64_t time_width;   /* of the embedded timestep */
    int64_t ofs_width;    /* of the embedded offset of 1.5-I2V; 0: there is none */
    int64_t text_width;   /* of the text features */
    int64_t text_tokens;  /* of a prompt */
    int64_t patch;        /* side of a patch */
    int64_t patch_frames; /* latent frames of a patch; of the 1.0 models 1 */
    bool flat_patch;      /* the projection of patches is a matrix, as of the 1.5 models */
    int64_t sample_frames, sample_height,
        sample_width;               /* trained on: frames, latent rows, columns */
    int64_t compression;            /* video frames of a latent frame */
    double space_scale, time_scale; /* of the sin-cos table */
    double eps;                     /* of the layer norms but those of q and k */
    bool rotary;                    /* q and k of the video are turned */
    bool learned;                   /* the position table is in the file; neither: it is computed */
};

/* From a config.json, the directory where it is, or one with transformer/config.json.  Returns 0,
 * or -1 after a sentence. */
int cogvideo_config_read(struct cogvideo_config *c, const char *path);

/* Frames, rows and columns of a video, of which 0 stands for any, must make whole latents.  Returns
 * 0, or -1 after a sentence. */
int cogvideo_check_video(const struct cogvideo_config *c, int64_t frames, int64_t height,
                         int64_t width);

/* "CogVideoX 2B", "CogVideoX 1.5 I2V" or the like. */
const char *cogvideo_config_name(const struct cogvideo_config *c);

/* The weights are trained on a condition beside the noisy latents. */
static inline bool cogvideo_has_image(const struct cogvideo_config *c)
{
    return c->in_channels > c->out_channels;
}

/* Latent frames of a video. */
static inline int64_t cogvideo_latent_frames(const struct cogvideo_config *c, int64_t frames)
{
    return (frames - 1) / c->compression + 1;
}

/* Latent frames that make whole patches: the first one stands twice where they do not. */
static inline int64_t cogvideo_whole_frames(const struct cogvideo_config *c, int64_t latents)
{
    return (latents + c->patch_frames - 1) / c->patch_frames * c->patch_frames;
}

#endif

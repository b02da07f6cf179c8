/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of a Wan transformer: from the config.json that diffusers writes beside it, or from the
 * shapes of the weights, where a file of the original code or of ComfyUI comes alone. */
#ifndef WAN_CONFIG_H
#define WAN_CONFIG_H

#include "ckpt.h"

enum { WAN_POSITIONS = 1024 /* of the rotary embedding, on each axis */ };
enum { WAN_SIGHT = 257 /* rows of the features of a picture */ };

/* The two models of A14B share the denoising: one predicts above a noise level, one below it. */
enum wan_expert { WAN_HIGH, WAN_LOW };

struct wan_config {
    int64_t heads, head, layers;
    int64_t width;    /* heads times head width */
    int64_t inner;    /* width inside a feed-forward layer */
    int64_t channels; /* of the latents, and of the output */
    bool has_image;   /* a mask of 4 channels and the latents of a picture follow the noise */
    int64_t sight;    /* width of CLIP's features of the picture (I2V of 2.1); 0: it reads none */
    bool first;       /* a given first frame is clean and has the timestep 0 (TI2V) */
    int64_t frequencies;
    int64_t text_width, text_tokens;
    double eps;
    double boundary; /* of the two experts, a noise level in (0, 1); 0: one model */
};

/*
 * Reads the configuration of a directory of diffusers, of its transformer, of a config.json or of
 * weights.  files: receives the directory or file of the weights of that expert.  Returns 0, or -1
 * after an error message.
 */
int wan_config_read(struct wan_config *c, const char *path, enum wan_expert expert,
                    char files[4096]);

/* "Wan TI2V-5B" or similar. */
const char *wan_config_name(const struct wan_config *c);

/* Channels that the patch projection reads. */
static inline int64_t wan_in_channels(const struct wan_config *c)
{
    return c->has_image ? 4 + 2 * c->channels : c->channels;
}

#endif

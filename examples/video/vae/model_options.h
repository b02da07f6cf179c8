/* SPDX-License-Identifier: Apache-2.0 */
/* Options that select the autoencoder, for all programs of this directory. */
#ifndef VAE_MODEL_OPTIONS_H
#define VAE_MODEL_OPTIONS_H

#include "ckpt_tools.h"
#include "model.h"

struct vae_model_options {
    const char *model, *dtype, *spatial_widths, *temporal_widths;
    int64_t latent, groups, spatial_layers, temporal_layers;
};

#define VAE_MODEL_OPTIONS_INIT                                                                     \
    {                                                                                              \
        .model = "tiny"                                                                            \
    }

extern const struct ckpt_option vae_model_table[];

/* The preset, overridden by the given options; trained is left at 0.  Returns 0, or -1 after a
 * sentence. */
int vae_model_configure(const struct vae_model_options *o, struct vae_config *config);

/* Loads weights.  Also accepts the names of a file with only the 2-D part, and older names of
 * diffusers.  With partial, parts may be missing.  Returns 0, or -1 after a sentence. */
int vae_load(ckpt *c, const char *path, bool partial);

#endif

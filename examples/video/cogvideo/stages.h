/* SPDX-License-Identifier: Apache-2.0 */
/* The sampling stages before and after the transformer: an encoder of prompts in a context of its
 * own, and the decoder of latents. */
#ifndef COGVIDEO_STAGES_H
#define COGVIDEO_STAGES_H

#include "../../text/captions.h"
#include "coder.h"
#include "options.h"

/* Checks the names of solver and guidance in the options.  Returns 0, or -1 after an error
 * message. */
int cogvideo_check_drawing(const struct cogvideo_options *o);

struct cogvideo_prompts {
    struct prompts list;
    struct text_features features;
};

/* Whether the options have prompts to encode. */
bool cogvideo_has_prompts(const struct cogvideo_options *o);

/* Reads the prompts and tokenizes them.  Returns 0, or -1 after an error message, as do all
 * below. */
int cogvideo_prompts_read(struct cogvideo_prompts *p, const struct cogvideo_options *o);
/* Encodes the prompts under the library's options; show: prints the plan. */
int cogvideo_prompts_encode(struct cogvideo_prompts *p, const struct cogvideo_options *o,
                            bool show);
/* Moves the features into *y, malloc'ed [n, tokens, width]. */
int cogvideo_prompts_take(struct cogvideo_prompts *p, float **y);
void cogvideo_prompts_close(struct cogvideo_prompts *p);

/* Reads the config of the autoencoder that the options name and checks it against the latents of
 * the model. */
int cogvideo_coder_configure(struct cogvae_coder *k, const struct cogvideo_options *o, bool decode);

#endif

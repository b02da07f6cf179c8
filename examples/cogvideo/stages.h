/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in front of the transformer and behind it when clips are drawn: prompts, which an
 * encoder in a context of its own turns into features, and the decoder of latents. */
#ifndef COGVIDEO_STAGES_H
#define COGVIDEO_STAGES_H

#include "../text/captions.h"
#include "coder.h"
#include "options.h"

/* Whether there are the solver and the guidance that the options name.  Returns 0, or -1 after a
 * sentence. */
int cogvideo_check_drawing(const struct cogvideo_options *o);

struct cogvideo_prompts {
    struct prompts list;
    struct text_features features;
};

/* Whether the options have prompts for the encoder. */
bool cogvideo_has_prompts(const struct cogvideo_options *o);

/* Reads them and cuts them into tokens.  Returns 0, or -1 after a sentence, as all below. */
int cogvideo_prompts_read(struct cogvideo_prompts *p, const struct cogvideo_options *o);
/* Encodes them under the options of the library; show: prints the plan. */
int cogvideo_prompts_encode(struct cogvideo_prompts *p, const struct cogvideo_options *o,
                            bool show);
/* Moves their features into *y, malloc'ed [n, tokens, width]. */
int cogvideo_prompts_take(struct cogvideo_prompts *p, float **y);
void cogvideo_prompts_close(struct cogvideo_prompts *p);

/* Reads the config of the autoencoder of the options, which codes latents of their model. */
int cogvideo_coder_configure(struct cogvae_coder *k, const struct cogvideo_options *o, bool decode);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Text of clips from prompts, by the text encoder. */
#ifndef STDIT_CAPTION_H
#define STDIT_CAPTION_H

#include "../text/captions.h"
#include "dataset.h"

/* The prompt with what Open-Sora 1.x appends, each where it was asked for and the prompt does not
 * have it: " aesthetic score: 6.5.", " motion score: 5.0.", " camera motion: pan left.".  To be
 * freed; NULL without memory. */
char *stdit_prompt_text(const struct stdit_options *o, const char *prompt);

/* Texts on their way to y and mask of d, a row each. */
struct stdit_captions {
    struct text_captions how;
    struct text_features features;
};

/* Tokens of texts; how they are read follows from the options. */
int stdit_captions_read(struct stdit_captions *c, const struct prompts *texts,
                        const struct stdit_options *o);
/* Encodes them: the encoder has the budget to itself, and its memory is free again behind it.  Of a
 * plan alone the rows are zeros.  Both return 0, or -1 after a sentence. */
int stdit_captions_encode(struct stdit_captions *c, struct stdit_data *d,
                          const struct ckpt_options *library);
void stdit_captions_close(struct stdit_captions *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Text of clips from prompts, computed by the text encoder. */
#ifndef STDIT_CAPTION_H
#define STDIT_CAPTION_H

#include "../../text/captions.h"
#include "dataset.h"

/* The prompt with the parts that Open-Sora 1.x appends, each if requested and not yet in the
 * prompt: " aesthetic score: 6.5.", " motion score: 5.0.", " camera motion: pan left.".  The caller
 * frees it; NULL: out of memory. */
char *stdit_prompt_text(const struct video_options *o, const char *prompt);

/* Texts before they become y and mask of d, one row each. */
struct stdit_captions {
    struct text_captions how;
    struct text_features features;
};

/* Tokenizes texts as the options say. */
int stdit_captions_read(struct stdit_captions *c, const struct prompts *texts,
                        const struct video_options *o);
/* Encodes the texts: the encoder has the whole budget and frees its memory afterwards.  With
 * --plan-only the rows are zeros.  Both return 0, or -1 after a sentence. */
int stdit_captions_encode(struct stdit_captions *c, struct video_data *d,
                          const struct ckpt_options *library);
void stdit_captions_close(struct stdit_captions *c);

#endif

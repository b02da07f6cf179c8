/* SPDX-License-Identifier: Apache-2.0 */
/* Text of clips from prompts, by the text encoder. */
#ifndef STDIT_CAPTION_H
#define STDIT_CAPTION_H

#include "dataset.h"

/* The prompt with what Open-Sora 1.x appends, each where it was asked for and the prompt does not
 * have it: " aesthetic score: 6.5.", " motion score: 5.0.", " camera motion: pan left.".  To be
 * freed; NULL without memory. */
char *stdit_prompt_text(const struct stdit_options *o, const char *prompt);

/* Encodes --prompt or --prompts: y and mask of d, a row each.  The encoder has the budget to
 * itself: its memory is free again before the diffusion model is made.  Of a plan alone the rows
 * are zeros. Returns 0, or -1 after a sentence. */
int stdit_data_prompts(struct stdit_data *d, const struct stdit_options *o);

#endif

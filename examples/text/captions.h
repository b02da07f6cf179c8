/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prompts of a sampler.  First the host tokenizes them; then an encoder in a context of its own
 * computes the features.  That context is closed before the next model is opened, so the two never
 * share the budget.
 */
#ifndef TEXT_CAPTIONS_H
#define TEXT_CAPTIONS_H

#include "features.h"
#include "prompts.h"

struct text_captions {
    const char *from; /* option or file of the prompts, for messages */
    const char *encoder;
    const char *tokenizer; /* NULL: the tokenizer in encoder */
    const struct ckpt_options *library;
};

/* Fills in the tokens of f; the caller sets its family, type and length.  Opens f for the prompts;
 * the caller closes it.  Returns 0, or -1 after an error message, as does the next. */
int text_captions_read(const struct text_captions *c, const struct prompts *p,
                       struct text_features *f);

/* Opens the encoder, sets the width of f and encodes; with the library's plan_only it stops after
 * the plan.  show: prints the plan. */
int text_captions_encode(const struct text_captions *c, struct text_features *f, bool show);

/* Converts the rows of f to fp32 in y [n, length, width]; zeros where nothing was encoded. */
void text_captions_rows(const struct text_features *f, float *y);

#endif

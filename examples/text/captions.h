/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts of a sampler: tokens first, on the host, then features by an encoder in a context of its
 * own, which is closed before the next model is opened, so the two never share the budget.
 */
#ifndef TEXT_CAPTIONS_H
#define TEXT_CAPTIONS_H

#include "features.h"
#include "prompts.h"

struct text_captions {
    const char *from; /* option or file that the prompts came from, for notes */
    const char *encoder;
    const char *tokenizer; /* NULL: the one in encoder */
    const struct ckpt_options *library;
};

/* Fills the tokens of f, whose family, type and length are set; f is opened for the prompts and to
 * be closed.  Returns 0, or -1 after a sentence, as the next. */
int text_captions_read(const struct text_captions *c, const struct prompts *p,
                       struct text_features *f);

/* Opens the encoder, sets the width of f and encodes; with plan_only of the library it stops behind
 * the plan.  show: prints the plan. */
int text_captions_encode(const struct text_captions *c, struct text_features *f, bool show);

/* The rows of f as fp32 into y [n, length, width]; zeros where nothing was encoded. */
void text_captions_rows(const struct text_features *f, float *y);

#endif

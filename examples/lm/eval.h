/* SPDX-License-Identifier: Apache-2.0 */
/* Questions with exact answers: a model is measured by the share that it answers exactly. */
#ifndef LM_EVAL_H
#define LM_EVAL_H

#include "chat.h"

struct eval_item {
    int32_t *id; /* tokens of the question, and of the beginning of the answer's turn */
    int64_t n;
    char *answer; /* without white space at its ends */
};

struct eval {
    struct eval_item *item;
    int64_t n;
};

/* What the tokens of questions must keep. */
struct eval_opening {
    const struct chat *chat; /* template NULL: questions are plain text */
    const struct tokenizer *tokenizer;
    int64_t length, limit; /* fewer tokens than this, each below the other */
};

/*
 * Reads objects with "prompt", a text or messages, or "messages", and "answer".  Returns 0, or -1
 * after an error message; close e in either case.
 */
int eval_open(struct eval *e, const char *path, const struct eval_opening *how);
void eval_close(struct eval *e);

/* Whether a text is the answer, but for white space at both ends.  Changes the text. */
bool eval_is_right(const struct eval_item *item, char *text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The table by which SentencePiece normalizes text, as tokenizer.json has it ("Precompiled"). */
#ifndef TOKENIZER_CHARSMAP_H
#define TOKENIZER_CHARSMAP_H

#include "parts.h"

struct charsmap;

/* base64: the table.  Returns 0, or -1 after an error message. */
int charsmap_open(struct charsmap **m, const char *path, const char *base64);
void charsmap_close(struct charsmap *m);
/* Appends a character with its marks, normalized.  Returns 0, or -1 without memory. */
int charsmap_apply(const struct charsmap *m, const char *text, int64_t bytes, struct text *to);

#endif

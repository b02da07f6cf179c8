/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizes prompts for T5, as Hugging Face's tokenizer does. */
#ifndef TEXT_TOKENS_H
#define TEXT_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

struct pieces;
struct tokenizer;

struct t5_tokenizer {
    struct pieces *pieces;  /* of spiece.model, or NULL */
    struct tokenizer *json; /* of tokenizer.json, or NULL */
    int32_t count;          /* of tokens, without the 100 sentinels behind those of spiece.model */
    int32_t pad, end, unk;  /* token numbers */
};

/* Opens a spiece.model or a tokenizer.json (transformers 5 writes only this one), given as its path
 * or its directory, in which spiece.model comes first.  Returns 0, or -1 after an error message. */
int t5_tokenizer_open(struct t5_tokenizer *t, const char *path);
void t5_tokenizer_close(struct t5_tokenizer *t);

/*
 * Writes the tokens of a text to ids [length]: its pieces, then </s>, then <pad> up to the
 * end.  A longer text is cut so that </s> stays last.  </s>, <pad>, <unk> and <extra_id_0> ...
 * <extra_id_99> in the text become the tokens with these names, and split the text around them.
 * *tokens: the number of tokens with </s>, before the cut.  Returns 0, or -1 after an error
 * message.
 */
int t5_tokenizer_encode(const struct t5_tokenizer *t, const char *text, int32_t *ids,
                        int64_t length, int64_t *tokens);

#endif

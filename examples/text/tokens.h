/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts to tokens of T5, as Hugging Face's tokenizer makes them. */
#ifndef TEXT_TOKENS_H
#define TEXT_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

struct pieces;

struct t5_tokenizer {
    struct pieces *pieces;
    int32_t count;         /* of pieces; the 100 sentinels stand behind them */
    int32_t pad, end, unk; /* what a spiece.model calls them */
};

/* A spiece.model, or the directory that has one.  Returns 0, or -1 after a sentence. */
int t5_tokenizer_open(struct t5_tokenizer *t, const char *path);
void t5_tokenizer_close(struct t5_tokenizer *t);

/*
 * The tokens of a text into ids [length]: its pieces, then </s> once, then <pad> up to the end.
 * What is too long is cut so that </s> stays last.  </s>, <pad>, <unk> and <extra_id_0> ...
 * <extra_id_99> are the tokens of these names wherever they stand, and cut the text around them.
 * *tokens: how many there are with </s>, before the cut.  Returns 0, or -1 after a sentence.
 */
int t5_tokenizer_encode(const struct t5_tokenizer *t, const char *text, int32_t *ids,
                        int64_t length, int64_t *tokens);

#endif

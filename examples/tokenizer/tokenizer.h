/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to tokens and back, with the ids that Hugging Face's AutoTokenizer gives: byte-level BPE
 * (GPT-2, Llama 3, Qwen 2.5), BPE with pieces of SentencePiece (Llama 2, Mistral, Gemma) and
 * Unigram (T5, UMT5), from tokenizer.json or from vocab.json with merges.txt; or a token per byte.
 * A setting of the files that would change ids and is not supported is refused by name.
 */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

struct tokenizer {
    bool bytes;                 /* each byte is a token, and there are no parts */
    int32_t n;                  /* tokens are below this */
    struct tokenizer_parts *is; /* parts.h */
    char alphabet[256];         /* every byte value, as text of single-byte tokens */
};

/*
 * path: tokenizer.json, vocab.json (with merges.txt beside it), or a directory with one of them;
 * NULL or "bytes": bytes.  A tokenizer_config.json beside tokenizer.json is read, too.  Returns 0,
 * or -1 after an error message.
 */
int tokenizer_open(struct tokenizer *t, const char *path);
void tokenizer_close(struct tokenizer *t);

/* Whether a directory contains a tokenizer. */
bool tokenizer_is_in(const char *directory);

/* The tokens of a text, malloc'ed with room for one more, and their number; with the tokens that
 * the post-processor puts before and behind every text, tokenizer_before of them before.  NULL
 * after an error message that begins with path.  user: the tokenizer (a token_encoder). */
int32_t *tokenizer_encode(void *user, const char *path, const char *text, int64_t bytes,
                          int64_t *n);
int64_t tokenizer_before(const struct tokenizer *t);

/* A place in a text: how many tokens end there or before, and how many begin before it.  These
 * differ where a token lies on both sides. */
struct tokenizer_cut {
    int64_t at, begin, end;
};

/*
 * The tokens of a text alone, as tokenizer_encode without those before and behind.  plain: of each
 * byte, whether it can be in no special token; NULL: each can.  Fills in the cuts, whose places
 * ascend.
 */
int32_t *tokenizer_encode_parts(const struct tokenizer *t, const char *path, const char *text,
                                int64_t bytes, const bool *plain, struct tokenizer_cut *cut,
                                int64_t cuts, int64_t *n);

/* Whether the number is that of a special token. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t token);

/* The text of "bos_token" or another key of tokenizer_config.json; NULL: it has none. */
const char *tokenizer_config_text(const struct tokenizer *t, const char *key);

/* The text of a token, and its bytes; 0 bytes for an unknown token. */
const char *tokenizer_decode(const struct tokenizer *t, int32_t token, int32_t *bytes);

/* Whether a token of WordPiece continues a word. */
bool tokenizer_continues(const struct tokenizer *t, int32_t token);

/* The token with this name in the files, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *name);

#endif

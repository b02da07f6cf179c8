/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to tokens and back: byte by byte, or by byte-level BPE (Radford et al. 2019) as GPT-2,
 * Llama 3 and Qwen 2.5 have it in their tokenizer.json, or in vocab.json and merges.txt.
 */
#ifndef LM_TOKENIZER_H
#define LM_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

struct splitter; /* cuts text in pieces, by a regular expression */

/* Two neighbours that become one token. */
struct bpe_pair {
    int32_t left, right; /* tokens; left -1: an empty place of the table */
    int32_t rank, token; /* pairs of lower rank are joined first; what they become */
};

struct tokenizer {
    bool bytes;      /* a token is a byte, and all below is empty */
    int32_t n;       /* tokens are below this */
    char **text;     /* bytes of each token, or NULL */
    int32_t *length; /* how many */
    int32_t of_byte[256];
    struct bpe_pair *pair; /* a hash table of `pairs` places, a power of 2 */
    int64_t pairs;
    int32_t *special; /* tokens that stand for themselves in text, as <|endoftext|> */
    int32_t n_special;
    bool begins_special[256];  /* whether one begins with this byte */
    char alphabet[256];        /* every byte, for tokens that are bytes */
    struct token_names *names; /* tokens by their bytes */
    bool whole_first;          /* a piece that is a token is not merged from its bytes */
    struct splitter *split;
};

/*
 * path: tokenizer.json, vocab.json (with merges.txt beside it), or a directory with one of them;
 * NULL or "bytes": bytes.  Returns 0, or -1 after a sentence.
 */
int tokenizer_open(struct tokenizer *t, const char *path);
void tokenizer_close(struct tokenizer *t);

/* Whether a directory has a tokenizer. */
bool tokenizer_is_in(const char *directory);

/* A token_encoder (tokens.h); user is the tokenizer. */
int32_t *tokenizer_encode(void *user, const char *path, const char *text, int64_t bytes,
                          int64_t *n);

/* The bytes of a token and how many; none for one that there is not. */
const char *tokenizer_decode(const struct tokenizer *t, int32_t token, int32_t *bytes);

/* The token of these bytes, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *bytes, int64_t n);

/* ---- between the files of the tokenizer ------------------------------------------------------ */

/* Merges a piece of text into dst, which has room for a token a byte.  Returns how many there are,
 * or -1 without memory. */
int64_t bpe_merge(const struct tokenizer *t, const char *piece, int64_t bytes, int32_t *dst);

/* The place of a pair in the table: where it is or would be. */
struct bpe_pair *bpe_find(const struct tokenizer *t, int32_t left, int32_t right);

/* Returns 0, or -1 after a sentence: a pattern that is none, or a program without PCRE2. */
int splitter_open(struct splitter **s, const char *path, const char *pattern);
void splitter_close(struct splitter *s);
/* Calls take for each piece in order.  Returns 0, what take returned, or -1 after a sentence. */
int splitter_run(const struct splitter *s, const char *path, const char *text, int64_t bytes,
                 int (*take)(void *user, const char *piece, int64_t bytes), void *user);

#endif

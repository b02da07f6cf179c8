/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to tokens and back: one token per byte, or byte-level BPE (Radford et al. 2019), as GPT-2,
 * Llama 3 and Qwen 2.5 have it in tokenizer.json, or in vocab.json and merges.txt.
 */
#ifndef LM_TOKENIZER_H
#define LM_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

struct splitter; /* splits text into pieces, by a regular expression */

/* Two neighbouring tokens that merge into one. */
struct bpe_pair {
    int32_t left, right; /* left -1: an empty slot of the table */
    int32_t rank, token; /* pairs of lower rank merge first; token: the result */
};

struct tokenizer {
    bool bytes;      /* each byte is a token, and the members below are empty */
    int32_t n;       /* tokens are below this */
    char **text;     /* bytes of each token, or NULL */
    int32_t *length; /* bytes in each text */
    int32_t of_byte[256];
    struct bpe_pair *pair; /* a hash table of `pairs` slots, a power of 2 */
    int64_t pairs;
    int32_t *special; /* tokens written literally in text, as <|endoftext|> */
    int32_t n_special;
    bool begins_special[256];  /* whether a special token begins with this byte */
    char alphabet[256];        /* every byte value, as text of single-byte tokens */
    struct token_names *names; /* tokens by their bytes */
    bool whole_first;          /* a piece that is itself a token is not built by merges */
    struct splitter *split;
};

/*
 * path: tokenizer.json, vocab.json (with merges.txt beside it), or a directory with one of them;
 * NULL or "bytes": bytes.  Returns 0, or -1 after an error message.
 */
int tokenizer_open(struct tokenizer *t, const char *path);
void tokenizer_close(struct tokenizer *t);

/* Whether a directory contains a tokenizer. */
bool tokenizer_is_in(const char *directory);

/* A token_encoder (tokens.h); user is the tokenizer. */
int32_t *tokenizer_encode(void *user, const char *path, const char *text, int64_t bytes,
                          int64_t *n);

/* The bytes of a token, and their number; 0 bytes for an unknown token. */
const char *tokenizer_decode(const struct tokenizer *t, int32_t token, int32_t *bytes);

/* The token with these bytes, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *bytes, int64_t n);

/* ---- shared by the files of the tokenizer ---------------------------------------------------- */

/* Merges a piece of text into dst, which has room for one token per byte.  Returns the number of
 * tokens, or -1 if memory is short. */
int64_t bpe_merge(const struct tokenizer *t, const char *piece, int64_t bytes, int32_t *dst);

/* The slot of a pair: the one that holds it, or the empty one where it belongs. */
struct bpe_pair *bpe_find(const struct tokenizer *t, int32_t left, int32_t right);

/* Returns 0, or -1 after an error message: the pattern is invalid, or PCRE2 is missing. */
int splitter_open(struct splitter **s, const char *path, const char *pattern);
void splitter_close(struct splitter *s);
/* Calls take for each piece in order.  Returns 0, the first nonzero value of take, or -1 after an
 * error message. */
int splitter_run(const struct splitter *s, const char *path, const char *text, int64_t bytes,
                 int (*take)(void *user, const char *piece, int64_t bytes), void *user);

#endif

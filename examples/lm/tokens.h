/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens in files: shards as llm.c and LLMQ write them, and text that is read byte by byte.  Files
 * are read where a batch needs them, never held: memory does not grow with the data, and a file
 * that shrinks or a disk that fails is a sentence.
 */
#ifndef LM_TOKENS_H
#define LM_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

struct token_shard {
    char *path;
    int64_t count;      /* tokens */
    int64_t begin;      /* byte at which they begin */
    int64_t mask_begin; /* byte at which a bit a token begins, 1: it is trained on; 0: no mask */
    int64_t vocabulary; /* tokens are below this; 0: the file does not say */
    int width;          /* bytes of a token: 1, 2 or 4 */
    int32_t *held;      /* the tokens themselves, of text that a tokenizer encoded; or NULL */
};

struct tokens {
    struct token_shard *shard; /* in the order of their names */
    int n;
    int64_t count;
    int open, fd; /* the shard whose file is open, and its descriptor; -1: none */
};

/* What a file is, by its first bytes. */
enum token_kind { TOKENS_LLMC, TOKENS_LLMQ, TOKENS_TEXT };

/*
 * Opens all files that a pattern of the shell matches.  encode turns text into tokens (*n of them,
 * malloc'ed); NULL: a byte is a token.  Returns 0, or -1 after a sentence.
 */
typedef int32_t *(*token_encoder)(void *user, const char *path, const char *text, int64_t bytes,
                                  int64_t *n);
int tokens_open(struct tokens *t, const char *pattern, token_encoder encode, void *user);
void tokens_close(struct tokens *t);

/*
 * Reads n tokens of a shard from `first` on.  trained (may be NULL) becomes whether each is trained
 * on.  A token that is not below limit is an error.  Returns 0, or -1 after a sentence.
 */
int tokens_read(struct tokens *t, int shard, int64_t first, int64_t n, int64_t limit, int32_t *dst,
                bool *trained);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens in files: shards in the formats of llm.c and LLMQ, and text as bytes.  Batches are read
 * from the files when needed, so memory does not grow with the data.  A file that shrinks or a disk
 * that fails gives an error message.
 */
#ifndef LM_TOKENS_H
#define LM_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

struct token_shard {
    char *path;
    int64_t count;      /* tokens */
    int64_t begin;      /* byte offset of the first token */
    int64_t mask_begin; /* byte offset of the mask, one bit per token, 1: trained on; 0: no mask */
    int64_t vocabulary; /* tokens are below this; 0: not in the file */
    int width;          /* bytes per token: 1, 2 or 4 */
    int32_t *held;      /* tokens of text that a tokenizer encoded; or NULL */
    bool *held_trained; /* of each of these, whether it is trained on; NULL: all are */
};

struct tokens {
    struct token_shard *shard; /* sorted by name */
    int n;
    int64_t count;
    int open, fd; /* the shard whose file is open (-1: none), and its descriptor */
};

/* The type of a file, from its first bytes. */
enum token_kind { TOKENS_LLMC, TOKENS_LLMQ, TOKENS_TEXT };

/*
 * Opens all files that match a shell pattern, or the one file with that name.  encode turns text
 * into tokens (*n of them, malloc'ed); NULL: each byte is a token.  Returns 0, or -1 after an error
 * message.
 */
typedef int32_t *(*token_encoder)(void *user, const char *path, const char *text, int64_t bytes,
                                  int64_t *n);
int tokens_open(struct tokens *t, const char *pattern, token_encoder encode, void *user);
void tokens_close(struct tokens *t);

/* Checks n tokens of a shard from `first` on: each must be below limit.  Returns 0, or -1 after an
 * error message. */
int tokens_check(const struct token_shard *s, int64_t first, int64_t n, int64_t limit,
                 const int32_t *ids);

/*
 * Reads n tokens of a shard from `first` on.  trained (may be NULL) receives whether each one is
 * trained on.  A token >= limit is an error.  Returns 0, or -1 after an error message.
 */
int tokens_read(struct tokens *t, int shard, int64_t first, int64_t n, int64_t limit, int32_t *dst,
                bool *trained);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the features of captions in chunks, for the shards of a cache or for another store of
 * the caller.  The text encoder has a context of its own, which is closed with the pass.
 */
#ifndef CACHE_CAPTION_PASS_H
#define CACHE_CAPTION_PASS_H

#include "../../text/features.h"
#include "../../text/reader.h"
#include "cache.h"

struct caption_pass {
    /* set by the caller */
    const struct ckpt_options *library;
    const char *encoder, *tokenizer; /* tokenizer NULL: the tokenizer in encoder */
    const char *from;                /* source of the captions, for messages */
    enum text_family family;
    enum ckpt_dtype dtype;
    int64_t length; /* tokens of a caption */
    /* The caption of a row, NULL: it has none; the name of a row, written to dst. */
    const char *(*caption)(void *user, int64_t row);
    const char *(*name)(void *user, int64_t row, char dst[CACHE_PATH]);
    void *user;
    /* private */
    struct text_reader reader;
    struct text_encoder model;
    struct text_features features; /* of the current rows */
    bool masked;                   /* attention skips padding, so it is not stored */
};

/* Opens tokenizer and encoder; close p also after a failure.  All return 0, or -1 after an error
 * message. */
int caption_pass_open(struct caption_pass *p);
/* Prints which captions were cut or cleaned only in part. */
void caption_pass_report(const struct caption_pass *p);
void caption_pass_close(struct caption_pass *p);

/* Computes the features of n rows from `first` on, into p->features until the next call. */
int caption_pass_make(struct caption_pass *p, int64_t first, int64_t n);
/* The number of tokens stored for row i of them. */
int64_t caption_pass_tokens(const struct caption_pass *p, int64_t i);
/* Computes a shard of n rows and writes it to path. */
int caption_pass_shard(struct caption_pass *p, const char *path, uint64_t setup, int64_t first,
                       int64_t n);

/* Adds the inputs of the features to a cache's setup: type, tokens, checksums of encoder and
 * tokenizer.  Returns 0, or -1 after an error message. */
int caption_pass_describe(json_t *setup, const char *encoder, const char *tokenizer,
                          const char *dtype, int64_t tokens);
/* Sets key to the checksum of a path. */
int cache_put_sum(json_t *j, const char *key, const char *path);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captions to features, so many at a time: into shards of a cache, or wherever their owner puts
 * them.  The text encoder has a context of its own, and is gone when the pass is closed.
 */
#ifndef CACHE_CAPTION_PASS_H
#define CACHE_CAPTION_PASS_H

#include "../text/features.h"
#include "../text/reader.h"
#include "cache.h"

struct caption_pass {
    /* what the caller sets */
    const struct ckpt_options *library;
    const char *encoder, *tokenizer; /* tokenizer NULL: the one in encoder */
    const char *from;                /* where the captions come from, for notes */
    enum text_family family;
    enum ckpt_dtype dtype;
    int64_t length; /* tokens of a caption */
    /* The caption of a row, NULL: it has none; the name of a row, into dst. */
    const char *(*caption)(void *user, int64_t row);
    const char *(*name)(void *user, int64_t row, char dst[CACHE_PATH]);
    void *user;
    /* its own */
    struct text_reader reader;
    struct text_encoder model;
    struct text_features features; /* of the rows that are made */
    bool masked;                   /* padding is not read, so not stored */
    struct names without;          /* rows that have no caption */
};

/* Opens tokenizer and encoder; p is to be closed in any case.  All return 0, or -1 after a
 * sentence. */
int caption_pass_open(struct caption_pass *p);
/* Says which captions were cut, not cleaned whole or missing. */
void caption_pass_report(const struct caption_pass *p);
void caption_pass_close(struct caption_pass *p);

/* The features of n rows from `first` on, in p->features until the next call. */
int caption_pass_make(struct caption_pass *p, int64_t first, int64_t n);
/* Tokens of row i of them that are stored. */
int64_t caption_pass_tokens(const struct caption_pass *p, int64_t i);
/* Makes a shard of them, as a file there. */
int caption_pass_shard(struct caption_pass *p, const char *path, uint64_t setup, int64_t first,
                       int64_t n);

/* What features follow from, as a cache tells it: type, tokens, sums of encoder and tokenizer.
 * Returns 0, or -1 after a sentence. */
int caption_pass_describe(json_t *setup, const char *encoder, const char *tokenizer,
                          const char *dtype, int64_t tokens);
/* Sets the sum of a path in a description. */
int cache_put_sum(json_t *j, const char *key, const char *path);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captions of the videos that are trained on, encoded before the first step: each different one
 * once, its tokens that count.  They are kept in host memory or, with --text DIR, in shards there,
 * which are mapped: ranks make them together, and a later run finds them.
 */
#ifndef STDIT_TEXTS_H
#define STDIT_TEXTS_H

#include "../cache/cache.h"
#include "../text/prompts.h"

struct stdit_texts {
    int64_t rows; /* different captions; 0: text is not of this kind */
    int64_t width;
    struct prompts caption; /* [rows] */
    int64_t *of;            /* [rows of the data] which */
    uint64_t sum;           /* of all captions */
    struct cache cache;     /* rows 0: they are in memory */
    uint8_t **row;          /* [rows]: features of a caption */
    int64_t *tokens;        /* [rows]: of each */
    int64_t longest;
    bool half; /* they are bf16 */
};

struct stdit_data;
struct stdit_options;

/* Whether the options ask for it. */
bool stdit_texts_asked(const struct stdit_options *o);
/* Lists the captions of d->videos; plans the encoder, or opens files that need none.  Both return
 * 0, or -1 after a sentence; t is to be closed then, too. */
int stdit_texts_open(struct stdit_texts *t, struct stdit_data *d, const struct stdit_options *o);
/* Whether the encoder is to run, as far as can be seen. */
bool stdit_texts_lack(const struct stdit_texts *t, const struct stdit_options *o);
/* Encodes what is not there, for the ranks of c. */
int stdit_texts_make(struct stdit_texts *t, const struct stdit_data *d,
                     const struct stdit_options *o, ckpt *c);
void stdit_texts_close(struct stdit_texts *t);

/* The features of a caption into y [tokens, width], zeros behind them.  Returns how many count. */
int64_t stdit_texts_read(const struct stdit_texts *t, int64_t row, int64_t tokens, float *y);

#endif

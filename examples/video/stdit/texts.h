/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captions of the training videos, encoded before the first step: each distinct caption once, valid
 * tokens only.  They are kept in host memory or, with --text DIR, in memory-mapped shards there:
 * ranks write them together, and a later run reuses them.
 */
#ifndef STDIT_TEXTS_H
#define STDIT_TEXTS_H

#include "../cache/cache.h"
#include "../../text/prompts.h"

struct stdit_texts {
    int64_t rows; /* distinct captions; 0: the data has no such text */
    int64_t width;
    struct prompts caption; /* [rows] */
    int64_t *of;            /* [rows of the data] index of the caption */
    uint64_t sum;           /* hash of all captions */
    struct cache cache;     /* rows 0: the features are in memory */
    uint8_t **row;          /* [rows]: features of a caption */
    int64_t *tokens;        /* [rows]: of each */
    int64_t longest;
    bool half; /* they are bf16 */
};

struct stdit_data;
struct video_options;

/* Whether the options request encoded captions. */
bool stdit_texts_asked(const struct video_options *o);
/* Lists the captions of d->videos; plans the encoder, or opens existing files.  Both return 0, or
 * -1 after a sentence; the caller closes t in both cases. */
int stdit_texts_open(struct stdit_texts *t, struct stdit_data *d, const struct video_options *o);
/* Whether the encoder must run, as far as is known now. */
bool stdit_texts_lack(const struct stdit_texts *t, const struct video_options *o);
/* Encodes the missing captions, on the ranks of c. */
int stdit_texts_make(struct stdit_texts *t, const struct stdit_data *d,
                     const struct video_options *o, ckpt *c);
void stdit_texts_close(struct stdit_texts *t);

/* Reads the features of a caption into y [tokens, width], followed by zeros.  Returns the number of
 * valid tokens. */
int64_t stdit_texts_read(const struct stdit_texts *t, int64_t row, int64_t tokens, float *y);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captions of the training videos, encoded before the first step: each distinct caption once, valid
 * tokens only.  They are kept in host memory or, with --text DIR, in memory-mapped shards there:
 * ranks write them together, and a later run reuses them.
 */
#ifndef VIDEO_TEXTS_H
#define VIDEO_TEXTS_H

#include "cache/cache.h"
#include "../text/prompts.h"
#include "../text/reader.h"

struct video_texts {
    enum text_family reader; /* how the model reads captions */
    const char *family;      /* in the setup of the shards */
    int64_t rows;            /* distinct captions; 0: the data has no such text */
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

struct video_data;
struct video_options;

/* Whether the options request encoded captions. */
bool video_texts_asked(const struct video_options *o);
/* reader and family are set.  Lists the captions of d->videos; plans the encoder, or opens existing
 * files.  Both return 0, or -1 after a sentence; the caller closes t in both cases. */
int video_texts_open(struct video_texts *t, struct video_data *d, const struct video_options *o);
/* Whether the encoder must run, as far as is known now. */
bool video_texts_lack(const struct video_texts *t, const struct video_options *o);
/* Encodes the missing captions, on the ranks of c. */
int video_texts_make(struct video_texts *t, const struct video_data *d,
                     const struct video_options *o, ckpt *c);
void video_texts_close(struct video_texts *t);

/* Reads the features of a caption into y [tokens, width], followed by zeros.  Returns the number of
 * valid tokens. */
int64_t video_texts_read(const struct video_texts *t, int64_t row, int64_t tokens, float *y);

#endif

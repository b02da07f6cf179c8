/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token by token: one program reads a whole text and leaves the keys and values of each layer in
 * caches, and another reads one token more, adds its own and sees all of them.  Caches are state of
 * the context (ckpt_cache), which both programs share.
 */
#ifndef LM_DECODE_H
#define LM_DECODE_H

#include "model.h"

struct lm_decoder {
    const struct lm *model;
    ckpt *context;
    ckpt_program *whole, *next; /* owned by the context */
    int64_t samples, length;    /* texts side by side; the longest one, with what is added */
    int64_t at;                 /* tokens that were read */
    int32_t *text;              /* [samples][length]: they */
    ckpt_tensor *cache;         /* [layers][2]: keys and values [samples, length, heads, head] */
    float *scores;              /* [samples][vocabulary], behind the last token */
};

/* Makes the caches, as all parameters before the first program is compiled; length >= 2.  Then
 * compiles both programs.  Return 0, or -1 after a sentence. */
int lm_decoder_make(struct lm_decoder *d, const struct lm *model, ckpt *c, int64_t samples,
                    int64_t length);
int lm_decoder_compile(struct lm_decoder *d);
void lm_decoder_close(struct lm_decoder *d);

/* Reads the same text, of 1 <= n < length tokens, for all samples.  Returns 0, or -1 after a
 * sentence; scores are then those of the token behind it. */
int lm_decoder_begin(struct lm_decoder *d, const int32_t *tokens, int64_t n);

/* Reads a token more of each sample.  A text that has become too long goes on from its second
 * half.  Returns as above. */
int lm_decoder_next(struct lm_decoder *d, const int32_t *tokens);

/* How a token is chosen from its scores. */
struct lm_choice {
    double temperature; /* of the softmax; 0: the highest score */
    int64_t top_k;      /* among the highest; 0: all */
    double top_p;       /* among the likeliest that have so much together; 1: all */
};

/* u in [0, 1) decides.  Returns the token, or -1 without memory. */
int32_t lm_choose(const struct lm_choice *how, const float *scores, int64_t n, float u);

#endif

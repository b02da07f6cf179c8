/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoding token by token: one program processes a whole text and writes the keys and values of
 * each layer to caches.  Another program processes one more token, appends its keys and values, and
 * attends to all of them.  Caches are state of the context (ckpt_cache), which both programs share.
 */
#ifndef LM_DECODE_H
#define LM_DECODE_H

#include "model.h"

struct lm_decoder {
    const struct lm *model;
    ckpt *context;
    ckpt_program *whole, *next; /* owned by the context */
    int64_t samples, length;    /* texts decoded in parallel; longest text, new tokens included */
    int64_t at;                 /* tokens processed so far */
    int32_t *text;              /* [samples][length]: these tokens */
    ckpt_tensor *cache;         /* [layers][2]: keys and values [samples, length, heads, head] */
    float *scores;              /* [samples][vocabulary], for the next token */
};

/* Makes the caches, then compiles both programs.  Like all parameters, caches must be made before
 * the first program is compiled; length >= 2.  Return 0, or -1 after an error message. */
int lm_decoder_make(struct lm_decoder *d, const struct lm *model, ckpt *c, int64_t samples,
                    int64_t length);
int lm_decoder_compile(struct lm_decoder *d);
void lm_decoder_close(struct lm_decoder *d);

/* Processes the same text of n tokens, 1 <= n < length, for all samples.  Returns 0, or -1 after an
 * error message; scores then hold the next token's scores. */
int lm_decoder_begin(struct lm_decoder *d, const int32_t *tokens, int64_t n);

/* Processes one more token of each sample.  A text that has reached `length` continues from its
 * second half.  Returns as above. */
int lm_decoder_next(struct lm_decoder *d, const int32_t *tokens);

/* How a token is sampled from the scores. */
struct lm_choice {
    double temperature; /* of the softmax; 0: take the highest score */
    int64_t top_k;      /* sample among the k highest scores; 0: all */
    double top_p; /* sample among the likeliest tokens that reach this total probability; 1: all */
    /* scores of tokens that the text has are divided by it, negative ones multiplied; 1: not */
    double repetition;
};

/* Applies how->repetition to scores [n] for each of `count` tokens, once.  Returns 0, or -1 if
 * memory is short. */
int lm_penalize(const struct lm_choice *how, float *scores, int64_t n, const int32_t *tokens,
                int64_t count);

/* u in [0, 1) is the random number.  Returns the token, or -1 if memory is short. */
int32_t lm_choose(const struct lm_choice *how, const float *scores, int64_t n, float u);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts to features, a batch of them a pass: the model in a context of its own, so that its
 * memory is free again when it is closed.  Weights that the budget has no room for come from host
 * memory or a file while the layer before computes.
 */
#ifndef TEXT_ENCODER_H
#define TEXT_ENCODER_H

#include "t5.h"
#include "tokens.h"

/* How a video model reads prompts. */
enum text_family { TEXT_OPENSORA, TEXT_COGVIDEOX };

struct text_reading {
    int64_t length; /* tokens that all prompts are padded to, or cut */
    bool masked;    /* padding is not read, and a mask says what is */
    bool cleaned;   /* captions are cleaned first: see clean.h */
};

/* Of Open-Sora 1.2, and of CogVideoX 1.0.  Returns 0, or -1 after a sentence. */
int text_family(const char *name, enum text_family *family);
struct text_reading text_reading(enum text_family family);

struct text_encoder {
    struct t5 model;
    struct text_reading reading;
    ckpt *context;
    ckpt_program *program; /* owned by the context */
    int64_t batch, width;
    enum ckpt_dtype dtype;
};

/* Where the encoder and its tokenizer are in that directory: it may be the encoder's, or that of a
 * whole model with text_encoder/ and tokenizer/ in it.  Both are paths to be used at once. */
const char *text_model_path(const char *directory, char path[4096]);
const char *text_tokenizer_path(const char *directory, char path[4096]);

/* Opens a context with those options and compiles the encoder of that directory for batches; loads
 * its weights but for plans alone.  Returns 0, or -1 after a sentence. */
int text_encoder_open(struct text_encoder *e, const struct ckpt_options *library,
                      const char *directory, enum ckpt_dtype dtype, struct text_reading reading,
                      int64_t batch);
void text_encoder_close(struct text_encoder *e);

/* Whether a tokenizer of so many pieces is the model's.  Returns 0, or -1 after a sentence. */
int text_encoder_check(const struct text_encoder *e, int64_t pieces);

/* Hands a batch over: ids [batch, length], lengths [batch] (not looked at without a mask).  Two may
 * be under way.  Returns 0, or -1 after a sentence. */
int text_encoder_submit(struct text_encoder *e, const int32_t *ids, const int32_t *lengths);
/* Waits for the oldest, [batch, length, width] of the dtype.  Returns 0, or -1 after a sentence. */
int text_encoder_take(struct text_encoder *e, void *rows);

/* Bytes of the features of one prompt. */
int64_t text_encoder_row(const struct text_encoder *e);

#endif

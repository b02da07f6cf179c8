/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the features of prompts in batches.  The model has a context of its own, so closing it
 * frees its memory.  Weights that exceed the budget are fetched from host memory or a file while
 * the previous layer computes.
 */
#ifndef TEXT_ENCODER_H
#define TEXT_ENCODER_H

#include "clean.h"
#include "t5.h"
#include "tokens.h"

/* The video model that reads the prompts. */
enum text_family { TEXT_OPENSORA, TEXT_COGVIDEOX, TEXT_WAN };

struct text_reading {
    int64_t length; /* all prompts are padded or cut to this number of tokens */
    bool masked;    /* attention skips padding, whose features are zeros */
    enum text_cleaning cleaning;
};

/* The settings of Open-Sora 1.2, CogVideoX 1.0 and Wan.  Returns 0, or -1 after an error
 * message. */
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

/* The paths of the encoder and its tokenizer in a directory: the encoder's own, or a whole model's
 * with text_encoder/ and tokenizer/.  Return `path` or `directory`. */
const char *text_model_path(const char *directory, char path[4096]);
const char *text_tokenizer_path(const char *directory, char path[4096]);

/* Opens a context with those options and compiles the encoder in that directory for batches; loads
 * the weights unless only a plan is requested.  Returns 0, or -1 after an error message. */
int text_encoder_open(struct text_encoder *e, const struct ckpt_options *library,
                      const char *directory, enum ckpt_dtype dtype, struct text_reading reading,
                      int64_t batch);
void text_encoder_close(struct text_encoder *e);

/* Checks that a tokenizer with that many pieces fits the model.  Returns 0, or -1 after an error
 * message. */
int text_encoder_check(const struct text_encoder *e, int64_t pieces);

/* Submits a batch: ids [batch, length], lengths [batch] (ignored without a mask).  Two batches may
 * be in flight.  Returns 0, or -1 after an error message. */
int text_encoder_submit(struct text_encoder *e, const int32_t *ids, const int32_t *lengths);
/* Waits for the oldest batch and copies its features, [batch, length, width] of the dtype.  Returns
 * 0, or -1 after an error message. */
int text_encoder_take(struct text_encoder *e, void *rows);

/* Bytes of the features of one prompt. */
int64_t text_encoder_row(const struct text_encoder *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2, Llama 3 and Qwen 2.5: decoders whose parameters have Hugging Face's names. */
#ifndef LM_MODEL_H
#define LM_MODEL_H

#include "ckpt.h"
#include "config.h"

struct lm {
    struct lm_config config;
    enum ckpt_dtype dtype;
    struct ckpt_nn_embedding tokens, places; /* places: GPT-2's learned positions */
    struct ckpt_nn_transformer_layer *block; /* [config.layers] */
    struct ckpt_nn_norm norm;
    ckpt_tensor head; /* [vocabulary, width]: its own tensor, or the embedding's where tied */
};

/* Makes the parameters in c.  Returns 0 or CKPT_ENOMEM; other errors are recorded in c. */
int lm_create(struct lm *m, ckpt *c, const struct lm_config *config, enum ckpt_dtype dtype);
void lm_free(struct lm *m);

/* Records the model up to the last norm: tokens i32 [B, T], result [B, T, width]. */
ckpt_tensor lm_hidden(const struct lm *m, ckpt_tape *t, ckpt_tensor tokens);

/* Records the loss from the result x of lm_hidden: the mean over all targets (i32 [B, T]) except
 * DATASET_IGNORED ones.  chunk: as in ckpt_cross_entropy_spec. */
ckpt_tensor lm_cross_entropy(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor targets,
                             int64_t chunk);

/* Rows [N, width] to scores [N, vocabulary], fp32. */
ckpt_tensor lm_scores(const struct lm *m, ckpt_tape *t, ckpt_tensor rows);

/* Training FLOPs per token, as published figures count them: 6 per parameter of a matrix product,
 * plus attention to `length` tokens. */
double lm_token_flops(const struct lm_config *c, int64_t length);

/* ---- shared by the files of the model ------------------------------------------------------ */

/* Embeddings of tokens i32 [B, T]: [B, T, width].  lm_embed_at: of one token per sample, i32 [B],
 * at positions i32 [B]: [B, width]. */
ckpt_tensor lm_embed(const struct lm *m, ckpt_tape *t, ckpt_tensor tokens);
ckpt_tensor lm_embed_at(const struct lm *m, ckpt_tape *t, ckpt_tensor token, ckpt_tensor place);

/* The table for ckpt_rope, or CKPT_NONE where positions are learned. */
ckpt_tensor lm_rope(const struct lm *m, ckpt_tape *t, int64_t length);

/* Fills in the cosines and sines [length, head / 2, 2] of the rotary embedding. */
void lm_rope_table(const struct lm_config *c, int64_t length, float *table);

#endif

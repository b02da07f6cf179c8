/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2, Llama 3 and Qwen 2.5: decoders under the names that Hugging Face gives their parameters.
 */
#ifndef LM_MODEL_H
#define LM_MODEL_H

#include "ckpt_nn.h"
#include "config.h"

struct lm_block {
    struct ckpt_nn_norm norm1, norm2;
    struct ckpt_nn_attention attention;
    struct ckpt_nn_mlp mlp;
};

struct lm {
    struct lm_config config;
    enum ckpt_dtype dtype;
    struct ckpt_nn_embedding tokens, places; /* places: learned, of GPT-2 */
    struct lm_block *block;                  /* config.layers of them */
    struct ckpt_nn_norm norm;
    ckpt_tensor head; /* [vocabulary, width]: its own, or that of the embedding */
};

/* Makes the parameters in c.  Returns 0 or CKPT_ENOMEM; other errors stick to c. */
int lm_create(struct lm *m, ckpt *c, const struct lm_config *config, enum ckpt_dtype dtype);
void lm_free(struct lm *m);

/* Records the model: tokens i32 [B, T], the result [B, T, width] behind the last norm. */
ckpt_tensor lm_hidden(const struct lm *m, ckpt_tape *t, ckpt_tensor tokens);

/* Records the loss: the mean over all targets (i32 [B, T]) but those that are not trained on. */
ckpt_tensor lm_loss(const struct lm *m, ckpt_tape *t, ckpt_tensor tokens, ckpt_tensor targets);

/* The same of what lm_hidden gave. */
ckpt_tensor lm_cross_entropy(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor targets);

/* Rows [N, width] to scores [N, vocabulary], fp32. */
ckpt_tensor lm_scores(const struct lm *m, ckpt_tape *t, ckpt_tensor rows);

/* What the weights take in flops of a token, as published figures count: 6 times the parameters of
 * products, and attention to `length` tokens. */
double lm_token_flops(const struct lm_config *c, int64_t length);

/* ---- between the files of the model -----------------------------------------------------------
 */

/* The embedding of tokens i32 [B, T], [B, T, width]; and of one token each, i32 [B], at places i32
 * [B]: [B, width]. */
ckpt_tensor lm_embed(const struct lm *m, ckpt_tape *t, ckpt_tensor tokens);
ckpt_tensor lm_embed_at(const struct lm *m, ckpt_tape *t, ckpt_tensor token, ckpt_tensor place);

/* The table for ckpt_rope, or CKPT_NONE where places are learned. */
ckpt_tensor lm_rope(const struct lm *m, ckpt_tape *t, int64_t length);

/* Cosines and sines [length, head / 2, 2] of the rotary embedding. */
void lm_rope_table(const struct lm_config *c, int64_t length, float *table);

#endif

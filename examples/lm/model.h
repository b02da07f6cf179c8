/* SPDX-License-Identifier: Apache-2.0 */
/* Models of the families of config.h, which continue texts, and BERT, which fills in masked tokens.
 * Their parameters have Hugging Face's names. */
#ifndef LM_MODEL_H
#define LM_MODEL_H

#include "ckpt.h"
#include "config.h"

/* One layer.  Norms that the family does not have are CKPT_NONE: enum lm_norms says where the
 * others are. */
struct lm_block {
    struct ckpt_nn_norm norm1, after1; /* before and behind attention */
    struct ckpt_nn_norm norm2, after2; /* before and behind the MLP */
    struct ckpt_nn_norm q_norm, k_norm;
    struct ckpt_nn_attention attention;
    ckpt_tensor sinks;         /* [heads], or CKPT_NONE */
    struct ckpt_nn_mlp mlp;    /* none in layers with experts */
    struct lm_experts experts; /* of layers with LM_LAYER_EXPERTS */
};

struct lm {
    struct lm_config config;
    enum ckpt_dtype dtype;
    struct ckpt_nn_embedding tokens, places; /* places: GPT-2's learned positions */
    struct lm_block *block;                  /* [config.layers] */
    struct ckpt_nn_norm norm;                /* the last one before the head */
    ckpt_tensor head; /* [vocabulary, width]: its own tensor, or the embedding's where tied */
    /* of BERT alone */
    ckpt_tensor segments, head_bias;     /* [2, width] of the two texts; [vocabulary] */
    struct ckpt_nn_norm first;           /* of the embeddings */
    struct ckpt_nn_linear transform;     /* before `norm` */
    struct ckpt_nn_linear pooler, pairs; /* of the first token; none without config.pairs */
};

/* The inputs of a program, all i32, in samples of T tokens.  K: most predictions of a sample. */
enum lm_input {
    LM_TOKENS,   /* [B, T] */
    LM_TARGETS,  /* [B, T], of masked models [B, K]; DATASET_IGNORED: none */
    LM_PLACES,   /* [B, K]: where in its sample each target is */
    LM_SEGMENTS, /* [B, T]: 0 or 1, the text of a token */
    LM_LENGTHS,  /* [B]: tokens of a sample; the rest of it is padding */
    LM_PAIRS,    /* [B]: 0: the two texts are neighbours, 1: they are not */
    LM_STARTS,   /* [B, T]: where in its row the sample of a token begins, if rows have several */
    LM_INPUTS
};

/* Makes the parameters in c; trains_pairs: also those of the head for pairs are trained.  Returns 0
 * or CKPT_ENOMEM; other errors are recorded in c. */
int lm_create(struct lm *m, ckpt *c, const struct lm_config *config, enum ckpt_dtype dtype,
              bool trains_pairs);
void lm_free(struct lm *m);

/* Records the layers: [B, T, width], and, if *balance is not NULL and config.balance not 0, what
 * the balance of experts adds to the loss; else *balance becomes CKPT_NONE.  Of in, a masked model
 * needs all but targets, lengths (no sample is padded) and pairs; the others need the tokens.
 * Ranks that split sequences (--sequence) get their tokens, of packed rows as [1, B T / N, width].
 */
ckpt_tensor lm_hidden(const struct lm *m, ckpt_tape *t, const ckpt_tensor in[LM_INPUTS],
                      ckpt_tensor *balance);

/* The targets of the tokens that lm_hidden's result x has. */
ckpt_tensor lm_targets(ckpt_tape *t, const ckpt_tensor in[LM_INPUTS], ckpt_tensor x);

/* The rows of lm_hidden's result that the head reads, after the last norm: all, or those at the
 * places [B, K]. */
ckpt_tensor lm_rows(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor places);

/* Records the loss of rows: the mean over all targets of the step except DATASET_IGNORED ones, or
 * that of each.  chunk: as in ckpt_cross_entropy_spec. */
ckpt_tensor lm_cross_entropy(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor targets,
                             int64_t chunk, enum ckpt_reduction reduction);

/* The loss of the head for pairs, from lm_hidden's result: each sample's, or the mean over those of
 * the step. */
ckpt_tensor lm_pairs_loss(const struct lm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor pairs,
                          enum ckpt_reduction reduction);

/* Rows [N, width] to scores [N, vocabulary], fp32. */
ckpt_tensor lm_scores(const struct lm *m, ckpt_tape *t, ckpt_tensor rows);

/* Training FLOPs per token, as published figures count them: 6 per parameter of a matrix product,
 * plus attention to `length` tokens.  targets: of a sample of that length. */
double lm_token_flops(const struct lm_config *c, int64_t length, int64_t targets);

/* ---- shared by the files of the model ------------------------------------------------------ */

/* Embeddings of tokens i32 [B, T]: [B, T, width], of this rank's tokens (--sequence); places i32
 * [B, T] are their positions, CKPT_NONE: in order.  lm_embed_at: of one token per sample, i32 [B],
 * at positions i32 [B]: [B, width]. */
ckpt_tensor lm_embed(const struct lm *m, ckpt_tape *t, ckpt_tensor tokens, ckpt_tensor places);
ckpt_tensor lm_embed_at(const struct lm *m, ckpt_tape *t, ckpt_tensor token, ckpt_tensor place);

/* Fills in the cosines and sines [length, lm_turned / 2, 2] of config.rope[which], for texts of
 * that length. */
void lm_rope_table(const struct lm_config *c, int which, int64_t length, float *table);

/* ---- layers (block.c) ------------------------------------------------------------------------ */

/* What all layers of a program share. */
struct lm_pass {
    ckpt_tensor table[2]; /* for ckpt_rope, [1]: of layers with a window; CKPT_NONE: not rotary */
    struct ckpt_attention_spec seen; /* without what a layer adds: scale, cap and window */
    /* Attention of layer i; NULL: ckpt_attention.  q [..., heads, head], k and v [..., kv_heads,
     * head], turned. */
    ckpt_tensor (*attend)(void *user, ckpt_tape *t, int i, ckpt_tensor q, ckpt_tensor k,
                          ckpt_tensor v, const struct ckpt_attention_spec *seen);
    void *user;
    struct lm_routes *routes; /* [layers] of layers with experts are put here; NULL: nowhere */
};

/* A pass over samples of `length` tokens, with the tables of the rotary embedding. */
struct lm_pass lm_pass(const struct lm *m, ckpt_tape *t, int64_t length);

/* Makes the parameters of layer i; residual: first values of GPT-2's projections back to the
 * residual stream. */
void lm_block_create(struct lm *m, const struct ckpt_nn *nn, const struct ckpt_init *residual,
                     int i);

/* Records layer i on x [..., width]. */
ckpt_tensor lm_block(const struct lm *m, ckpt_tape *t, int i, ckpt_tensor x,
                     const struct lm_pass *pass);

/* Makes the RMS norm NAME.weight, and applies a norm of any kind; x itself without a weight. */
struct ckpt_nn_norm lm_rms_norm(const struct lm *m, const struct ckpt_nn *nn, int64_t width,
                                const char *name);
ckpt_tensor lm_norm(const struct lm *m, ckpt_tape *t, const struct ckpt_nn_norm *n, ckpt_tensor x);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoder of T5 v1.1 (Raffel et al. 2020; MLP of Shazeer 2020), which encodes the prompts of
 * video models, and of UMT5 (Chung et al. 2023), which differs in its tables of distances alone.
 * Parameters have the names of Hugging Face's files.  All are frozen.
 */
#ifndef TEXT_T5_H
#define TEXT_T5_H

#include "ckpt.h"

struct t5_config {
    int64_t vocabulary, width, head, heads, mlp, layers; /* head: width of one head */
    int64_t buckets, farthest;                           /* of distances between two tokens */
    double eps;                                          /* of norms */
    bool own_tables; /* UMT5: each layer has a table of distances; T5: layer 0 has one for all */
};

struct t5 {
    struct t5_config config;
    enum ckpt_dtype dtype;
    struct ckpt_nn_embedding tokens;
    struct ckpt_nn_embedding *relative;      /* [config.layers], or [1]: [buckets, heads] */
    struct ckpt_nn_transformer_layer *layer; /* [config.layers] */
    struct ckpt_nn_norm norm;
};

/* Reads a config.json, given as its path or its directory.  Returns 0, or -1 after an error
 * message. */
int t5_config_read(struct t5_config *c, const char *path);

/* Makes the parameters in c.  Returns 0 or CKPT_ENOMEM; c keeps other errors. */
int t5_create(struct t5 *m, ckpt *c, const struct t5_config *config, enum ckpt_dtype dtype);
void t5_free(struct t5 *m);

/*
 * Loads a file, or a directory in Hugging Face's format; skips the decoder if the file has one.
 * After the compile values go directly into their final place; before it the host holds all of
 * them as fp32.  Returns 0, or -1 after an error message.
 */
int t5_load(ckpt *c, const char *path);

/*
 * Records the encoder: from tokens i32 [B, L] to [B, L, width], in the model's dtype.  lengths i32
 * [B]: attention skips keys at or beyond the length, as with Hugging Face's attention_mask;
 * CKPT_NONE: it reads all keys.  Rows beyond the length are computed like the others.
 */
ckpt_tensor t5_encode(const struct t5 *m, ckpt_tape *t, ckpt_tensor tokens, ckpt_tensor lengths);

/* The bucket of a key `distance` tokens after the query. */
int32_t t5_bucket(const struct t5_config *c, int64_t distance);

#endif

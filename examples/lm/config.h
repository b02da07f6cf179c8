/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of language models: presets, and config.json as Hugging Face has it. */
#ifndef LM_CONFIG_H
#define LM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum lm_family { LM_GPT2, LM_LLAMA, LM_QWEN2 };

/* rope_scaling "llama3": frequencies of long wavelengths are divided by factor. */
struct lm_rope_scaling {
    double factor; /* 0: none */
    double low, high;
    int64_t length; /* that the model was first trained on */
};

struct lm_config {
    enum lm_family family;
    int64_t vocabulary, positions;                     /* positions: the longest text */
    int64_t width, layers, heads, kv_heads, head, mlp; /* head: width of one */
    bool tied;     /* the head has the weights of the embedding */
    double eps;    /* of norms */
    double theta;  /* of the rotary embedding */
    double spread; /* standard deviation of first values */
    struct lm_rope_scaling scaling;
    int64_t begin, end; /* tokens; -1: none */
};

/* A preset by its name.  Returns 0, or -1 after a sentence that names all. */
int lm_config_preset(struct lm_config *c, const char *name);

/* A config.json, or the directory that has one.  Returns 0, or -1 after a sentence. */
int lm_config_read(struct lm_config *c, const char *path);

/* config.json of the model with weights of that dtype ("float32").  Returns 0, or -1 after a
 * sentence. */
int lm_config_write(const struct lm_config *c, const char *path);

/* Whether its sizes go together.  Returns 0, or -1 after a sentence that begins with where. */
int lm_config_check(const struct lm_config *c, const char *where);

const char *lm_family_name(enum lm_family family);

#endif

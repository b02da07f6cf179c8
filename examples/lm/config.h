/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of language models: presets, and config.json in Hugging Face's format. */
#ifndef LM_CONFIG_H
#define LM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum lm_family { LM_GPT2, LM_LLAMA, LM_QWEN2, LM_BERT, LM_FAMILIES };

struct adapter_names;

/* What the families differ in. */
struct lm_traits {
    const char *type, *title; /* "model_type" of config.json; for messages */
    bool rotary;              /* rotary positions, RMS norms, a gated MLP; else learned positions */
    bool masked; /* reads both sides and predicts masked tokens; else the past, and the next one */
    const char *embedding, *head; /* names in files; head: where it is the embedding, too */
    const char *prefix;           /* of all names in some files; NULL: none */
    const struct adapter_names *adapters;
    const char *layers; /* all linear layers of a block, as for --lora-targets */
    double theta;       /* base of the rotary embedding of presets */
    /* published settings of training */
    int64_t length, warmup;
    double lr, weight_decay, beta2;
};

/* rope_scaling "llama3": frequencies of long wavelengths are divided by factor. */
struct lm_rope_scaling {
    double factor; /* 0: none */
    double low, high;
    int64_t length; /* context length of the original training */
};

/* Tokens of which each one ends a text. */
struct lm_ids {
    int n;
    int64_t id[16];
};

struct lm_config {
    enum lm_family family;
    int64_t vocabulary, positions;                     /* positions: longest sequence */
    int64_t width, layers, heads, kv_heads, head, mlp; /* head: width of one head */
    bool tied;     /* the output head shares the embedding's weights */
    bool pairs;    /* BERT: has a pooler, and a head that says whether two texts are neighbours */
    double eps;    /* epsilon of the norms */
    double theta;  /* base of the rotary embedding */
    double spread; /* standard deviation of the initial weights */
    struct lm_rope_scaling scaling;
    int64_t begin, pad; /* token ids; -1: none */
    struct lm_ids end;
};

/* Fills in the preset `name`.  Returns 0, or -1 after an error message that lists all presets. */
int lm_config_preset(struct lm_config *c, const char *name);

struct settings;
/* Reads a token or a list of tokens; none where the key is missing.  Reports an error. */
void lm_ids_read(struct settings *s, const char *key, struct lm_ids *ids);

/* Reads a config.json, or the one in a directory.  Returns 0, or -1 after an error message. */
int lm_config_read(struct lm_config *c, const char *path);

/* Writes config.json for weights of dtype "float32".  Returns 0, or -1 after an error message. */
int lm_config_write(const struct lm_config *c, const char *path);

/* Checks that the sizes are consistent.  Returns 0, or -1 after an error message that starts with
 * `where`. */
int lm_config_check(const struct lm_config *c, const char *where);

const struct lm_traits *lm_traits(const struct lm_config *c);
const struct lm_traits *lm_traits_of(enum lm_family family);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Families and shapes of language models: presets, and config.json in Hugging Face's format. */
#ifndef LM_CONFIG_H
#define LM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "experts.h"

enum lm_family {
    LM_GPT2,
    LM_LLAMA,
    LM_QWEN2,
    LM_BERT,
    LM_MISTRAL,
    LM_QWEN3,
    LM_GEMMA2,
    LM_GEMMA3,
    LM_PHI3,
    LM_OLMO2,
    LM_SMOLLM3,
    LM_QWEN3_MOE,
    LM_GPT_OSS,
    LM_FAMILIES
};

enum { LM_MOST_LAYERS = 4096 };

/* Where a layer has its norms; f: its attention, then its MLP. */
enum lm_norms {
    LM_NORMS_BEFORE, /* x + f(norm(x)) */
    LM_NORMS_AROUND, /* x + norm(f(norm(x))) */
    LM_NORMS_AFTER,  /* x + norm(f(x)) */
    LM_NORMS_LAST    /* norm(x + f(x)) */
};

/* RMS norms of queries and keys, before the rotary embedding: of each head, with one weight for all
 * heads, or of all heads together. */
enum lm_qk_norm { LM_QK_PLAIN, LM_QK_HEAD, LM_QK_WHOLE };

/* Which layers have the window of attention where config.json does not list them. */
enum lm_windows {
    LM_WINDOWS_NONE,
    LM_WINDOWS_ALL,
    LM_WINDOWS_FROM,    /* those from "max_window_layers" on, with "use_sliding_window" */
    LM_WINDOWS_PERIOD,  /* all but each `period`-th */
    LM_WINDOWS_UNTURNED /* those without a rotary embedding, with "use_sliding_window" */
};

struct adapter_names;

/* What the families differ in, apart from the numbers of a config.json. */
struct lm_traits {
    const char *type, *title; /* "model_type" of config.json; for messages */
    const char *architecture; /* the class in transformers */
    bool rotary;              /* rotary positions, RMS norms, a gated MLP; else learned positions */
    bool masked; /* reads both sides and predicts masked tokens; else the past, and the next one */
    enum lm_norms norms;
    enum lm_qk_norm qk_norm;
    bool offset;   /* weights of RMS norms are w - 1, here and in files */
    bool fused;    /* one projection of q, k and v, and one of gate and up */
    bool scaled;   /* embeddings are multiplied by sqrt(width) */
    bool sinks;    /* of attention: see struct ckpt_attention_spec */
    bool qkv_bias; /* q, k and v have biases, the output has none, whatever config.json says */
    const char *embedding, *head; /* names in files; head: where it is the embedding, too */
    const char *prefix;           /* of all names in some files; NULL: none */
    const struct adapter_names *adapters;
    const char *layers; /* all linear layers of a block, as for --lora-targets */
    /* what the class has where config.json says nothing */
    int activation; /* of the MLP: enum ckpt_nn_activation */
    bool tied;      /* as struct lm_config */
    bool grouped;   /* it has a number of heads of keys of its own, so that the file must name it */
    enum lm_windows windows;
    int64_t window, period;
    int64_t head_width; /* 0: width / heads */
    double eps;
    double theta, local_theta; /* local: of layers with a window; 0: as the others */
    double scalar;             /* scores of attention are divided by its root; 0: head width */
    double cap, last_cap;      /* as struct lm_config */
    /* published settings of training */
    int64_t length, warmup;
    double lr, weight_decay, beta2;
};

/* Scalings of the rotary embedding, by their names in config.json. */
enum lm_rope_kind {
    LM_ROPE_DEFAULT,
    LM_ROPE_LINEAR,  /* frequencies are divided by factor */
    LM_ROPE_DYNAMIC, /* a longer text has a larger base; as default up to `positions` */
    LM_ROPE_LLAMA3,  /* long wavelengths are divided by factor */
    LM_ROPE_YARN,    /* low frequencies are divided by factor, with a ramp (Peng et al. 2023) */
    LM_ROPE_LONG,    /* each frequency has its own factor, one for short and one for long texts */
    LM_ROPE_KINDS
};

enum { LM_ROPE_PAIRS = 256 };

struct lm_rope {
    enum lm_rope_kind kind;
    double theta, factor;
    double low, high; /* llama3: low and high_freq_factor; yarn: beta_slow and beta_fast */
    double attention; /* cosines and sines are multiplied by it */
    bool truncate;    /* yarn: the ends of the ramp are whole numbers */
    int64_t length;   /* context length of the original training */
    int64_t pairs;    /* longrope: number of factors */
    double each[2][LM_ROPE_PAIRS]; /* longrope: factors of texts up to `length`, of longer ones */
};

/* Tokens of which each one ends a text. */
struct lm_ids {
    int n;
    int64_t id[16];
};

/* What a layer differs in from others of its model. */
enum {
    LM_LAYER_WINDOW = 1,
    LM_LAYER_UNTURNED = 2, /* no rotary embedding */
    LM_LAYER_EXPERTS = 4   /* experts in place of an MLP */
};

struct lm_config {
    enum lm_family family;
    int64_t vocabulary, positions;                     /* positions: longest sequence */
    int64_t width, layers, heads, kv_heads, head, mlp; /* head: width of one head */
    bool tied;     /* the output head shares the embedding's weights */
    bool pairs;    /* BERT: has a pooler, and a head that says whether two texts are neighbours */
    double eps;    /* epsilon of the norms */
    double spread; /* standard deviation of the initial weights */
    int64_t begin, pad; /* token ids; -1: none */
    struct lm_ids end;
    /* of families with rotary positions */
    int activation; /* enum ckpt_nn_activation of the gated MLP */
    bool qkv_bias, out_bias, mlp_bias;
    double scale;    /* of scores of attention; 0: 1 / sqrt(head) */
    double cap;      /* scores s of attention become cap tanh(s / cap); 0: they stay */
    double last_cap; /* the same for scores of tokens */
    int64_t window;  /* keys that a token sees in layers with LM_LAYER_WINDOW */
    double share;    /* of a head that has the rotary embedding: lm_turned */
    struct lm_experts_config experts;
    double balance;         /* the loss has this times the balance of experts; 0: it has not */
    struct lm_rope rope[2]; /* [1]: of layers with a window, if they have another */
    unsigned char layer[LM_MOST_LAYERS]; /* LM_LAYER_... flags, also of layers that are not there */
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

/* The elements of a head with the rotary embedding: the first ones. */
int64_t lm_turned(const struct lm_config *c);

/* Marks the layers that have c->window by the rule of the family: those from layer `from` on, all
 * but each `period`-th. */
void lm_layers_fill(struct lm_config *c, int64_t from, int64_t period);

/* What families with layers of experts differ in; NULL for others. */
struct lm_mixture {
    struct lm_experts_names names;
    const char *count, *inner; /* keys of config.json */
    bool some;                 /* config.json says which layers have experts; else all have */
    struct lm_experts_config experts; /* of the class, where config.json says nothing */
    double balance;                   /* the same: "router_aux_loss_coef" */
};
const struct lm_mixture *lm_mixture(const struct lm_config *c);
/* What a preset of such a family has beside the others' values. */
void lm_experts_preset(struct lm_config *c, const char *name);
int lm_experts_check(const struct lm_config *c, const char *where);

const struct lm_traits *lm_traits(const struct lm_config *c);
const struct lm_traits *lm_traits_of(enum lm_family family);

#endif

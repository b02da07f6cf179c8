/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines of lm-train and lm-sample, in addition to the library's option tables. */
#ifndef LM_OPTIONS_H
#define LM_OPTIONS_H

#include "../common/adapters.h"
#include "../common/balance.h"
#include "../common/outputs.h"
#include "../common/say.h"
#include "config.h"
#include "decode.h"
#include "distill.h"
#include "preference_options.h"

enum { LM_LENGTH_UNIT = 128 }; /* --length auto takes a multiple of it */

enum { LM_ADAPTERS = 16 };

/* Adapters with names; the first one is trained, or is as good as any, and all others are added to
 * the model as they are. */
struct lm_adapters {
    struct lm_adapter {
        char name[64], path[4096];
        double weight;
        bool used;
        struct adapter_options options; /* of all but the first */
        struct adapter_names names;     /* of its parameters: "NAME/base_model.model.", so that */
        char prefix[128];               /* no file of another one has them */
    } each[LM_ADAPTERS];
    int n;
};

/* Values that a preset or the data may fill in start as 0 (counts) or -1 (where 0 has a meaning).
 */
struct lm_options {
    /* the model */
    const char *model, *dtype;
    int64_t hidden, layers, heads, kv_heads, mlp, vocabulary;
    struct lm_config config; /* the resulting configuration */
    /* the data */
    const char *data, *validation, *tokenizer;
    int64_t length;
    int64_t longest; /* --length auto: of the model and the data; 0: the length was given */
    bool in_order;
    /* conversations */
    const char *chat_template, *too_long_name;
    int too_long; /* enum chat_too_long */
    bool pack;
    const char *balance_name;
    enum balance balance;
    const char *chat, *messages; /* a turn, or a file of turns, to continue */
    const char *eval;
    double mask_share; /* of the tokens of a masked model; 0: not given */
    bool whole_words, next_sentence;
    /* adapters */
    struct adapter_options adapters;
    const char *adapter; /* the file that they begin from; NULL: new ones, or a state's */
    const char *use, *train_adapter; /* names in a list of --adapter */
    struct lm_adapters others;       /* that list */
    struct preference_options preference;
    struct distill_options distill;
    /* training */
    struct training_options train;
    const char *to_hf;
    int64_t shard_size;
    int64_t validation_every, validation_batches;
    int64_t loss_chunk; /* rows of the loss at a time, CKPT_AUTO until one is chosen; 0: default */
    /* generated text */
    const char *prompt;
    int64_t samples, sample_every, sample_tokens, sample_seed;
    struct lm_choice choice; /* -1: as generation_config.json says, or its default */
    struct lm_ids ends;      /* tokens that end a text */
    /* output */
    bool help, version;
    struct ckpt_options library;
};

/* Defaults that both programs share. */
#define LM_OPTIONS_INIT                                                                            \
    {                                                                                              \
        .model = "tiny", .adapters = {ADAPTER_DEFAULTS("model", "peft")},                          \
        .preference = PREFERENCE_DEFAULTS, .distill = DISTILL_DEFAULTS,                            \
        .train = {TRAINING_DEFAULTS, .weight_decay = -1, .beta2 = -1}, .validation_batches = 8,    \
        .shard_size = (int64_t)5 << 30, .samples = 1, .sample_tokens = 100, .prompt = "\n",        \
        .choice = {-1, -1, -1, -1}, .library = CKPT_OPTIONS_INIT                                   \
    }

/* Option rows of the model, for both programs. */
#define LM_MODEL_ROWS                                                                              \
    ROW("model", STRING, model, "NAME",                                                            \
        "preset such as gpt2-124M, llama3.2-1B or qwen3-0.6B, or a config.json, or a directory "   \
        "with one (default tiny)"),                                                                \
        RANGE("hidden", INT, hidden, "N", "width of the model (default: the preset's)", 2, 65536), \
        RANGE("layers", INT, layers, "N", "blocks (default: the preset's)", 1, 1024),              \
        RANGE("heads", INT, heads, "N", "attention heads (default: the preset's)", 1, 1024),       \
        RANGE("kv-heads", INT, kv_heads, "N", "heads of keys and values (default: the preset's)",  \
              1, 1024),                                                                            \
        RANGE("mlp", INT, mlp, "N", "width of the MLP (default: the preset's)", 1, 1048576),       \
        RANGE("vocabulary", INT, vocabulary, "N",                                                  \
              "tokens of the vocabulary (default: the preset's)", 2, 1 << 24),                     \
        DTYPE_ROW
#define LM_ADAPTER_ROW                                                                             \
    ROW("adapter", STRING, adapter, "FILE",                                                        \
        "LoRA adapters of the weights: a file, or a directory of PEFT; or several: "               \
        "NAME=FILE[:X],... adds each with the factor X (default: none)")
#define LM_TEXT_ROWS                                                                               \
    ROW("tokenizer", STRING, tokenizer, "FILE",                                                    \
        "tokenizer.json, vocab.json next to a merges.txt, vocab.txt of BERT, or a directory with " \
        "them; bytes: one token per byte (default: the tokenizer next to --load or --model, else " \
        "bytes)")
#define LM_TEMPLATE_ROW                                                                            \
    ROW("chat-template", STRING, chat_template, "FILE",                                            \
        "template of conversations: a chat_template.jinja, or a tokenizer_config.json with one "   \
        "(default: the one beside the tokenizer)")
#define LM_SAMPLE_ROWS                                                                             \
    ROW("prompt", STRING, prompt, "TEXT", "beginning of generated text (default: an empty line)"), \
        RANGE("samples", INT, samples, "N", "texts to generate together (default 1)", 1, 4096),    \
        RANGE("sample-tokens", INT, sample_tokens, "N",                                            \
              "tokens to generate per text (default 100)", 1, OPTION_MOST),                        \
        ROW("sample-seed", INT, sample_seed, "N", "seed of token sampling (default 0)"),           \
        RANGE("temperature", FLOAT, choice.temperature, "X",                                       \
              "temperature of token sampling; 0: always the most probable token (default: "        \
              "generation_config.json's, else 0.8)",                                               \
              0, 1000),                                                                            \
        RANGE("top-k", INT, choice.top_k, "N",                                                     \
              "sample from the N most probable tokens; 0: all (default: "                          \
              "generation_config.json's, else 0)",                                                 \
              0, OPTION_MOST),                                                                     \
        RANGE("top-p", FLOAT, choice.top_p, "X",                                                   \
              "sample from the most probable tokens with a total probability of X; 1: all "        \
              "(default: generation_config.json's, else 1)",                                       \
              1e-6, 1),                                                                            \
        RANGE("repetition-penalty", FLOAT, choice.repetition, "X",                                 \
              "divide scores of tokens that the text has by X; 1: not (default: "                  \
              "generation_config.json's, else 1)",                                                 \
              1e-3, 1000)

/* lm-train: sets the defaults and names what replaces them; then checks it and fills in the model.
 */
struct option_reading lm_options_reading(struct lm_options *o);
/* What is true of the command lines of both programs. */
struct option_reading lm_reading(struct option_reading r);
int lm_options_check(void *options);
/* lm-sample: both, and what is between them.  Returns 0 to continue, 1 when nothing is left to do
 * (--help), and -1 after an error message. */
int lm_sample_options_parse(struct lm_options *o, int argc, char **argv);

/* Fills in the configuration: the named model with the sizes that options change.  Returns 0, or -1
 * after an error message. */
int lm_options_config(struct lm_options *o);
/* Reads the adapters that the options name.  Returns 0, or -1 after an error message. */
int lm_options_adapters(struct lm_options *o, bool trains);
/* Splits a list of --adapter, of which `adapter` becomes the first file; then reads the others.
 * Return 0, or -1 after an error message. */
int lm_adapters_list(struct lm_options *o, bool trains);
int lm_adapters_read(struct lm_options *o);
void lm_adapters_close(struct lm_options *o);
/* The names of the parameters of the first adapter. */
const struct adapter_names *lm_adapter_names(const struct lm_options *o);
/* Fills in how text is generated, and which tokens end it: what the command line leaves open, from
 * generation_config.json of --load or --model.  Returns 0, or -1 after an error message. */
int lm_options_generation(struct lm_options *o);
/* Completes or removes what a killed run has left in the directory of --save-hf; refuses --load of
 * such a one. */
int lm_recover(const struct lm_options *o);
/* The path of a file beside the model, of --load or --model: false: there is none. */
bool lm_options_beside(const struct lm_options *o, const char *name, char path[4096]);
/* The path of a file of the tokenizer, or else of one beside the model. */
bool lm_options_companion(const struct lm_options *o, const char *name, char path[4096]);
/* Whether the path is a directory. */
bool lm_is_directory(const char *path);
/* With --length auto: samples have at most this many tokens, and those of a unit at least. */
void lm_options_shorten(struct lm_options *o, int64_t tokens);
/* Tokens of a sample whose scores are computed. */
int64_t lm_options_targets(const struct lm_options *o);
/* Those of a micro-step; with --micro-batch auto, of the largest or the smallest. */
int64_t lm_options_tokens(const struct lm_options *o, bool largest);
/* The path of the tokenizer, or NULL: each byte is a token. */
const char *lm_options_tokenizer(const struct lm_options *o);
/* Refuses to take bytes for tokens of a model that another program made, unless --tokenizer bytes
 * says so.  Returns 0, or -1 after an error message. */
int lm_options_check_bytes(const struct lm_options *o);
/* The files that the options name. */
struct training_files lm_files(const struct lm_options *o);

#endif

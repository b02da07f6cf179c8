/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a config.json.  The first missing or unsupported setting is reported. */
#ifndef EXAMPLES_SETTINGS_H
#define EXAMPLES_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include "json_keys.h"

/* Keys that transformers writes into any config.json and that change no result of these programs:
 * notes about the file, what a call returns, and how memory is used. */
#define SETTINGS_NOTES                                                                             \
    "architectures auto_map torch_dtype dtype transformers_version tokenizer_class "               \
    "adapters_version finetuning_task task_specific_params problem_type num_labels id2label "      \
    "label2id output_hidden_states output_attentions output_scores return_dict "                   \
    "return_dict_in_generate use_return_dict use_cache torchscript use_bfloat16 "                  \
    "chunk_size_feed_forward gradient_checkpointing attn_implementation unsloth_version "          \
    "unsloth_fixed transformers.js_config max_sequence_length model_max_length pad_token_id "      \
    "sep_token_id decoder_start_token_id"

/* Keys about generating text, which old versions of transformers write into config.json. */
#define SETTINGS_GENERATION                                                                        \
    "max_length min_length max_new_tokens min_new_tokens do_sample early_stopping num_beams "      \
    "num_beam_groups diversity_penalty temperature top_k top_p min_p typical_p "                   \
    "repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "         \
    "bad_words_ids num_return_sequences exponential_decay_length_penalty suppress_tokens "         \
    "begin_suppress_tokens forced_bos_token_id forced_eos_token_id remove_invalid_values prefix "  \
    "epsilon_cutoff eta_cutoff penalty_alpha max_time"

/* quantization_config of weights in 8-bit floats or integers with scales, which loading multiplies.
 * Activations are not rounded here. */
extern const struct json_keys settings_scaled[];

struct settings {
    char path[4096];
    json_t *root;
    int failed; /* -1 after the first error message */
};

/* Whether there is a file or directory.  Returns 0, or -1 after an error message, which says how a
 * model with the name of one on Hugging Face, as owner/name, is downloaded. */
int settings_exists(const char *path);

/* Opens the file, or the config.json in a directory.  Returns 0, or -1 after an error message. */
int settings_open(struct settings *s, const char *path);
/* Opens the scheduler_config.json of a model of diffusers, whose directory may be that of its
 * transformer.  Returns 1 if there is none. */
int settings_open_scheduler(struct settings *s, const char *model);
void settings_close(struct settings *s);

/* Whether "_class_name" is this one; if not, after an error message. */
bool settings_is_class(const struct settings *s, const char *name);

/* Reports an error of a key, unless one was reported before; format gives the end of the message.
 */
__attribute__((format(printf, 3, 4))) void settings_refuse(struct settings *s, const char *key,
                                                           const char *format, ...);

/* Reports an error of the first key that the table does not allow. */
void settings_allow(struct settings *s, const struct json_keys *keys);

/* The value of a key; NULL: missing or null. */
const json_t *settings_find(const struct settings *s, const char *key);

/* A count, 1 to 2^24; a missing key gives fallback, or an error if fallback is below 0. */
int64_t settings_int(struct settings *s, const char *key, int64_t fallback);
/* Number of layers, 1 to 4096, as settings_int: each layer uses memory before weights are read. */
int64_t settings_layers(struct settings *s, const char *key, int64_t fallback);
/* A positive number, from the root or from the object `in`. */
double settings_real(struct settings *s, const json_t *in, const char *key, double fallback);
bool settings_flag(struct settings *s, const char *key, bool fallback);

#endif

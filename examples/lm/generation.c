/* SPDX-License-Identifier: Apache-2.0 */
/* generation_config.json: how a model's publisher generates text with it. */
#include <stdio.h>
#include "../common/say.h"
#include "../common/settings.h"
#include "options.h"

/* Lengths are --sample-tokens; what a call returns, and how it computes, is of no use here. */
static const struct json_keys keys[] = {
    JSON_READ("do_sample temperature top_k top_p repetition_penalty eos_token_id"),
    JSON_UNUSED("bos_token_id pad_token_id decoder_start_token_id transformers_version max_length "
                "max_new_tokens num_return_sequences chat_format trust_remote_code"),
    JSON_UNUSED("use_cache cache_implementation cache_config max_cache_len return_dict_in_generate "
                "output_scores output_logits output_attentions output_hidden_states compile_config "
                "disable_compile prefill_chunk_size low_memory continuous_batching_config "
                "return_legacy_cache is_assistant num_assistant_tokens "
                "num_assistant_tokens_schedule assistant_confidence_threshold use_mtp "
                "assistant_early_exit assistant_lookbehind target_lookbehind "
                "max_matching_ngram_size assistant_ensemble_weight speculation_type"),
    JSON_UNUSED("early_stopping length_penalty"), /* of several beams */
    JSON_ONLY("num_beams num_beam_groups typical_p encoder_repetition_penalty guidance_scale", "1"),
    JSON_ONLY("min_length min_new_tokens no_repeat_ngram_size encoder_no_repeat_ngram_size "
              "epsilon_cutoff eta_cutoff diversity_penalty penalty_alpha min_p",
              "0"),
    JSON_ONLY("renormalize_logits remove_invalid_values token_healing", "false"),
    JSON_ONLY("bad_words_ids force_words_ids constraints forced_bos_token_id forced_eos_token_id "
              "suppress_tokens begin_suppress_tokens sequence_bias stop_strings "
              "exponential_decay_length_penalty watermarking_config max_time top_h dola_layers "
              "prompt_lookup_num_tokens",
              ""),
    JSON_END};

static void take(double *value, double given)
{
    if (*value < 0)
        *value = given;
}

/* Where the file says nothing, sampling has the defaults of its library: 1, 50 and 1. */
static void read_choice(struct settings *s, struct lm_choice *c)
{
    const json_t *k = settings_find(s, "top_k");
    bool samples = settings_flag(s, "do_sample", false);

    if (k && !(json_is_integer(k) && json_integer_value(k) >= 0))
        settings_refuse(s, "top_k", "is not a whole number, 0 or more");
    take(&c->repetition, settings_real(s, s->root, "repetition_penalty", 1));
    if (!settings_find(s, "do_sample"))
        return;
    take(&c->temperature, samples ? settings_real(s, s->root, "temperature", 1) : 0);
    if (c->top_k < 0)
        c->top_k = !samples ? 0 : k ? json_integer_value(k) : 50;
    take(&c->top_p, samples ? settings_real(s, s->root, "top_p", 1) : 1);
    if (c->top_p > 1)
        settings_refuse(s, "top_p", "is above 1");
}

static int read_root(struct settings *s, struct lm_options *o)
{
    const struct lm_choice given = o->choice;
    struct lm_ids ends;

    settings_allow(s, keys);
    read_choice(s, &o->choice);
    lm_ids_read(s, "eos_token_id", &ends);
    if (ends.n)
        o->ends = ends;
    if (!s->failed && settings_find(s, "do_sample") &&
        (given.temperature < 0 || given.top_k < 0 || given.top_p < 0))
        say_note("%s: --temperature %g --top-k %lld --top-p %g", s->path, o->choice.temperature,
                 (long long)o->choice.top_k, o->choice.top_p);
    return s->failed;
}

int lm_options_generation(struct lm_options *o)
{
    struct settings s;
    char path[4096];
    int rc = 0;

    o->ends = o->config.end;
    if (lm_options_beside(o, "generation_config.json", path)) {
        rc = settings_open(&s, path) ? -1 : read_root(&s, o);
        settings_close(&s);
    }
    take(&o->choice.temperature, 0.8);
    take(&o->choice.top_p, 1);
    take(&o->choice.repetition, 1);
    o->choice.top_k = o->choice.top_k < 0 ? 0 : o->choice.top_k;
    return rc;
}

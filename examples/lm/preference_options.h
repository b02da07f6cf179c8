/* SPDX-License-Identifier: Apache-2.0 */
/* Options of preference losses: learning from which of two texts is better. */
#ifndef LM_PREFERENCE_OPTIONS_H
#define LM_PREFERENCE_OPTIONS_H

#include <stdbool.h>

/*
 * What lm-train minimises: the cross entropy of the next token, or
 *
 *   dpo   Rafailov et al. 2023, with the label smoothing of conservative DPO (Mitchell 2023)
 *   orpo  Hong et al. 2024
 *   kto   Ethayarajh et al. 2024
 */
enum lm_loss { LM_CROSS_ENTROPY, LM_DPO, LM_ORPO, LM_KTO, LM_LOSSES };

enum { PREFERENCE_TEXTS = 2 }; /* of a sample: preference_data.h */

/* Values that are not given are below 0, or NULL. */
struct preference_options {
    const char *name; /* --loss */
    double beta, smoothing, lambda, desirable, undesirable;
    const char *cache; /* --reference-cache */
    enum lm_loss loss; /* set by preference_options_check */
};

#define PREFERENCE_DEFAULTS                                                                        \
    {                                                                                              \
        .name = "ce", .beta = -1, .smoothing = -1, .lambda = -1, .desirable = -1,                  \
        .undesirable = -1                                                                          \
    }

#define PREFERENCE_ROWS                                                                            \
    CKPT_OPTION_GROUP("Preferences"),                                                              \
        ROW("loss", STRING, preference.name, "NAME",                                               \
            "ce (cross entropy of the next token), dpo, orpo or kto (default ce)"),                \
        RANGE("beta", FLOAT, preference.beta, "X",                                                 \
              "with --loss dpo or kto, weight of the distance to the reference (default 0.1)",     \
              1e-6, 1e6),                                                                          \
        RANGE("label-smoothing", FLOAT, preference.smoothing, "X",                                 \
              "with --loss dpo, probability that a pair is labelled the wrong way round (default " \
              "0)",                                                                                \
              0, 0.499999),                                                                        \
        RANGE("orpo-lambda", FLOAT, preference.lambda, "X",                                        \
              "with --loss orpo, weight of the odds ratio (default 0.1)", 0, 1e6),                 \
        RANGE("desirable-weight", FLOAT, preference.desirable, "X",                                \
              "with --loss kto, weight of desirable completions (default 1)", 0, 1e6),             \
        RANGE("undesirable-weight", FLOAT, preference.undesirable, "X",                            \
              "with --loss kto, weight of undesirable completions (default 1)", 0, 1e6),           \
        ROW("reference-cache", STRING, preference.cache, "FILE",                                   \
            "with --loss dpo or kto, the log-probabilities of the reference, the weights at the "  \
            "start: computed and written before the first step, or read if FILE exists (default: " \
            "with --lora-rank, the weights without adapters are the reference)")

/* Checks them and fills in the defaults.  adapters: there are some; masked: the model predicts
 * masked tokens.  Returns 0, or -1 after an error message. */
int preference_options_check(struct preference_options *o, bool adapters, bool masked);

/* Whether the loss compares the model with a reference. */
bool preference_has_reference(const struct preference_options *o);

#endif

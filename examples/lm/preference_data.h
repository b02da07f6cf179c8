/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs of texts, from lines of JSON:
 *
 *   dpo, orpo  {"prompt": P, "chosen": C, "rejected": R}
 *   kto        {"prompt": P, "completion": C, "label": true or false}
 *
 * Prompt and completions are texts, or lists of messages, which go through the model's chat
 * template.  Of chosen and rejected conversations without such a prompt, it is the messages that
 * both begin with.
 *
 * A sample has two texts: the prompt with the chosen and with the rejected completion; for kto the
 * prompt with its completion, and with that of another sample, from which the reference point is
 * estimated.  The tokens of completions are trained on.  All tokens are kept, 5 bytes each.
 */
#ifndef LM_PREFERENCE_DATA_H
#define LM_PREFERENCE_DATA_H

#include <stdbool.h>
#include <stdint.h>
#include "preference_options.h"

struct lm_run;

struct preference_text {
    int64_t begin;
    int32_t n;
};

struct preference_data {
    int32_t *id;   /* of all texts, one after the other */
    bool *trained; /* per token: whether it is of a completion */
    int64_t tokens, room;
    struct preference_text (*text)[PREFERENCE_TEXTS]; /* [rows] */
    float *desired;                       /* [rows], of kto: 1 for a desirable completion, else 0 */
    float (*reference)[PREFERENCE_TEXTS]; /* [rows], log-probabilities; NULL: not known */
    int64_t rows, rows_room;
    int64_t longest;       /* tokens of a text */
    int64_t cut, too_long; /* texts that lost their end; samples left out: of a text only the prompt
                              is within the length */
    int64_t cut_tokens;
    uint64_t digest; /* of texts and labels */
};

/* Reads all files that match a shell pattern, or the one with that name, for a run with its
 * tokenizer; opens its chat template if there are messages.  Returns 0, or -1 after an error
 * message. */
int preference_data_open(struct preference_data *d, const char *pattern, struct lm_run *r);
void preference_data_close(struct preference_data *d);

/* Fills in tokens and targets [2][length] of a row; those that are not trained on are
 * DATASET_IGNORED. */
void preference_data_read(const struct preference_data *d, int64_t row, int64_t length,
                          int32_t *tokens, int32_t *targets);

#endif

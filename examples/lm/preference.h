/* SPDX-License-Identifier: Apache-2.0 */
/* Training on preferences: the losses of dpo, orpo and kto, and their reference. */
#ifndef LM_PREFERENCE_H
#define LM_PREFERENCE_H

#include "../common/training.h"
#include "preference_data.h"

struct lm_run;
struct lm_sums;

/* The part of a run that learns from preferences. */
struct preference {
    struct preference_data data, validation; /* validation.rows 0: none */
    int64_t length;            /* tokens of a text in a batch: those of the longest one */
    ckpt_program *reference;   /* computes log-probabilities for the cache; NULL: not needed */
    int32_t *tokens, *targets; /* of a batch: [batch][2][length] */
    float *known, *desired;    /* of a batch: those of the reference [batch][2], and [batch] */
    float *result;             /* [batch][2], an output of a step */
};

/* Opens --data and --val.  Returns 0, or -1 after an error message. */
int preference_open(struct lm_run *r);
void preference_close(struct preference *p);

/* Records the loss of a batch.  chunk: as in ckpt_cross_entropy_spec; trains: else the losses of
 * single samples are outputs, too. */
ckpt_tensor preference_record(const struct lm_run *r, ckpt_tape *t, int64_t batch, int64_t chunk,
                              bool trains, bool dump);
/* The same without a loss: the log-probabilities alone. */
ckpt_tensor preference_record_texts(const struct lm_run *r, ckpt_tape *t, int64_t batch,
                                    int64_t chunk);

/* Allocates the buffers of a batch, and fills in the reference's log-probabilities.  Returns 0, or
 * -1 after an error message. */
int preference_begin(struct lm_run *r);
void preference_end(struct preference *p);

/* Feeds n rows of the training data from sample `first` on, or of the validation data from row
 * `first` on; the rest of the batch repeats the last one.  Returns 0, or -1 after an error
 * message. */
int preference_feed(struct lm_run *r, ckpt_program *p, bool validates, int64_t first, int64_t n);

/* Adds n rows of the step that r->measuring just ran: losses of samples as those of pairs, and
 * orpo's cross entropy.  Returns 0, or -1 after an error message. */
int preference_measured(struct lm_run *r, int64_t n, struct lm_sums *m);

/* Adds rewards and log-probabilities of a step, the last that p ran, to its line of the log.
 * Returns 0, or -1 after an error message. */
int preference_log(struct lm_run *r, ckpt_program *p, int64_t step);

/* ---- the reference ----------------------------------------------------------------------------
 */

/* Whether its log-probabilities come from a file, and whether this run may have to compute them. */
bool preference_is_cached(const struct lm_run *r);
/* Reads the file of --reference-cache or computes and writes it.  Returns 0, or -1 after an error
 * message. */
int preference_cache_open(struct lm_run *r);
/* Stores the digest of the data in the states of the run, so that a resumed one has the same. */
int preference_note(struct lm_run *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tokens in an order that follows from the seed alone. */
#ifndef LM_DATASET_H
#define LM_DATASET_H

#include "tokens.h"

/*
 * The tokens of each shard are cut into rows of `length` with the token behind each as a target, as
 * llm.c and LLMQ do; what is left at the end of a shard is not used.  Sample s of a run is row
 * order(s): each epoch is another permutation of all rows, found without a table, so that any rank
 * and a run that goes on find the same rows.
 */
struct dataset {
    struct tokens tokens;
    int64_t length; /* tokens of a row */
    int64_t rows;
    int64_t *first_row; /* of each shard, and the number of all at the end */
    int64_t limit;      /* tokens are below this: the vocabulary of the model */
    uint64_t seed;
    bool shuffled; /* else rows follow each other */
};

/* Rows of what tokens_open opened, which belongs to the dataset from then on.  Returns 0, or -1
 * after a sentence. */
int dataset_open(struct dataset *d, const struct tokens *tokens, int64_t length, int64_t limit,
                 uint64_t seed, bool shuffled);
void dataset_close(struct dataset *d);

/* The row of a sample, 0 <= sample. */
int64_t dataset_row(const struct dataset *d, int64_t sample);

enum { DATASET_IGNORED = -100 }; /* a target that is not trained on */

/* Reads n rows of samples from `first` on: inputs and targets [n][length].  Returns 0, or -1 after
 * a sentence. */
int dataset_read(struct dataset *d, int64_t first, int64_t n, int32_t *inputs, int32_t *targets);

#endif

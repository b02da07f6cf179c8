/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tokens in an order that depends only on the seed. */
#ifndef LM_DATASET_H
#define LM_DATASET_H

#include "tokens.h"

/*
 * The tokens of each shard are cut into rows of `length`; each token's target is the next token, as
 * in llm.c and LLMQ.  The remainder at the end of a shard is unused.  Sample s of a run is row
 * order(s): each epoch is another permutation of all rows, computed without a table, so every rank
 * and every resumed run finds the same rows.
 */
struct dataset {
    struct tokens tokens;
    int64_t length; /* tokens per row */
    int64_t rows;
    int64_t *first_row; /* first row of each shard; the last entry is the number of rows */
    int64_t limit;      /* tokens must be below this: the model's vocabulary */
    uint64_t seed;
    bool shuffled; /* false: rows are read in file order */
};

/* Cuts the open `tokens` into rows; the dataset owns them from then on.  Returns 0, or -1 after an
 * error message. */
int dataset_open(struct dataset *d, const struct tokens *tokens, int64_t length, int64_t limit,
                 uint64_t seed, bool shuffled);
void dataset_close(struct dataset *d);

/* The row of a sample; sample >= 0. */
int64_t dataset_row(const struct dataset *d, int64_t sample);

enum { DATASET_IGNORED = -100 }; /* target that the loss ignores */

/* Reads n rows, starting at sample `first`: inputs and targets are [n][length].  Returns 0, or -1
 * after an error message. */
int dataset_read(struct dataset *d, int64_t first, int64_t n, int32_t *inputs, int32_t *targets);

#endif

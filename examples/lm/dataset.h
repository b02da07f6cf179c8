/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tokens in an order that depends only on the seed. */
#ifndef LM_DATASET_H
#define LM_DATASET_H

#include "tokens.h"

/* A part of a document: n tokens of its shard from `begin` on.  A sample of a conversation: n
 * tokens and the next one; `document` is its shard. */
struct piece {
    int64_t begin;
    int32_t n, document;
};

/*
 * The tokens of each shard are cut into rows of `length`; each token's target is the next token, as
 * in llm.c and LLMQ.  The remainder at the end of a shard is unused.  Sample s of a run is row
 * order(s): each epoch is another permutation of all rows, computed without a table, so every rank
 * and every resumed run finds the same rows.
 */
struct dataset {
    struct tokens tokens;
    int64_t length; /* tokens per row; of a piece, at most */
    int64_t rows;
    int64_t *first_row; /* first row of each shard; the last entry is the number of rows */
    int64_t limit;      /* tokens must be below this: the model's vocabulary */
    uint64_t seed;
    bool shuffled;       /* false: rows are read in file order */
    struct piece *piece; /* the rows, where these are parts of documents, or NULL */
    /* Rows of samples of their own lengths (samples.c): piece [first_piece[row],
     * first_piece[row + 1]) are those of a row; NULL: rows of other kinds. */
    int64_t *first_piece;
    bool padded; /* some pieces are shorter than `length` */
};

struct document_ends;
/* Cuts the open `tokens` into rows; the dataset owns them from then on.  ends: rows are pieces of
 * documents that end there, or NULL.  Returns 0, or -1 after an error message. */
int dataset_open(struct dataset *d, const struct tokens *tokens, int64_t length, int64_t limit,
                 uint64_t seed, bool shuffled, const struct document_ends *ends);
void dataset_close(struct dataset *d);
/* Cuts the tokens into rows of another length, where these are no pieces of documents.  Returns 0,
 * or -1 after an error message. */
int dataset_cut(struct dataset *d, int64_t length);

/* A document ends at any of these tokens, which are in none, and at the end of its shard. */
enum { DOCUMENT_ENDS = 3 };
struct document_ends {
    int32_t token[DOCUMENT_ENDS];
};

/* For dataset_open: reads all tokens once, and makes each row a piece of one document.  Returns 0,
 * or -1 after an error message. */
int dataset_find_documents(struct dataset *d, const struct document_ends *ends);

/* Reads up to `most` tokens of a piece.  Returns their number, or -1 after an error message. */
int dataset_read_piece(struct dataset *d, int64_t row, int64_t most, int32_t *tokens);

/* The shard that contains a row. */
int dataset_shard(const struct dataset *d, int64_t row);

/* The row of a sample; sample >= 0. */
int64_t dataset_row(const struct dataset *d, int64_t sample);

/*
 * Opens a dataset of n samples of the open `tokens`; it owns both.  packs: a row has as many
 * samples as fit by best fit, the longest first, else one.  Returns 0, or -1 after an error
 * message.
 */
int dataset_open_samples(struct dataset *d, const struct tokens *tokens, struct piece *sample,
                         int64_t n, bool packs, int64_t length, int64_t limit, uint64_t seed,
                         bool shuffled);

/* For the openers of datasets: checks the tokens that are in memory. */
int dataset_check_vocabulary(const struct dataset *d);

/* Tokens in samples, of those that the rows have room for. */
int64_t dataset_filled(const struct dataset *d);

/* As dataset_read, of rows of samples.  starts, which may be NULL, receives where in its row the
 * sample of each token begins; what is left of a row is samples of one token without targets. */
int dataset_read_samples(struct dataset *d, int64_t first, int64_t n, int32_t *inputs,
                         int32_t *targets, int32_t *starts);

enum { DATASET_IGNORED = -100 }; /* target that the loss ignores */

/* Reads n rows, starting at sample `first`: inputs and targets are [n][length].  Returns 0, or -1
 * after an error message. */
int dataset_read(struct dataset *d, int64_t first, int64_t n, int32_t *inputs, int32_t *targets);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clips of each step: consecutive rows of one shape, or the batches of a bucket in Open-Sora's
 * order (buckets.h), the same bucket for all ranks.
 */
#ifndef STDIT_TURNS_H
#define STDIT_TURNS_H

#include "dataset.h"

/* The clips of one step. */
struct stdit_turn {
    const struct stdit_shape *shape;
    int64_t step;
    int64_t epoch;      /* with buckets */
    int64_t before;     /* samples of all earlier steps, of all ranks */
    const int64_t *row; /* the rows of all ranks; NULL: consecutive rows of the data */
};

/* The row of sample i of a turn, over all ranks.  If there are fewer rows than samples, rows
 * repeat. */
int64_t stdit_turn_row(const struct stdit_turn *turn, const struct stdit_data *d, int64_t i);

/* The sample number, from which its crops and draws follow: the row, plus the number of rows for
 * each earlier epoch.  So it does not depend on other clips, ranks or the order. */
int64_t stdit_turn_sample(const struct stdit_turn *turn, const struct stdit_data *d, int64_t i);
/* The sample number for a row that replaces the row of `sample`. */
int64_t stdit_sample_of(const struct stdit_data *d, int64_t sample, int64_t row);

struct stdit_turns {
    const struct stdit_data *data;
    int ranks;
    uint64_t seed;
    int64_t interval; /* every interval-th frame of a clip is used */
    int64_t before;
    /* with buckets */
    struct bucket_epoch order;
    const struct stdit_shape **shape; /* of each list of the order; NULL: no shape */
    int64_t epoch;
    char *place; /* last result of stdit_turns_place */
};

/* data is borrowed.  Return 0, or -1 after a sentence. */
int stdit_turns_open(struct stdit_turns *t, const struct stdit_data *data,
                     const struct stdit_options *o, int ranks);
void stdit_turns_close(struct stdit_turns *t);

/* The next turn; its rows are valid until the next call. */
int stdit_turns_next(struct stdit_turns *t, int64_t step, struct stdit_turn *turn);

/* The run's place in its buckets, as a line of text valid until the next call, or NULL without
 * memory; and the call that restores a place. */
const char *stdit_turns_place(struct stdit_turns *t);
int stdit_turns_go(struct stdit_turns *t, const char *place);

#endif

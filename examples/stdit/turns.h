/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which clips each step takes: all of one shape in turn, or those of a bucket, in Open-Sora's order
 * (buckets.h), the same bucket for all ranks.
 */
#ifndef STDIT_TURNS_H
#define STDIT_TURNS_H

#include "dataset.h"

/* What a step trains on. */
struct stdit_turn {
    const struct stdit_shape *shape;
    int64_t step;
    int64_t epoch;      /* with buckets */
    int64_t before;     /* samples of all steps before it, of all ranks */
    const int64_t *row; /* the rows of all ranks; NULL: those of the data in turn */
};

/* The row of sample i of a turn, of all ranks.  When there are fewer than the batch is large they
 * come round again. */
int64_t stdit_turn_row(const struct stdit_turn *turn, const struct stdit_data *d, int64_t i);

/* The number that crops and draws of that sample follow from: that of its row, and in epoch e so
 * many rows times e further on.  So no other clip, rank or order changes them. */
int64_t stdit_turn_sample(const struct stdit_turn *turn, const struct stdit_data *d, int64_t i);
/* The number of a row that took the place of another. */
int64_t stdit_sample_of(const struct stdit_data *d, int64_t sample, int64_t row);

struct stdit_turns {
    const struct stdit_data *data;
    int ranks;
    uint64_t seed;
    int64_t interval; /* every so many frames of a clip are taken */
    int64_t before;
    /* with buckets */
    struct bucket_epoch order;
    const struct stdit_shape **shape; /* of each list of the order; NULL: of none */
    int64_t epoch;
    char *place; /* what stdit_turns_place returned last */
};

/* data is borrowed.  Return 0, or -1 after a sentence. */
int stdit_turns_open(struct stdit_turns *t, const struct stdit_data *data,
                     const struct stdit_options *o, int ranks);
void stdit_turns_close(struct stdit_turns *t);

/* The next one; its rows are there until it is asked again. */
int stdit_turns_next(struct stdit_turns *t, int64_t step, struct stdit_turn *turn);

/* Where the run stands in its buckets, as a line of text that the next call replaces; NULL without
 * memory.  And goes there. */
const char *stdit_turns_place(struct stdit_turns *t);
int stdit_turns_go(struct stdit_turns *t, const char *place);

#endif

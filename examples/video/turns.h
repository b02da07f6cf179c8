/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clips of each step: consecutive rows of one shape, or the batches of a bucket in Open-Sora's
 * order (buckets.h), the same bucket for all ranks.
 */
#ifndef VIDEO_TURNS_H
#define VIDEO_TURNS_H

#include "shapes.h"

/* The clips of one step. */
struct video_turn {
    const struct video_shape *shape;
    int64_t step;
    int64_t epoch;      /* with buckets */
    int64_t before;     /* samples of all earlier steps, of all ranks */
    const int64_t *row; /* the rows of all ranks; NULL: consecutive rows of the data */
};

/* The row of sample i of a turn, over all ranks.  If there are fewer rows than samples, rows
 * repeat. */
int64_t video_turn_row(const struct video_turn *turn, const struct video_shapes *d, int64_t i);

/* The sample number, from which its crops and draws follow: the row, plus the number of rows for
 * each earlier epoch.  So it does not depend on other clips, ranks or the order. */
int64_t video_turn_sample(const struct video_turn *turn, const struct video_shapes *d, int64_t i);
/* The sample number for a row that replaces the row of `sample`. */
int64_t video_sample_of(const struct video_shapes *d, int64_t sample, int64_t row);

struct video_turns {
    const struct video_shapes *data;
    int ranks;
    uint64_t seed;
    int64_t interval; /* every interval-th frame of a clip is used */
    int64_t before;
    /* with buckets */
    struct bucket_epoch order;
    const struct video_shape **shape; /* of each list of the order; NULL: no shape */
    int64_t epoch;
    char *place; /* last result of video_turns_place */
};

/* data is borrowed.  Return 0, or -1 after a sentence. */
int video_turns_open(struct video_turns *t, const struct video_shapes *data, int64_t interval,
                     uint64_t seed, int ranks);
void video_turns_close(struct video_turns *t);

/* The next turn; its rows are valid until the next call. */
int video_turns_next(struct video_turns *t, int64_t step, struct video_turn *turn);

/* The run's place in its buckets, as a line of text valid until the next call, or NULL without
 * memory; and the call that restores a place. */
const char *video_turns_place(struct video_turns *t);
int video_turns_go(struct video_turns *t, const char *place);

/* ---- of a run with buckets (bucket_run.c) ---------------------------------------------------- */

/* Name of the note of video_note_place. */
#define VIDEO_PLACE "place in the buckets"

/* Notes a place in the buckets, from video_turns_place, in the run's states; NULL: the current one.
 * Returns 0, or -1 after a sentence. */
int video_note_place(struct video_turns *t, ckpt *c, const char *place);

/* Prints the buckets, with the memory and step time of each, and how many clips are never trained,
 * by the turns of the first epoch, which are open. */
void video_print_buckets(const struct video_turns *t, const ckpt *c);

#endif

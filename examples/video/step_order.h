/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clips of each step: consecutive rows of one shape, or the batches of a bucket in Open-Sora's
 * order (buckets.h), the same bucket for all ranks or, with balanced shapes, one of about the same
 * weight for each.
 */
#ifndef VIDEO_STEP_ORDER_H
#define VIDEO_STEP_ORDER_H

#include "shapes.h"

/* The clips of one step, of one rank. */
struct video_selection {
    const struct video_shape *shape;
    int64_t step;
    int64_t epoch;      /* with buckets */
    int64_t before;     /* samples of all earlier steps, of all ranks */
    int64_t all, first; /* samples of the step, of all ranks; index of this rank's first */
    const int64_t *row; /* the rows of this rank; NULL: consecutive rows of the data */
    bool second;        /* the step trains the second model of a pair */
};

/* The row of sample i of a selection.  If there are fewer rows than samples, rows repeat. */
int64_t video_selection_row(const struct video_selection *selection, const struct video_shapes *d,
                            int64_t i);

/* The sample number, from which its crops and draws follow: the row, plus the number of rows for
 * each earlier epoch.  So it does not depend on other clips, ranks or the order. */
int64_t video_selection_sample(const struct video_selection *selection,
                               const struct video_shapes *d, int64_t i);
/* The sample number for a row that replaces the row of `sample`. */
int64_t video_sample_of(const struct video_shapes *d, int64_t sample, int64_t row);

struct video_order {
    const struct video_shapes *data;
    int rank, ranks;
    uint64_t seed;
    double share;     /* fraction of the steps that train the first model of a pair; 0: no pair */
    int64_t interval; /* every interval-th frame of a clip is used */
    int64_t before;
    /* with buckets */
    struct bucket_epoch bucket;
    const struct video_shape **shape; /* of each list of the buckets; NULL: no shape */
    int *by_weight;                   /* the lists, the lightest first; NULL: not balanced */
    struct bucket_deal *deal;         /* of each rank in the step that was selected last */
    int64_t epoch;
    char *place; /* last result of video_order_place */
};

/* data is borrowed.  Return 0, or -1 after a sentence. */
int video_order_open(struct video_order *t, const struct video_shapes *data, int64_t interval,
                     uint64_t seed, int rank, int ranks);
void video_order_close(struct video_order *t);

/* The training program of a step. */
ckpt_program *video_selection_program(const struct video_selection *selection);

/* The next selection; its rows are valid until the next call. */
int video_order_next(struct video_order *t, int64_t step, struct video_selection *selection);

/* The run's place in its buckets, as a line of text valid until the next call, or NULL without
 * memory; and the call that restores a place. */
const char *video_order_place(struct video_order *t);
int video_order_go(struct video_order *t, const char *place);

/* ---- of a run with buckets (bucket_run.c) ---------------------------------------------------- */

/* Name of the note of video_note_place. */
#define VIDEO_PLACE "place in the buckets"

/* Notes a place in the buckets, from video_order_place, in the run's states; NULL: the current one.
 * Returns 0, or -1 after a sentence. */
int video_note_place(struct video_order *t, ckpt *c, const char *place);

/* Prints the buckets, with the memory and step time of each, and how many clips are never trained,
 * by the order of the first epoch, which are open. */
void video_print_buckets(struct video_order *t, const ckpt *c);

#endif

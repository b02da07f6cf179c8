/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of a step. */
#ifndef VIDEO_BATCH_H
#define VIDEO_BATCH_H

#include "../common/order.h"
#include "run.h"

/* Host memory for the samples of one step. */
struct video_batch {
    struct video_run *run;
    struct sample_order order;
    float *z, *y, *image, *eps;
    float *t, *drop, *unseen; /* for the samples of all ranks */
    float *signal, *noise;
    uint16_t *y_bf16;
};

/* Returns 0, or -1 after an error message, as do all below; close b also after a failure. */
int video_batch_open(struct video_batch *b, struct video_run *r);
void video_batch_close(struct video_batch *b);

/* Fills in the samples of this rank for a step of all ranks.  Rows repeat when there are fewer of
 * them than the batch has samples. */
int video_batch_fill(struct video_batch *b, int64_t step);
/* For a batch of one sample in file order: fills in that row, the same on all ranks, with nothing
 * dropped. */
int video_batch_fill_row(struct video_batch *b, int64_t row);

/* Feeds the batch to the program of the run. */
int video_batch_feed(const struct video_batch *b);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What a step is fed. */
#ifndef COGVIDEO_BATCH_H
#define COGVIDEO_BATCH_H

#include "../common/order.h"
#include "run.h"

/* Host memory of the samples of one step. */
struct cogvideo_batch {
    struct cogvideo_run *run;
    struct sample_order order;
    float *z, *y, *image, *eps;
    float *t, *drop, *unseen; /* of all ranks */
    float *signal, *noise;
    uint16_t *y_bf16;
};

/* Returns 0, or -1 after a sentence, as all below; b is to be closed then, too. */
int cogvideo_batch_open(struct cogvideo_batch *b, struct cogvideo_run *r);
void cogvideo_batch_close(struct cogvideo_batch *b);

/* The samples of this rank in a step of all ranks.  When there are fewer rows than the batch is
 * large they come round again. */
int cogvideo_batch_fill(struct cogvideo_batch *b, int64_t step);
/* Of a batch of one that keeps its order: that row, the same for all ranks, nothing dropped. */
int cogvideo_batch_fill_row(struct cogvideo_batch *b, int64_t row);

/* Feeds them to the program of the run. */
int cogvideo_batch_feed(const struct cogvideo_batch *b);

#endif

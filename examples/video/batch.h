/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of a step. */
#ifndef VIDEO_BATCH_H
#define VIDEO_BATCH_H

#include "../common/order.h"
#include "run.h"

/* Host memory for the samples of one step, in one of the shapes of a run.  A model fills and feeds
 * what its programs take. */
struct video_batch {
    struct video_run *run;
    const struct video_shape *shape; /* of this step */
    int64_t size;                    /* samples of this rank */
    int64_t all, first;              /* samples of all ranks; index of this rank's first */
    struct sample_order order;
    float *z, *y, *image, *sight, *eps; /* sight: features of pictures */
    float *null_text;                   /* the features of --null-text, or NULL */
    uint16_t *y_bf16;                   /* of y, where the model is in bf16 */
    float *t, *u,
        *drop; /* for the samples of all ranks, as is the next: timesteps, levels of noise */
    float *unseen, *given;
    float *signal, *noise; /* of each sample; of each frame, where a first one may be given */
    float *times, *weight; /* timesteps of the first frame and the others; see record in train.c */
    float *fps;
    int32_t *mask, *x_mask; /* valid tokens; noised frames, in STDiT of all ranks */
    int32_t *null;          /* 1 for the null caption, of all ranks */
};

/* Allocates for steps of any of n shapes.  Returns 0, or -1 after an error message, as do all
 * below; close b also after a failure. */
int video_batch_open(struct video_batch *b, struct video_run *r, const struct video_shape *shapes,
                     int n);
void video_batch_close(struct video_batch *b);
/* Sets the shape of the step, and the samples of this rank. */
void video_batch_begin(struct video_batch *b, const struct video_shape *s);

/* Fills in the samples of this rank for a step of all ranks.  Rows repeat when there are fewer of
 * them than the batch has samples. */
int video_batch_fill(struct video_batch *b, const struct video_selection *selection);
int video_batch_fill_row(struct video_batch *b, int64_t row);

/* Feeds latents, timesteps and text to a program, and in training the noise, if there is some; the
 * second also feeds what the family's training programs take.  Return a code of the library. */
int video_batch_feed(const struct video_batch *b, ckpt_program *p, bool trains);
int video_batch_feed_training(const struct video_batch *b, ckpt_program *p);

#endif

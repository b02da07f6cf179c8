/* SPDX-License-Identifier: Apache-2.0 */
/* One run of stdit-train: declarations shared by its files. */
#ifndef STDIT_RUN_H
#define STDIT_RUN_H

#include "../../common/say.h"
#include "../batch.h"
#include "../run.h"
#include "../validate.h"
#include "dataset.h"
#include "model.h"
#include "options.h"

/* Frees all but the context. */
void stdit_close(struct video_run *r);

/* make_model creates the model of the options; load reads its weights.  Both return 0, or -1 after
 * a sentence. */
int stdit_make_model(struct video_run *r);
int stdit_load(struct video_run *r);
/* Prints a note if a text is longer than the null caption. */
void stdit_note_caption(const struct video_run *r);

/* ---- training ------------------------------------------------------------------------------ */

/* Creates the model of the options, plans the programs of compile for this number of ranks in a
 * separate context that runs nothing, and frees both: a run that does not fit fails before the slow
 * text encoder starts.  Returns 0, or -1 after a sentence. */
int stdit_plan_ahead(struct video_run *r, int ranks, int (*compile)(struct video_run *r));

/* Compiles the programs of the run before its first step, so that all are known to fit: `training`
 * compiles the training programs (NULL: none); then the sampling program, and the autoencoder's
 * programs for the clips of the run and clips added before.  Return 0, or -1 after printing a
 * sentence. */
int stdit_compile(struct video_run *r, int (*training)(struct video_run *r));
int stdit_compile_training(struct video_run *r);
int stdit_compile_sampling(struct video_run *r);

/* See struct video_model. */
ckpt_tensor stdit_record(ckpt_tape *t, int64_t batch, void *recorded);

/* ---- batches ------------------------------------------------------------------------------- */

/* Fills in the rows of a step, then its draws: times, frame masks, dropped captions. */
int stdit_batch_fill(struct video_batch *b, const struct video_selection *selection);
int stdit_batch_fill_row(struct video_batch *b, int64_t row);

/* Encodes the clips of a step if the data is videos; they are the loader's next clips. */
int stdit_batch_encode(struct video_batch *b, const struct video_selection *selection,
                       struct loader *loader);

/* The clips of future steps, in the order of the steps. */
struct stdit_ahead {
    const struct video_run *run;
    struct video_order order;
    struct video_selection selection;
    int64_t step, taken; /* next step; its clips so far */
    struct loader_source source;
    struct loader *loader; /* NULL: the data is not videos */
};

/* Reads a clip from this row; the sample determines its random part and crop.  Returns 1, 0 if the
 * row has no such clip, or -1 after a sentence. */
int stdit_clip_read(const struct video_data *d, uint64_t seed, int64_t sample,
                    struct loader_file *f, const struct loader_clip *c, int64_t row, double *fps);

/* Prints the memory for reading videos, as divided by the options; an error if it is too little.
 * Returns 0, or -1 after a sentence. */
int stdit_ahead_plan(const struct video_run *r);
/* Starts reading at the current step; a must not move in memory.  Returns 0, or -1 after a
 * sentence; the caller closes a in both cases. */
int stdit_ahead_open(struct stdit_ahead *a, struct video_run *r);
void stdit_ahead_close(struct stdit_ahead *a);

/* Feeds the inputs common to training and sampling: z, t, y, mask, fps and, if used, drop; and what
 * training programs take.  Return a code of the library. */
int stdit_batch_feed(const struct video_batch *b, ckpt_program *p, bool drop);
int stdit_batch_feed_training(const struct video_batch *b, ckpt_program *p);

/* Records the inputs that stdit_batch_feed feeds. */
struct stdit_inputs stdit_record_inputs(const struct video_run *r, const struct video_shape *s,
                                        ckpt_tape *t, int64_t batch, bool drop);

/* ---- output -------------------------------------------------------------------------------- */

/* stdit_sample samples at the end, from the moving average, and writes videos and pictures.
 * stdit_sample_between samples after `step` steps, before training continues, from the current
 * weights or, with sample_ema, from the average.  Return 0 or -1. */
int stdit_sample(struct video_run *r);
int stdit_sample_between(void *run, int64_t step);

/* Decodes and writes n clips: a video and a strip of some frames; at the end all frames, and a clip
 * of the data for comparison. */
int stdit_write_videos(struct video_run *r, const float *z, int64_t n, int64_t step);

/* Writes n clips with the shape of the data's rows as pictures. */
int stdit_write_pictures(struct video_run *r, const float *z, int64_t n, int64_t step);

/* ---- callbacks of struct trainer, which describes them -------------------------------------- */

void stdit_describe(const void *run, FILE *f);
int stdit_open_steps(void *run, struct training *t);
void stdit_close_steps(void *user);

#endif

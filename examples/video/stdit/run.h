/* SPDX-License-Identifier: Apache-2.0 */
/* One run of stdit-train: declarations shared by its files. */
#ifndef STDIT_RUN_H
#define STDIT_RUN_H

#include "../../common/loader.h"
#include "../../common/say.h"
#include "../../common/training.h"
#include "../../common/validation.h"
#include "dataset.h"
#include "model.h"
#include "options.h"
#include "../turns.h"

/* The loss on clips of --val, by noise level. */
struct stdit_validation {
    struct stdit_run *run; /* with its data and program; NULL: none */
    struct validation common;
};

struct stdit_run {
    struct video_options options;
    struct video_data data;
    struct stdit model;
    ckpt *context;
    ckpt_program *training;      /* that of the first shape */
    ckpt_program *sampling;      /* the context's; NULL: not requested */
    bool given;                  /* sampled clips have given frames */
    struct stdit_script *script; /* of stdit-sample, borrowed */
    int64_t trainable;           /* parameters that are trained */
    int64_t first;               /* steps of the resumed runs */
    bool drops;                  /* random captions are dropped */
    struct video_turns turns;
    struct loader_hold hold; /* during compilation */
    char *bad;               /* RESUME_BAD of the resumed state, or NULL */
    struct stdit_validation validation;
    struct run_log log;
};

/* Frees all but the context. */
void stdit_close(struct stdit_run *r);

/* make_model creates the model of the options and the shifts of its times; load reads its weights.
 * Both return 0, or -1 after a sentence. */
int stdit_make_model(struct stdit_run *r);
int stdit_load(struct stdit_run *r);
/* Prints a note if a text is longer than the null caption. */
void stdit_note_caption(const struct stdit_run *r);

/* ---- training ------------------------------------------------------------------------------ */

/* Creates the model of the options, plans the programs of compile for this number of ranks in a
 * separate context that runs nothing, and frees both: a run that does not fit fails before the slow
 * text encoder starts.  Returns 0, or -1 after a sentence. */
int stdit_plan_ahead(struct stdit_run *r, int ranks, int (*compile)(struct stdit_run *r));

/* Compiles the programs of the run before its first step, so that all are known to fit: `training`
 * compiles the training programs (NULL: none); then the sampling program, and the autoencoder's
 * programs for the clips of the run and clips added before.  Return 0, or -1 after printing a
 * sentence. */
int stdit_compile(struct stdit_run *r, int (*training)(struct stdit_run *r));
int stdit_compile_training(struct stdit_run *r);
int stdit_compile_sampling(struct stdit_run *r);

/* Compiles the loss of a shape, with an optimizer or, NULL, the loss alone; what: prefix of an
 * error sentence. */
int stdit_compile_loss(struct stdit_run *r, struct video_shape *s, const ckpt_optimizer *optimizer,
                       const char *what);

/* Opens --val; compiles its program; measures and prints the loss by noise level.  Open after the
 * data of the run, compile after its model.  Return 0, or -1 after a sentence. */
int stdit_validation_open(struct stdit_run *r);
int stdit_compile_validation(struct stdit_run *r);
int stdit_validate(void *run, int64_t step);
void stdit_validation_close(struct stdit_run *r);

/* ---- batches ------------------------------------------------------------------------------- */

/* Host memory for the inputs of one step, in the shape of its turn. */
struct stdit_batch {
    float *z, *t, *u, *y, *fps, *eps;
    uint16_t *y_bf16; /* of y, where the model is in bf16 */
    bool bf16;
    int32_t *mask, *x_mask, *drop;
    const struct video_shape *shape;
    uint64_t seed;
    int64_t size;       /* samples of this rank */
    int64_t all, first; /* samples of all ranks; index of this rank's first */
};

/* Allocates for steps of any of n shapes. */
int stdit_batch_create(struct stdit_batch *b, const struct stdit_run *r,
                       const struct video_shape *shapes, int n);
void stdit_batch_free(struct stdit_batch *b);

/* Fills in the rows of a step, then its draws: times, frame masks, dropped captions. */
int stdit_batch_fill(struct stdit_batch *b, const struct stdit_run *r,
                     const struct video_turn *turn);

/* Encodes the clips of a step if the data is videos; they are the loader's next clips. */
int stdit_batch_encode(struct stdit_batch *b, struct stdit_run *r, const struct video_turn *turn,
                       struct loader *loader);

/* The clips of future steps, in the order of the steps. */
struct stdit_ahead {
    const struct stdit_run *run;
    struct video_turns turns;
    struct video_turn turn;
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
int stdit_ahead_plan(const struct stdit_run *r);
/* Starts reading at the current step; a must not move in memory.  Returns 0, or -1 after a
 * sentence; the caller closes a in both cases. */
int stdit_ahead_open(struct stdit_ahead *a, struct stdit_run *r);
void stdit_ahead_close(struct stdit_ahead *a);

/* Feeds the inputs common to training and sampling: z, t, y, mask, fps and, if used, drop. */
int stdit_batch_feed(const struct stdit_batch *b, const struct stdit_run *r, ckpt_program *p,
                     bool drop);
/* Feeds the inputs of training only. */
int stdit_batch_feed_training(const struct stdit_batch *b, const struct stdit_run *r,
                              ckpt_program *p);

/* Records the inputs that stdit_batch_feed feeds. */
struct stdit_inputs stdit_record_inputs(const struct stdit_run *r, const struct video_shape *s,
                                        ckpt_tape *t, int64_t batch, bool drop);

/* ---- output -------------------------------------------------------------------------------- */

/* stdit_sample samples at the end, from the moving average, and writes videos and pictures.
 * stdit_sample_between samples after `step` steps, before training continues, from the current
 * weights or, with sample_ema, from the average.  Return 0 or -1. */
int stdit_sample(struct stdit_run *r);
int stdit_sample_between(void *run, int64_t step);

/* Decodes and writes n clips: a video and a strip of some frames; at the end all frames, and a clip
 * of the data for comparison. */
int stdit_write_videos(struct stdit_run *r, const float *z, int64_t n, int64_t step);

/* Writes n clips with the shape of the data's rows as pictures. */
int stdit_write_pictures(struct stdit_run *r, const float *z, int64_t n, int64_t step);

/* ---- callbacks of struct trainer, which describes them -------------------------------------- */

void stdit_describe(const void *run, FILE *f);
int stdit_open_steps(void *run, struct training *t);
void stdit_close_steps(void *user);

#endif

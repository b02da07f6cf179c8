/* SPDX-License-Identifier: Apache-2.0 */
/* One run of stdit-train: what its parts share. */
#ifndef STDIT_RUN_H
#define STDIT_RUN_H

#include "../common/loader.h"
#include "../common/log.h"
#include "../common/say.h"
#include "../common/validation.h"
#include "dataset.h"
#include "model.h"
#include "options.h"
#include "turns.h"

/* The loss on clips of --val, by noise level. */
struct stdit_validation {
    struct stdit_run *run; /* of its data and program; NULL: there is none */
    struct validation common;
};

struct stdit_run {
    struct stdit_options options;
    struct stdit_data data;
    struct stdit model;
    ckpt *context;
    ckpt_program *sampling; /* the context's; NULL: not asked for */
    bool given;             /* some frames of what is drawn are given */
    struct stdit_script *script; /* of stdit-sample, borrowed */
    int64_t trainable;      /* parameters that are trained */
    int64_t first;          /* steps of the runs that this one goes on with */
    bool drops;             /* captions are dropped at random */
    struct stdit_turns turns;
    struct loader_hold hold; /* while programs are compiled */
    char *bad;               /* RESUME_BAD of the state that it goes on from, or NULL */
    struct stdit_validation validation;
    struct run_log log;
};

/* All of a program: parses, goes, frees.  Returns its status. */
int stdit_main(int argc, char **argv, int (*parse)(struct stdit_options *o, int argc, char **argv),
               int (*go)(struct stdit_run *r));

/* Makes the model of the options and the shifts of its times, and loads its weights.  Both return
 * 0, or -1 after a sentence. */
int stdit_make_model(struct stdit_run *r);
int stdit_load(struct stdit_run *r);
/* Says it where a text is longer than the null caption. */
void stdit_note_caption(const struct stdit_run *r);

/* ---- training ------------------------------------------------------------------------------ */

/* Makes the model of the options and plans what compile compiles, for so many ranks, in a context
 * of its own that runs nothing, and forgets both: what does not fit is refused before a text
 * encoder takes its time.  Returns 0, or -1 after a sentence. */
int stdit_plan_ahead(struct stdit_run *r, int ranks, int (*compile)(struct stdit_run *r));

/* Compiles the programs of the run, before its first step, so that all are known to fit: those that
 * train by training (NULL: none), that which samples, those of the autoencoder, for the clips of
 * the run and what was added before.  Return 0, or -1 after printing a sentence. */
int stdit_compile(struct stdit_run *r, int (*training)(struct stdit_run *r));
int stdit_compile_training(struct stdit_run *r);
int stdit_compile_sampling(struct stdit_run *r);

/* Compiles the loss of a shape, with an optimizer or, NULL, alone; what: begins the sentence. */
int stdit_compile_loss(struct stdit_run *r, struct stdit_shape *s, const ckpt_optimizer *optimizer,
                       const char *what);

/* Opens --val; compiles, measures and prints the loss by noise level.  The first comes behind the
 * data of the run, the second behind its model.  Return 0, or -1 after a sentence. */
int stdit_validation_open(struct stdit_run *r);
int stdit_compile_validation(struct stdit_run *r);
int stdit_validate(struct stdit_run *r, int64_t step);
void stdit_validation_close(struct stdit_run *r);

/* Prints the buckets: what each takes, and how long. */
void stdit_print_buckets(const struct stdit_run *r);
/* Chooses the batches that the table leaves open, or takes those of the state that the run goes on
 * with, and notes them in its states.  A call of all ranks.  Returns 0, or -1 after a sentence for
 * each bucket that does not fit at all. */
int stdit_choose_batches(struct stdit_run *r, const ckpt_optimizer *optimizer);
/* What a step of this shape and batch would take: see ckpt_forecast. */
int stdit_forecast(struct stdit_run *r, struct stdit_shape *s, const ckpt_optimizer *optimizer,
                   int64_t batch, double limit, struct ckpt_forecast *f);

/* Notes what their order follows from.  Returns 0, or -1 after a sentence. */
int stdit_note_buckets(const struct stdit_run *r);

/* The name of the next. */
#define STDIT_PLACE "place in the buckets"

/* Notes in the states of the run where it stands in its buckets.  Returns 0, or -1 after a
 * sentence. */
int stdit_note_place(struct stdit_run *r);

/* Runs the steps, logs them, dumps the first and saves at the end.  Returns 0 or -1. */
int stdit_train(struct stdit_run *r);

/* ---- batches ------------------------------------------------------------------------------- */

/* Host memory of what one step is fed, of the shape of its turn. */
struct stdit_batch {
    float *z, *t, *u, *y, *fps, *eps;
    uint16_t *y_bf16; /* of y, where the model is in bf16 */
    bool bf16;
    int32_t *mask, *x_mask, *drop;
    const struct stdit_shape *shape;
    uint64_t seed;
    int64_t size;       /* samples of this rank */
    int64_t all, first; /* of all ranks; where this rank's begin among them */
};

/* Room for steps of any of n shapes. */
int stdit_batch_create(struct stdit_batch *b, const struct stdit_run *r,
                       const struct stdit_shape *shapes, int n);
void stdit_batch_free(struct stdit_batch *b);

/* The rows of a step, then its draws: times, frame masks, dropped captions. */
int stdit_batch_fill(struct stdit_batch *b, const struct stdit_run *r,
                     const struct stdit_turn *turn);

/* Encodes the clips of a step, where the data is videos; they come next from the loader. */
int stdit_batch_encode(struct stdit_batch *b, struct stdit_run *r, const struct stdit_turn *turn,
                       struct loader *loader);

/* The clips of the steps to come, in the order of their steps. */
struct stdit_ahead {
    const struct stdit_run *run;
    struct stdit_turns turns;
    struct stdit_turn turn;
    int64_t step, taken; /* the next one; clips of the turn */
    struct loader_source source;
    struct loader *loader; /* NULL: the data is no videos */
};

/* Reads a clip for that row, its part and crop drawn for that sample.  Returns 1, 0 if the row has
 * no such clip, or -1 after a sentence. */
int stdit_clip_read(const struct stdit_data *d, uint64_t seed, int64_t sample,
                    struct loader_file *f, const struct loader_clip *c, int64_t row, double *fps);

/* What reading videos takes, as the options divide it: printed, and refused where it is too little.
 * Returns 0, or -1 after a sentence. */
int stdit_ahead_plan(const struct stdit_run *r);
/* Starts reading where the run stands; ahead stays where it is.  Returns 0, or -1 after a sentence;
 * a is to be closed then, too. */
int stdit_ahead_open(struct stdit_ahead *a, struct stdit_run *r);
void stdit_ahead_close(struct stdit_ahead *a);

/* Feeds the rows that training and sampling share: z, t, y, mask, fps and, if any, drop. */
int stdit_batch_feed(const struct stdit_batch *b, const struct stdit_run *r, ckpt_program *p,
                     bool drop);
/* Feeds what only training takes. */
int stdit_batch_feed_training(const struct stdit_batch *b, const struct stdit_run *r,
                              ckpt_program *p);

/* Records the inputs that stdit_batch_feed feeds. */
struct stdit_inputs stdit_record_inputs(const struct stdit_run *r, const struct stdit_shape *s,
                                        ckpt_tape *t, int64_t batch, bool drop);

/* ---- what comes out ------------------------------------------------------------------------ */

/* Samples at the end, from the moving average, and writes videos and pictures; or from the weights
 * as they are, behind `step` steps, which are to go on.  Return 0 or -1. */
int stdit_sample(struct stdit_run *r);
int stdit_sample_between(struct stdit_run *r, int64_t step);

/* Decodes and writes n clips: a video and a strip of some frames; at the end all frames, and a clip
 * of the data next to them. */
int stdit_write_videos(struct stdit_run *r, const float *z, int64_t n, int64_t step);

/* Writes n clips, shaped as the data's rows, so. */
int stdit_write_pictures(struct stdit_run *r, const float *z, int64_t n, int64_t step);

/* The log with its first line.  Returns 0, or -1 after a sentence. */
int stdit_log_open(struct stdit_run *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shapes of the clips of a run: one, or one for each bucket of a table that the clips fit. Each
 * has a training program; all of them share one context and so one budget.
 */
#ifndef VIDEO_SHAPES_H
#define VIDEO_SHAPES_H

#include "../common/balance.h"
#include "../common/resume.h"
#include "buckets.h"
#include "model.h"

enum { VIDEO_BUCKET_NAME = 32, VIDEO_DIRECTIONS = 2 };

/* Clips of one size and length, and their latents. */
struct video_clips {
    int64_t frames, height, width; /* frames 0: they are not encoded */
    int64_t latent_frames, rows, columns;
    /* of the autoencoder: its programs for each direction, of a whole pass and of a shorter last
     * one */
    int coder[VIDEO_DIRECTIONS][2];
};

/* Clips of one size and length, the batch size, and the training program. */
struct video_shape {
    struct video_geometry geometry;
    struct video_clips clips; /* input of the autoencoder */
    int64_t batch;            /* samples of a step, of each rank */
    bool masked;              /* frame masks are fed */
    struct bucket bucket;     /* with buckets */
    char name[VIDEO_BUCKET_NAME];
    int64_t possible;       /* rows that may be in this bucket */
    double weight;          /* of a batch, with balanced shapes */
    ckpt_program *training; /* the context's; NULL: none */
    ckpt_program *low;      /* the same of the second model of a pair */
};

struct video_shapes {
    struct video_shape *shape;
    int n;
    bool balanced;              /* ranks use batches of about one weight in a step */
    int64_t rows;               /* of the data */
    int64_t fitting;            /* with buckets: rows that one with a shape can take */
    struct buckets buckets;     /* n 0: none */
    struct bucket_sample *size; /* [rows], with buckets */
    struct bucket *own;         /* [rows] of a cache, with buckets: the encoded bucket */
};

/* Allocates n shapes.  Returns 0, or -1 after a sentence, as do all below. */
int video_shapes_make(struct video_shapes *d, int n);
void video_shapes_free(struct video_shapes *d);

/* How an autoencoder sizes latents. */
struct video_sizing {
    int64_t cell; /* pixels along the side of one */
    /* Sets the members of a shape that depend on the size of its frames. */
    void (*fill)(const void *coder, struct video_shape *s, int64_t frames, int64_t height,
                 int64_t width);
    const void *coder;
};

/* Makes a shape for each bucket of the table that enough rows, whose sizes are known, may be in for
 * a whole batch; every interval-th frame is used.  Shapes with the most tokens per step come first.
 * open: all batches are to be chosen. */
int video_shapes_read(struct video_shapes *d, const char *path, bool open, int64_t interval,
                      const struct video_sizing *sizing);
/* The shape of a bucket, or NULL if the run has none of it. */
const struct video_shape *video_shape_of(const struct video_shapes *d, const struct bucket *b);
/* "144p 17 0.56": size, frames and ratio. */
void video_bucket_name(const struct buckets *table, const struct bucket *b,
                       char name[VIDEO_BUCKET_NAME]);

/* Notes in the states of a run a hash of all inputs, beside the seed, that determine the order of
 * the buckets. */
int video_note_buckets(const struct video_shapes *d, ckpt *c);

/* ---- balance of ranks (bucket_balance.c) ----------------------------------------------------- */

/* Weighs the compiled shapes by tokens, or by predicted time or the times of the resumed state,
 * which it notes in the run's states, and lets the ranks run different shapes in a step.
 * Collective.  Returns 0, or -1 after a sentence. */
int video_balance(struct video_shapes *d, ckpt *c, enum balance kind,
                  const struct resume_options *state);

/* ---- open batches (bucket_batch.c) ----------------------------------------------------------- */

struct video_batches {
    struct video_shapes *shapes;
    ckpt *context;
    const struct resume_options *state;
    int64_t micro;  /* above 0: batches are multiples of it */
    double seconds; /* longest step; 0: of the slowest bucket with a batch in the table, else of one
                     * clip of the largest */
    /* The forecast of a step with this shape and batch: see ckpt_forecast. */
    int (*forecast)(void *user, struct video_shape *s, int64_t batch, double limit,
                    struct ckpt_forecast *f);
    void *user;
};

/* Chooses the batches that the table leaves open, or uses the batches of the resumed state, and
 * notes them in the run's states.  Collective over all ranks.  Returns 0, or -1 after a sentence
 * for each bucket that does not fit with any batch. */
int video_choose_batches(const struct video_batches *b);

#endif

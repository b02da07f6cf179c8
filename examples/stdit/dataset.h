/* SPDX-License-Identifier: Apache-2.0 */
/* What is trained on: clips in pixel space, precomputed features, or noise of a given shape. */
#ifndef STDIT_DATASET_H
#define STDIT_DATASET_H

#include "../cache/cache.h"
#include "ckpt_files.h"
#include "model.h"
#include "autoencoder.h"
#include "buckets.h"
#include "options.h"
#include "schedule.h"
#include "texts.h"
#include "videos.h"

/* Clips of one size and length, how many a step takes, and what trains on them. */
struct stdit_shape {
    struct stdit_geometry geometry;
    struct stdit_clips clips; /* that pass the autoencoder */
    struct stdit_shift shift;
    int64_t batch;          /* samples of a step, of each rank */
    bool masked;            /* frame masks are fed */
    struct bucket bucket;   /* where there are buckets */
    char name[32];          /* its name */
    int64_t possible;       /* rows that can be in it */
    ckpt_program *training; /* the context's; NULL: none */
};

struct stdit_data {
    char title[512];   /* for the person who watches */
    bool pixels;       /* z is a clip with values in [-1, 1] */
    bool null_caption; /* every sample sees the null caption; y is not looked at */
    bool noise;        /* z is drawn for each row as it is taken */
    int64_t rows, channels, caption_channels;
    int64_t text_rows; /* 1: of all rows */
    const int64_t *text_of; /* [rows] which of them a row has; NULL: the one of its number */
    int64_t tokens;    /* of text, of a sample */
    struct stdit_shape *shape;
    int n_shapes;
    struct buckets buckets;     /* n 0: there are none */
    struct bucket_sample *size; /* [rows], with buckets */
    struct bucket *own;         /* [rows] of a cache, with buckets: where each was encoded for */
    struct cache cache;         /* rows 0: there is none; else z and y come from it */
    struct stdit_videos videos; /* encoded by vae when z is NULL and there is no cache */
    struct stdit_vae vae;
    struct stdit_texts texts; /* captions of videos; rows 0: there are none */
    float *z;        /* [rows, channels, T, H, W] */
    float *y;        /* [text rows, L, caption_channels]; NULL: in the cache or in texts */
    int32_t *mask;   /* [text rows, L] */
    float *fps;      /* [rows] */
    float *t, *eps;  /* [rows], like z; NULL: drawn */
    int32_t *x_mask; /* [rows, T]; NULL: drawn or absent */
};

/* Loads what the options ask for, and fills in what they leave to the data: channels, text tokens.
 * captions: those of videos are listed for the text encoder, where it is asked for.  Returns 0, or
 * -1 after printing a sentence. */
int stdit_data_open(struct stdit_data *d, struct stdit_options *o, bool captions);
void stdit_data_close(struct stdit_data *d);

/* Elements of one row of z in a shape, and of y. */
int64_t stdit_data_z(const struct stdit_data *d, const struct stdit_shape *s);
int64_t stdit_data_y(const struct stdit_data *d);

/* Fills d from a file of features, but for what follows from the options. */
int stdit_data_features(struct stdit_data *d, const char *path);

/* A tensor of a file as fp32, to be freed; a size of -1 fits any.  NULL after a sentence. */
float *stdit_tensor(ckpt_file *f, const char *path, const char *name, int ndim,
                    const int64_t *shape);

/* y and mask of a file, or one caption that is the null caption; and what both agree on with the
 * options. */
int stdit_data_text(struct stdit_data *d, const char *path);
int stdit_data_caption(struct stdit_data *d, const struct stdit_options *o);
int stdit_data_agree(struct stdit_data *d, struct stdit_options *o);

/* Where the text of a sample goes. */
struct stdit_text {
    float *y;      /* [L, caption_channels] */
    int32_t *mask; /* [L] */
};

/* Opens the cache of the options (cached.c). */
int stdit_data_cached(struct stdit_data *d, struct stdit_options *o);
/* Latents, and the text where the cache has it, of a row or, where that could not be encoded, of
 * the next one of its shape, which is returned. */
int64_t stdit_cached_row(const struct stdit_data *d, const struct stdit_shape *s, int64_t row,
                         float *z, const struct stdit_text *text);

/* Makes the one shape, whose clips pass the autoencoder. */
int stdit_data_shape(struct stdit_data *d, const struct stdit_options *o, int64_t frames);
/* Reads the table of buckets, and makes a shape for each that can have a whole batch of the rows,
 * whose sizes are known; those with the most tokens a step come first. */
int stdit_data_buckets(struct stdit_data *d, const struct stdit_options *o);
/* Sets what follows from the sizes of the frames of a shape. */
void stdit_shape_fill(const struct stdit_vae *v, struct stdit_shape *s, int64_t frames,
                      int64_t height, int64_t width);
/* Makes room for n shapes. */
int stdit_data_shapes(struct stdit_data *d, int n);

#endif

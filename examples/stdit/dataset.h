/* SPDX-License-Identifier: Apache-2.0 */
/* What is trained on: clips in pixel space, precomputed features, or noise of a given shape. */
#ifndef STDIT_DATASET_H
#define STDIT_DATASET_H

#include "model.h"
#include "autoencoder.h"
#include "options.h"
#include "schedule.h"
#include "videos.h"

/* Clips of one size and length, how many a step takes, and what trains on them. */
struct stdit_shape {
    struct stdit_geometry geometry;
    struct stdit_clips clips; /* that pass the autoencoder */
    struct stdit_shift shift;
    int64_t batch;          /* samples of a step, of each rank */
    bool masked;            /* frame masks are fed */
    ckpt_program *training; /* the context's; NULL: none */
};

struct stdit_data {
    char title[512];   /* for the person who watches */
    bool pixels;       /* z is a clip with values in [-1, 1] */
    bool null_caption; /* every sample sees the null caption; y is not looked at */
    int64_t rows, channels, caption_channels;
    int64_t text_rows; /* 1: of all rows */
    int64_t tokens;    /* of text, of a sample */
    struct stdit_shape *shape;
    int n_shapes;
    struct stdit_videos videos; /* encoded by vae when z is NULL */
    struct stdit_vae vae;
    float *z;        /* [rows, channels, T, H, W] */
    float *y;        /* [text rows, L, caption_channels] */
    int32_t *mask;   /* [text rows, L] */
    float *fps;      /* [rows] */
    float *t, *eps;  /* [rows], like z; NULL: drawn */
    int32_t *x_mask; /* [rows, T]; NULL: drawn or absent */
};

/* Loads what the options ask for, and fills in what they leave to the data: channels, text tokens.
 * Returns 0, or -1 after printing a sentence. */
int stdit_data_open(struct stdit_data *d, struct stdit_options *o);
void stdit_data_close(struct stdit_data *d);

/* Elements of one row of z in a shape, and of y. */
int64_t stdit_data_z(const struct stdit_data *d, const struct stdit_shape *s);
int64_t stdit_data_y(const struct stdit_data *d);

/* Fills d from a file of features, but for what follows from the options. */
int stdit_data_features(struct stdit_data *d, const char *path);

/* y and mask of a file, or one caption that is the null caption; and what both agree on with the
 * options. */
int stdit_data_text(struct stdit_data *d, const char *path);
int stdit_data_caption(struct stdit_data *d, const struct stdit_options *o);
int stdit_data_agree(struct stdit_data *d, struct stdit_options *o);

/* Makes the one shape, whose clips pass the autoencoder. */
int stdit_data_shape(struct stdit_data *d, const struct stdit_options *o, int64_t frames);
/* Makes room for n shapes. */
int stdit_data_shapes(struct stdit_data *d, int n);

#endif

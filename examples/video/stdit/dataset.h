/* SPDX-License-Identifier: Apache-2.0 */
/* Training data: clips in pixel space, precomputed features, or noise of a given shape. */
#ifndef STDIT_DATASET_H
#define STDIT_DATASET_H

#include "../cache/cache.h"
#include "ckpt_files.h"
#include "model.h"
#include "autoencoder.h"
#include "options.h"
#include "schedule.h"
#include "texts.h"
#include "../shapes.h"
#include "../videos.h"

struct stdit_data {
    char title[512];   /* for the user */
    bool pixels;       /* z is a clip with values in [-1, 1] */
    bool null_caption; /* every sample has the null caption; y is unused */
    bool noise;        /* z is drawn for each row on use */
    int64_t channels, caption_channels;
    int64_t text_rows;      /* 1: shared by all rows */
    const int64_t *text_of; /* [rows] text row of each row; NULL: the row's own index */
    int64_t tokens;         /* text tokens of a sample */
    struct video_shapes shapes;
    struct cache cache;   /* rows 0: none; else z and y come from it */
    struct videos videos; /* encoded by vae when z is NULL and there is no cache */
    struct stdit_vae vae;
    struct stdit_texts texts; /* captions of videos; rows 0: none */
    float *z;                 /* [rows, channels, T, H, W] */
    float *y;                 /* [text rows, L, caption_channels]; NULL: in the cache or in texts */
    int32_t *mask;            /* [text rows, L] */
    float *fps;               /* [rows] */
    float *t, *eps;           /* [rows], like z; NULL: drawn */
    int32_t *x_mask;          /* [rows, T]; NULL: drawn or absent */
};

/* Loads the data of the options, and fills in options that depend on it: channels, text tokens.
 * captions: lists the videos' captions for the text encoder, if requested.  Returns 0, or -1 after
 * printing a sentence. */
int stdit_data_open(struct stdit_data *d, struct video_options *o, bool captions);
void stdit_data_close(struct stdit_data *d);

/* Elements of one row of z in a shape, and of y. */
int64_t stdit_data_z(const struct stdit_data *d, const struct video_shape *s);
int64_t stdit_data_y(const struct stdit_data *d);

/* Fills d from a file of features, except members that depend on the options. */
int stdit_data_features(struct stdit_data *d, const char *path);

/* Loads y and mask of a file, or makes a single null caption; checks data against the options. */
int stdit_data_text(struct stdit_data *d, const char *path);
int stdit_data_caption(struct stdit_data *d, const struct video_options *o);
int stdit_data_agree(struct stdit_data *d, struct video_options *o);

/* Destination of a sample's text. */
struct stdit_text {
    float *y;      /* [L, caption_channels] */
    int32_t *mask; /* [L] */
};

/* Opens the cache of the options (cached.c). */
int stdit_data_cached(struct stdit_data *d, struct video_options *o);
/* Reads the latents of a row and its text, if cached.  If the row could not be encoded, reads the
 * next row of its shape.  Returns the row read. */
int64_t stdit_cached_row(const struct stdit_data *d, const struct video_shape *s, int64_t row,
                         float *z, const struct stdit_text *text);

/* Makes the only shape, for clips that the autoencoder encodes. */
int stdit_data_shape(struct stdit_data *d, const struct video_options *o, int64_t frames);
/* Reads the table of buckets: see video_shapes_read. */
int stdit_data_buckets(struct stdit_data *d, const struct video_options *o);
/* Sets the members of a shape that depend on the sizes of its frames. */
void stdit_shape_fill(const struct stdit_vae *v, struct video_shape *s, int64_t frames,
                      int64_t height, int64_t width);

#endif

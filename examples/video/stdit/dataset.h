/* SPDX-License-Identifier: Apache-2.0 */
/* Training data: clips in pixel space, precomputed features, or noise of a given shape. */
#ifndef STDIT_DATASET_H
#define STDIT_DATASET_H

#include "../dataset.h"
#include "schedule.h"

/* Loads the data of the options, and fills in options that depend on it: channels, text tokens.
 * captions: lists the videos' captions for the text encoder, if requested.  Returns 0, or -1 after
 * printing a sentence. */
int stdit_data_open(struct video_data *d, struct video_options *o, bool captions);

/* Fills d from a file of features, except members that depend on the options. */
int stdit_data_features(struct video_data *d, const char *path);

/* Loads y and mask of a file, or makes a single null caption; checks data against the options. */
int stdit_data_text(struct video_data *d, const char *path);
int stdit_data_caption(struct video_data *d, const struct video_options *o);
int stdit_data_agree(struct video_data *d, struct video_options *o);

/* Destination of a sample's text. */
struct stdit_text {
    float *y;      /* [L, caption_channels] */
    int32_t *mask; /* [L] */
};

/* Opens the cache of the options (cached.c). */
int stdit_data_cached(struct video_data *d, struct video_options *o);
/* Reads the latents of a row and its text, if cached.  If the row could not be encoded, reads the
 * next row of its shape.  Returns the row read. */
int64_t stdit_cached_row(const struct video_data *d, const struct video_shape *s, int64_t row,
                         float *z, const struct stdit_text *text);

/* Makes the only shape, for clips that the autoencoder encodes. */
int stdit_data_shape(struct video_data *d, const struct video_options *o, int64_t frames);
/* Reads the table of buckets: see video_shapes_read. */
int stdit_data_buckets(struct video_data *d, const struct video_options *o);
/* Sets the members of a shape that depend on the sizes of its frames. */
void stdit_shape_fill(const struct stdit_vae *v, struct video_shape *s, int64_t frames,
                      int64_t height, int64_t width);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The training data: latents and text features that were encoded before, or noise. */
#ifndef VIDEO_DATASET_H
#define VIDEO_DATASET_H

#include "cache/cache.h"
#include "list.h"
#include "model.h"
#include "options.h"
#include "shapes.h"
#include "stdit/autoencoder.h"
#include "texts.h"
#include "videos.h"

/* Random streams of the library's generator. */
enum {
    VIDEO_STREAM_DATA = 0x43560010,
    VIDEO_STREAM_DROP,
    VIDEO_STREAM_UNSEEN, /* dropped images of I2V */
    VIDEO_STREAM_LEVEL,  /* of the noise on images */
    VIDEO_STREAM_NOISE,
    VIDEO_STREAM_VALID,
    VIDEO_STREAM_GIVEN /* first frames without noise */
};

/* The files of a sample. */
struct video_row {
    char *latents, *text;
    int64_t at;   /* index of the prompt in text */
    int64_t line; /* line of the list */
};

/* What a run trains on.  Latents and text come from memory, a cache, files, or videos that are
 * encoded on the way. */
struct video_data {
    char title[512]; /* for the user */
    struct video_shapes shapes;
    const struct video_sizes *sizes; /* of the model, if known before the data */
    int64_t channels;                /* of the latents */
    int64_t tokens, text_width;      /* of the text of a sample */
    int64_t text_rows;               /* 1: shared by all rows */
    const int64_t *text_of;          /* [rows] text row of each row; NULL: the row's own index */
    bool whole;                      /* every step uses all rows: no shuffle */
    bool drawn;                      /* z is drawn for each row on use */
    bool pixels;                     /* z is a clip with values in [-1, 1] */
    bool null_caption;               /* every sample has the null caption; y is unused */
    bool repeats; /* the first latent frame is repeated, so that patches are whole */
    /* Data that is all in memory: latents [rows, channels, F, h, w], text [text rows, S, width]
     * with its valid tokens [text rows, S], and, or NULL, image [rows, channels, 1, h, w], noise
     * with the shape of z, timesteps [rows], frame rates [rows], noised frames [rows, F], features
     * of pictures [rows, sight rows, sight width]. */
    float *z, *y, *image, *eps, *t, *fps, *sight;
    int32_t *mask, *x_mask;
    struct cache cache;     /* rows 0: no cache */
    int64_t *cached;        /* [rows]: row of the encoded clip in the cache; NULL: its own */
    bool conditions;        /* its latents are followed by those of a clip of the first frame */
    int64_t missing;        /* rows of the list without files */
    struct video_row *file; /* [rows], files of the samples; else NULL */
    struct videos videos;   /* encoded by vae */
    struct stdit_vae vae;
    struct video_texts texts; /* captions of videos; rows 0: none */
};

/* Elements of one sample: latents in a shape, text, the condition image in a shape, features of a
 * picture (0: none). */
int64_t video_data_z(const struct video_data *d, const struct video_shape *s);
int64_t video_data_y(const struct video_data *d);
int64_t video_data_image(const struct video_data *d, const struct video_shape *s);
int64_t video_data_sight(const struct video_data *d);

/* Opens the data that the options name; seed selects the noise.  Returns 0, or -1 after an error
 * message. */
int video_data_open(struct video_data *d, struct video_options *o);
void video_data_close(struct video_data *d);

/* The number of lines in the list, and the line of a row. */
int64_t video_data_lines(const struct video_data *d);
int64_t video_data_line(const struct video_data *d, int64_t row);

/* Reads one sample of a shape; image may be NULL.  Returns 0, or -1 after an error message. */
int video_data_read(const struct video_data *d, const struct video_shape *s, int64_t row, float *z,
                    float *y, float *image);
/* Reads the features of its picture. */
int video_data_read_sight(const struct video_data *d, const struct video_shape *s, int64_t row,
                          float *sight);

/* ---- private to dataset.c, dataset_files.c and dataset_cache.c ------------------------------ */

/* Finds the files of the samples in the cache (dataset_files.c), and reads the shape of the first.
 */
int video_cache_open(struct video_data *d, const struct video_options *o);
int video_cache_read(const struct video_data *d, int64_t row, float *z, float *y, float *image);
int video_cache_read_sight(const struct video_data *d, int64_t row, float *sight);

/* The same for a cache made by video-encode (dataset_cache.c). */
int video_cached_open(struct video_data *d, const struct video_options *o);
int video_cached_read(const struct video_data *d, const struct video_shape *s, int64_t row,
                      float *z, float *y, float *image);
int video_cached_read_sight(const struct video_data *d, const struct video_shape *s, int64_t row,
                            float *sight);

/* The rows of a cache in buckets (dataset_buckets.c).  fits: whether the latents of a row have this
 * shape, in the cache's channels; find: this row or, if it could not be encoded, the next one that
 * has the shape. */
bool video_cached_fits(const struct video_data *d, const struct video_shape *s,
                       const struct cache_row *r);
int64_t video_cached_find(const struct video_data *d, const struct video_shape *s, int64_t row);
int video_cached_refuse(const struct video_data *d, const struct video_options *o, int64_t row);
/* Makes the shapes of the table for the sizes of the cache's sources; every clip keeps the bucket
 * of the first epoch, for which it was encoded. */
int video_cached_buckets(struct video_data *d, const struct video_options *o,
                         const struct video_sizing *sizing);

/* Repeats the first frame at the start of each channel, so that patches are whole in time; copies
 * the first frame alone, with zeros in the others of a condition that has them. */
void video_repeat_first(const struct video_data *d, const struct video_shape *s, float *z);
void video_first_frame(const struct video_data *d, const struct video_shape *s, const float *z,
                       float *image);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The training data: latents and text features that were encoded before, or noise. */
#ifndef VIDEO_DATASET_H
#define VIDEO_DATASET_H

#include "cache/cache.h"
#include "list.h"
#include "model.h"
#include "options.h"

/* Random streams of the library's generator. */
enum {
    VIDEO_STREAM_DATA = 0x43560010,
    VIDEO_STREAM_DROP,
    VIDEO_STREAM_UNSEEN, /* dropped images of I2V */
    VIDEO_STREAM_LEVEL,  /* of the noise on images */
    VIDEO_STREAM_NOISE,
    VIDEO_STREAM_VALID
};

/* The files of a sample. */
struct video_row {
    char *latents, *text;
    int64_t at;   /* index of the prompt in text */
    int64_t line; /* line of the list */
};

struct video_data {
    const struct video_sizes *sizes;
    struct video_geometry geometry;
    bool noise;             /* every step uses all rows: no shuffle */
    int64_t rows, missing;  /* missing: rows of the list without files */
    struct video_row *file; /* [rows], read from a cache; else NULL */
    /* Data that is all in memory: latents [rows, out, F, h, w], text [rows, S, text], and, or NULL,
     * image [rows, out, 1, h, w], noise with the shape of z, timesteps [rows]. */
    float *z, *y, *image, *eps, *t;
    struct cache cache; /* rows 0: no cache */
    int64_t *cached;    /* [rows]: row of the encoded clip in the cache */
    bool repeats;       /* the first latent frame is repeated, so that patches are whole */
    char title[512];
};

/* Elements of one sample: latents, text, one latent frame. */
int64_t video_data_z(const struct video_data *d);
int64_t video_data_y(const struct video_data *d);
int64_t video_data_image(const struct video_data *d);

/* Opens the data that the options name; seed selects the noise.  Returns 0, or -1 after an error
 * message. */
int video_data_open(struct video_data *d, const struct video_options *o);
void video_data_close(struct video_data *d);

/* The number of lines in the list, and the line of a row. */
int64_t video_data_lines(const struct video_data *d);
int64_t video_data_line(const struct video_data *d, int64_t row);

/* Reads one sample; image may be NULL.  Returns 0, or -1 after an error message. */
int video_data_read(const struct video_data *d, int64_t row, float *z, float *y, float *image);

/* ---- private to dataset.c, dataset_files.c and dataset_cache.c ------------------------------ */

/* Finds the files of the samples in the cache (dataset_files.c), and reads the shape of the first.
 */
int video_cache_open(struct video_data *d, const struct video_options *o);
int video_cache_read(const struct video_data *d, int64_t row, float *z, float *y, float *image);

/* The same for a cache made by video-encode (dataset_cache.c). */
int video_cached_open(struct video_data *d, const struct video_options *o);
int video_cached_read(const struct video_data *d, int64_t row, float *z, float *y, float *image);

/* Repeats the first frame at the start of each channel, so that patches are whole in time; copies
 * the first frame alone. */
void video_repeat_first(const struct video_data *d, float *z);
void video_first_frame(const struct video_data *d, const float *z, float *image);

#endif

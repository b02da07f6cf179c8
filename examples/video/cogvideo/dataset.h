/* SPDX-License-Identifier: Apache-2.0 */
/* The training data: latents and text features that were encoded before, or noise. */
#ifndef COGVIDEO_DATASET_H
#define COGVIDEO_DATASET_H

#include "../cache/cache.h"
#include "../list.h"
#include "model.h"
#include "options.h"

/* Random streams of the library's generator. */
enum {
    COGVIDEO_STREAM_DATA = 0x43560010,
    COGVIDEO_STREAM_DROP,
    COGVIDEO_STREAM_UNSEEN, /* dropped images of I2V */
    COGVIDEO_STREAM_LEVEL,  /* of the noise on images */
    COGVIDEO_STREAM_NOISE,
    COGVIDEO_STREAM_VALID
};

/* The files of a sample. */
struct cogvideo_row {
    char *latents, *text;
    int64_t at;   /* index of the prompt in text */
    int64_t line; /* line of the list */
};

struct cogvideo_data {
    const struct cogvideo_config *config;
    struct cogvideo_geometry geometry;
    bool noise;                /* every step uses all rows: no shuffle */
    int64_t rows, missing;     /* missing: rows of the list without files */
    struct cogvideo_row *file; /* [rows], read from a cache; else NULL */
    /* Data that is all in memory: latents [rows, out, F, h, w], text [rows, S, text], and, or NULL,
     * image [rows, out, 1, h, w], noise with the shape of z, timesteps [rows]. */
    float *z, *y, *image, *eps, *t;
    struct cache cache; /* rows 0: no cache */
    int64_t *cached;    /* [rows]: row of the encoded clip in the cache */
    bool repeats;       /* the first latent frame is repeated, so that patches are whole */
    char title[512];
};

/* Elements of one sample: latents, text, one latent frame. */
int64_t cogvideo_data_z(const struct cogvideo_data *d);
int64_t cogvideo_data_y(const struct cogvideo_data *d);
int64_t cogvideo_data_image(const struct cogvideo_data *d);

/* Opens the data that the options name; seed selects the noise.  Returns 0, or -1 after an error
 * message. */
int cogvideo_data_open(struct cogvideo_data *d, const struct cogvideo_options *o);
void cogvideo_data_close(struct cogvideo_data *d);

/* The number of lines in the list, and the line of a row. */
int64_t cogvideo_data_lines(const struct cogvideo_data *d);
int64_t cogvideo_data_line(const struct cogvideo_data *d, int64_t row);

/* Reads one sample; image may be NULL.  Returns 0, or -1 after an error message. */
int cogvideo_data_read(const struct cogvideo_data *d, int64_t row, float *z, float *y,
                       float *image);

/* ---- private to dataset.c, cache.c and cached.c -------------------------------------------- */

/* Finds the files of the samples in the cache (cache.c), and reads the shape of the first. */
int cogvideo_cache_open(struct cogvideo_data *d, const struct cogvideo_options *o);
int cogvideo_cache_read(const struct cogvideo_data *d, int64_t row, float *z, float *y,
                        float *image);

/* The same for a cache made by video-encode (cached.c). */
int cogvideo_cached_open(struct cogvideo_data *d, const struct cogvideo_options *o);
int cogvideo_cached_read(const struct cogvideo_data *d, int64_t row, float *z, float *y,
                         float *image);

/* Repeats the first frame at the start of each channel, so that patches are whole in time; copies
 * the first frame alone. */
void cogvideo_repeat_first(const struct cogvideo_data *d, float *z);
void cogvideo_first_frame(const struct cogvideo_data *d, const float *z, float *image);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What is trained on: latents and text features that were encoded before, or noise. */
#ifndef COGVIDEO_DATASET_H
#define COGVIDEO_DATASET_H

#include "../cache/cache.h"
#include "list.h"
#include "model.h"
#include "options.h"

/* Random streams of the library's generator. */
enum {
    COGVIDEO_STREAM_DATA = 0x43560010,
    COGVIDEO_STREAM_DROP,
    COGVIDEO_STREAM_UNSEEN, /* pictures that are left out */
    COGVIDEO_STREAM_LEVEL,  /* of the noise of pictures */
    COGVIDEO_STREAM_NOISE,
    COGVIDEO_STREAM_VALID
};

/* The files of a sample. */
struct cogvideo_row {
    char *latents, *text;
    int64_t at;   /* which of the prompts in text */
    int64_t line; /* of the list */
};

struct cogvideo_data {
    const struct cogvideo_config *config;
    struct cogvideo_geometry geometry;
    bool noise;                /* every step has all rows: there is nothing to shuffle */
    int64_t rows, missing;     /* missing: of the list, without files */
    struct cogvideo_row *file; /* rows of them, where they are read from a cache; else NULL */
    /* Where all of them are in memory: latents [rows, out, F, h, w], text [rows, S, text], and, or
     * NULL, image [rows, out, 1, h, w], noise as z, timesteps [rows]. */
    float *z, *y, *image, *eps, *t;
    struct cache cache; /* rows 0: there is none */
    int64_t *cached;    /* rows of them: those of the cache that were encoded */
    bool repeats; /* the first latent frame stands twice, so that patches are whole */
    char title[512];
};

/* Elements of one sample: latents, text, one latent frame. */
int64_t cogvideo_data_z(const struct cogvideo_data *d);
int64_t cogvideo_data_y(const struct cogvideo_data *d);
int64_t cogvideo_data_image(const struct cogvideo_data *d);

/* Opens the data of the options; seed is that of noise.  Returns 0, or -1 after a sentence. */
int cogvideo_data_open(struct cogvideo_data *d, const struct cogvideo_options *o);
void cogvideo_data_close(struct cogvideo_data *d);

/* Lines of the list that the rows are of, and that of a row. */
int64_t cogvideo_data_lines(const struct cogvideo_data *d);
int64_t cogvideo_data_line(const struct cogvideo_data *d, int64_t row);

/* One sample; image may be NULL.  Returns 0, or -1 after a sentence. */
int cogvideo_data_read(const struct cogvideo_data *d, int64_t row, float *z, float *y,
                       float *image);

/* ---- between its files --------------------------------------------------------------------- */

/* Finds the files of the samples in the cache (cache.c), and the shape of the first. */
int cogvideo_cache_open(struct cogvideo_data *d, const struct cogvideo_options *o);
int cogvideo_cache_read(const struct cogvideo_data *d, int64_t row, float *z, float *y,
                        float *image);

/* The same of a cache that video-encode made (cached.c). */
int cogvideo_cached_open(struct cogvideo_data *d, const struct cogvideo_options *o);
void cogvideo_cached_read(const struct cogvideo_data *d, int64_t row, float *z, float *y,
                          float *image);

/* Whole patches in time: the first frame stands twice at the front of each channel; and that frame
 * alone. */
void cogvideo_repeat_first(const struct cogvideo_data *d, float *z);
void cogvideo_first_frame(const struct cogvideo_data *d, const float *z, float *image);

#endif

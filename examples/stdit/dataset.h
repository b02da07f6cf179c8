/* What is trained on: clips in pixel space, precomputed features, or noise of a given shape. */
#ifndef STDIT_DATASET_H
#define STDIT_DATASET_H

#include "model.h"
#include "options.h"

struct stdit_data {
    char title[512]; /* for the person who watches */
    bool pixels;     /* z is a clip with values in [-1, 1] */
    int64_t rows, channels, caption_channels;
    struct stdit_geometry geometry;
    float *z;        /* [rows, channels, T, H, W] */
    float *y;        /* [rows, L, caption_channels] */
    int32_t *mask;   /* [rows, L] */
    float *fps;      /* [rows] */
    float *t, *eps;  /* [rows], like z; NULL: drawn */
    int32_t *x_mask; /* [rows, T]; NULL: drawn or absent */
};

/* Loads what the options ask for, and fills in what they leave to the data: channels, text tokens.
 * Returns 0, or -1 after printing a sentence. */
int stdit_data_open(struct stdit_data *d, struct stdit_options *o);
void stdit_data_close(struct stdit_data *d);

/* Elements of one row of z and of y. */
int64_t stdit_data_z(const struct stdit_data *d);
int64_t stdit_data_y(const struct stdit_data *d);

/* The sources; each fills d but for what follows from the options. */
int stdit_data_features(struct stdit_data *d, const char *path);
int stdit_data_clip(struct stdit_data *d, const struct stdit_options *o);
int stdit_data_noise(struct stdit_data *d, const struct stdit_options *o);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of one size over a volume, and their blended scores: out = sum(w y) / sum(w).  Starts are
 * k step, step = window (1 - overlap) rounded down, at least 1; the last window ends at the end of
 * the volume.  A volume smaller than a window is centred in it.  Windows are added in order, slices
 * outermost, so the bits do not depend on the batch size.
 *
 * The sums cover as many slices as a window has: slices before a window are finished before it is
 * added.
 */
#ifndef VOLUME_WINDOWS_H
#define VOLUME_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

struct windows {
    int64_t size[3], window[3]; /* of the volume and a window: slices, rows, columns */
    int64_t front[3];           /* padding before the volume, if it is smaller */
    int64_t padded[3];          /* size, or the window if that is larger */
    int64_t step[3], n[3];      /* step and number of windows per axis */
    int64_t classes;
    float *weight; /* [window] */
    float *sum;    /* [window[0]][padded[1]][padded[2]][classes]; slice z at z % window[0] */
    float *total;  /* sum of weights, without classes */
    int64_t done;  /* finished slices of the padded volume */
};

/* Receives the finished scores of a slice [rows, columns, classes].  Returns 0, or -1. */
typedef int (*windows_slice)(void *user, int64_t slice, const float *scores);

/* gaussian: weights exp(-x^2 / (2 (window / 8)^2)) along each axis, x from the centre, at least
 * 1e-3; else 1.  Returns 0, or -1 after an error message. */
int windows_open(struct windows *w, const int64_t size[3], const int64_t window[3], double overlap,
                 bool gaussian, int64_t classes);
void windows_close(struct windows *w);

/* Bytes that windows_open allocates for these sizes. */
int64_t windows_bytes(const int64_t size[3], const int64_t window[3], int64_t classes);

int64_t windows_count(const struct windows *w);
/* The start of window i in the volume; negative if the volume is smaller than the window. */
void windows_at(const struct windows *w, int64_t i, int64_t at[3]);

/* Adds the scores [window, classes] of window i; call once per window, in order.  Passes the slices
 * that no later window covers to `finished`.  Returns 0, or the nonzero value that it returned. */
int windows_add(struct windows *w, int64_t i, const float *scores, windows_slice finished,
                void *user);

#endif

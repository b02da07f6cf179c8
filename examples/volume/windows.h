/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of one size over a volume, and their scores blended: out = sum(w y) / sum(w).  Starts are
 * k step, step = window (1 - overlap) rounded down, at least 1; the last one ends where the volume
 * does.  A volume that is smaller than a window lies in its middle.  Windows are added in their
 * order, slices outermost, so the bits do not depend on how many are computed together.
 *
 * Sums are kept for as many slices as a window has: those before the next window are finished.
 */
#ifndef VOLUME_WINDOWS_H
#define VOLUME_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

struct windows {
    int64_t size[3], window[3]; /* of the volume and a window: slices, rows, columns */
    int64_t front[3];           /* places in front of the volume, where it is smaller */
    int64_t padded[3];          /* size, or the window where that is larger */
    int64_t step[3], n[3];      /* and windows along each axis */
    int64_t classes;
    float *weight; /* of the places of a window */
    float *sum;    /* [window[0]][padded[1]][padded[2]][classes], slice z at z % window[0] */
    float *total;  /* of weights, without classes */
    int64_t done;  /* slices of the padded volume that are finished */
};

/* Gets the finished scores of a slice [rows, columns, classes].  Returns 0, or -1. */
typedef int (*windows_slice)(void *user, int64_t slice, const float *scores);

/* gaussian: weights exp(-x^2 / (2 (window / 8)^2)) along each axis, x from the middle, at least
 * 1e-3; else 1.  Returns 0, or -1 after a sentence. */
int windows_open(struct windows *w, const int64_t size[3], const int64_t window[3], double overlap,
                 bool gaussian, int64_t classes);
void windows_close(struct windows *w);

/* Bytes that windows_open takes for volumes and windows of such sizes. */
int64_t windows_bytes(const int64_t size[3], const int64_t window[3], int64_t classes);

int64_t windows_count(const struct windows *w);
/* Where window i begins in the volume; below 0 where that is smaller. */
void windows_at(const struct windows *w, int64_t i, int64_t at[3]);

/* Adds the scores [window, classes] of window i; they come in order, each once.  Slices that no
 * later window touches are handed to `finished`.  Returns 0, or what it returned. */
int windows_add(struct windows *w, int64_t i, const float *scores, windows_slice finished,
                void *user);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over a volume: see windows.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "windows.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t windows_bytes(const int64_t size[3], const int64_t window[3], int64_t classes)
{
    int64_t area = larger(size[1], window[1]) * larger(size[2], window[2]);
    int64_t places = window[0] * window[1] * window[2];

    return (window[0] * area * (classes + 1) + places) * (int64_t)sizeof(float);
}

/* A Gaussian whose deviation is an eighth of the window: the model sees the surroundings of the
 * centre on all sides, so it counts most.  At least 1e-3, so that no sum of weights is 0. */
static void fill_weights(struct windows *w, bool gaussian)
{
    const int64_t *n = w->window;

    for (int64_t i = 0; i < n[0] * n[1] * n[2]; i++) {
        int64_t at[3] = {i / (n[1] * n[2]), i / n[2] % n[1], i % n[2]};
        double weight = 1;
        for (int k = 0; k < 3 && gaussian; k++) {
            double x = (double)at[k] - (double)(n[k] - 1) / 2, sigma = 0.125 * (double)n[k];
            weight *= exp(-x * x / (2 * sigma * sigma));
        }
        w->weight[i] = (float)fmax(weight, 1e-3);
    }
}

/* A volume smaller than a window is padded to one on both sides.  A larger one is not padded: its
 * last window ends where it ends, and overlaps more (begin). */
static void place(struct windows *w, int axis, double overlap)
{
    int64_t size = w->size[axis], window = w->window[axis], padded = larger(size, window);
    int64_t step = padded == window ? window : (int64_t)((double)window * (1 - overlap));

    w->padded[axis] = padded;
    w->front[axis] = (padded - size) / 2;
    w->step[axis] = larger(step, 1);
    w->n[axis] = 1 + (padded - window + w->step[axis] - 1) / w->step[axis];
}

int windows_open(struct windows *w, const int64_t size[3], const int64_t window[3], double overlap,
                 bool gaussian, int64_t classes)
{
    *w = (struct windows){.classes = classes};
    memcpy(w->size, size, sizeof w->size);
    memcpy(w->window, window, sizeof w->window);
    for (int axis = 0; axis < 3; axis++)
        place(w, axis, overlap);
    w->weight = MEMORY_FOR(sizeof(float), window[0], window[1], window[2]);
    w->sum = MEMORY_FOR(sizeof(float), window[0], w->padded[1], w->padded[2], classes);
    w->total = MEMORY_FOR(sizeof(float), window[0], w->padded[1], w->padded[2]);
    if (!w->weight || !w->sum || !w->total) {
        windows_close(w);
        return say_fail("no memory to blend windows: %lld bytes",
                        (long long)windows_bytes(size, window, classes));
    }
    int64_t places = window[0] * w->padded[1] * w->padded[2];
    memset(w->sum, 0, (size_t)(places * classes) * sizeof(float));
    memset(w->total, 0, (size_t)places * sizeof(float));
    fill_weights(w, gaussian);
    return 0;
}

void windows_close(struct windows *w)
{
    free(w->weight);
    free(w->sum);
    free(w->total);
    *w = (struct windows){0};
}

int64_t windows_count(const struct windows *w)
{
    return w->n[0] * w->n[1] * w->n[2];
}

/* The start of window i in the padded volume. */
static void begin(const struct windows *w, int64_t i, int64_t at[3])
{
    const int64_t k[3] = {i / (w->n[1] * w->n[2]), i / w->n[2] % w->n[1], i % w->n[2]};

    for (int axis = 0; axis < 3; axis++) {
        int64_t last = w->padded[axis] - w->window[axis];
        at[axis] = k[axis] * w->step[axis] < last ? k[axis] * w->step[axis] : last;
    }
}

void windows_at(const struct windows *w, int64_t i, int64_t at[3])
{
    begin(w, i, at);
    for (int axis = 0; axis < 3; axis++)
        at[axis] -= w->front[axis];
}

/* Normalizes a slice, packs the part inside the volume, and clears its sums. */
static int finish_slice(struct windows *w, int64_t z, windows_slice finished, void *user)
{
    int64_t area = w->padded[1] * w->padded[2], classes = w->classes, place = z % w->window[0];
    float *sum = w->sum + place * area * classes, *total = w->total + place * area;
    bool inside = z >= w->front[0] && z < w->front[0] + w->size[0];
    int rc = 0;

    for (int64_t i = 0; i < w->size[1] * w->size[2] && inside; i++) {
        int64_t from = (i / w->size[2] + w->front[1]) * w->padded[2] + i % w->size[2] + w->front[2];
        for (int64_t c = 0; c < classes; c++)
            sum[i * classes + c] = sum[from * classes + c] / total[from];
    }
    if (inside)
        rc = finished(user, z - w->front[0], sum);
    memset(sum, 0, (size_t)(area * classes) * sizeof *sum);
    memset(total, 0, (size_t)area * sizeof *total);
    return rc;
}

static void add_row(struct windows *w, int64_t place, const float *weight, const float *scores)
{
    float *sum = w->sum + place * w->classes, *total = w->total + place;

    for (int64_t x = 0; x < w->window[2]; x++) {
        for (int64_t c = 0; c < w->classes; c++)
            sum[x * w->classes + c] += weight[x] * scores[x * w->classes + c];
        total[x] += weight[x];
    }
}

/* Windows come in the order of their first slice, so what lies before it is complete: sums are kept
 * for the slices of one window only, in a ring. */
int windows_add(struct windows *w, int64_t i, const float *scores, windows_slice finished,
                void *user)
{
    const int64_t *n = w->window;
    int64_t at[3];
    int rc = 0;

    begin(w, i, at);
    for (; w->done < at[0] && !rc; w->done++)
        rc = finish_slice(w, w->done, finished, user);
    for (int64_t row = 0; row < n[0] * n[1]; row++) {
        int64_t z = (at[0] + row / n[1]) % n[0], y = at[1] + row % n[1];
        add_row(w, (z * w->padded[1] + y) * w->padded[2] + at[2], w->weight + row * n[2],
                scores + row * n[2] * w->classes);
    }
    for (; i == windows_count(w) - 1 && w->done < w->padded[0] && !rc; w->done++)
        rc = finish_slice(w, w->done, finished, user);
    return rc;
}

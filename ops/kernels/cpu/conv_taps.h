/* SPDX-License-Identifier: Apache-2.0 */
/* Iterator over the taps of one position of a convolution. */
#ifndef CKPT_CPU_CONV_TAPS_H
#define CKPT_CPU_CONV_TAPS_H

#include "shapes/conv.h"

struct conv_taps {
    int64_t position[3], tap[3];
    int64_t at[3]; /* source index on each axis; -1: padding */
};

static inline void conv_taps_set(const struct conv_gather *g, struct conv_taps *w, int axis,
                                 int64_t tap)
{
    w->tap[axis] = tap;
    w->at[axis] = conv_gather_at(g, axis, w->position[axis], tap);
}

/* Starts at a tap of a row of the gathered matrix.  Returns the sample of the row. */
static inline int64_t conv_taps_begin(const struct conv_gather *g, struct conv_taps *w, int64_t row,
                                      int64_t tap)
{
    for (int i = 2; i >= 0; i--) {
        w->position[i] = row % g->positions[i];
        row /= g->positions[i];
        conv_taps_set(g, w, i, tap % g->taps[i]);
        tap /= g->taps[i];
    }
    return row;
}

/* Advances to the next tap, from the last one to the first. */
static inline void conv_taps_next(const struct conv_gather *g, struct conv_taps *w)
{
    for (int i = 2; i >= 0; i--) {
        bool carry = w->tap[i] + 1 == g->taps[i];
        conv_taps_set(g, w, i, carry ? 0 : w->tap[i] + 1);
        if (!carry)
            return;
    }
}

/* The index of the first element that the tap reads, or -1 on padding. */
static inline int64_t conv_taps_source(const struct conv_gather *g, const struct conv_taps *w,
                                       int64_t sample)
{
    if (w->at[0] < 0 || w->at[1] < 0 || w->at[2] < 0)
        return -1;
    int64_t place = (sample * g->source[0] + w->at[0]) * g->source[1] + w->at[1];
    return (place * g->source[2] + w->at[2]) * g->pitch;
}

#endif

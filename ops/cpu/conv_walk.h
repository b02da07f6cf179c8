/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over the taps of one position of a convolution: where each reads. */
#ifndef CKPT_CPU_CONV_WALK_H
#define CKPT_CPU_CONV_WALK_H

#include "conv.h"

struct conv_walk {
    int64_t position[3], tap[3];
    int64_t at[3]; /* along each axis of the source; -1: outside */
};

static inline void conv_walk_set(const struct conv_gather *g, struct conv_walk *w, int axis,
                                 int64_t tap)
{
    w->tap[axis] = tap;
    w->at[axis] = conv_gather_at(g, axis, w->position[axis], tap);
}

/* At this tap of a row of the gathered matrix, whose sample is returned. */
static inline int64_t conv_walk_begin(const struct conv_gather *g, struct conv_walk *w, int64_t row,
                                      int64_t tap)
{
    for (int i = 2; i >= 0; i--) {
        w->position[i] = row % g->positions[i];
        row /= g->positions[i];
        conv_walk_set(g, w, i, tap % g->taps[i]);
        tap /= g->taps[i];
    }
    return row;
}

/* To the next tap; behind the last one comes the first. */
static inline void conv_walk_on(const struct conv_gather *g, struct conv_walk *w)
{
    for (int i = 2; i >= 0; i--) {
        bool carry = w->tap[i] + 1 == g->taps[i];
        conv_walk_set(g, w, i, carry ? 0 : w->tap[i] + 1);
        if (!carry)
            return;
    }
}

/* The first element of the source that the tap reads, or -1. */
static inline int64_t conv_walk_from(const struct conv_gather *g, const struct conv_walk *w,
                                     int64_t sample)
{
    if (w->at[0] < 0 || w->at[1] < 0 || w->at[2] < 0)
        return -1;
    int64_t place = (sample * g->source[0] + w->at[0]) * g->source[1] + w->at[1];
    return (place * g->source[2] + w->at[2]) * g->pitch;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mask strategies of Open-Sora 1.2: the given latent frames of a clip, their source, and how far
 * they may change.  "0,0,-1,0,1,0;..." is one or more of
 *
 *     segment, reference, start in the reference, start in the clip, length, edit ratio
 *
 * each of which may be shortened; the defaults are 0, 0, 0, 0, 1, 0.  A start below 0 counts from
 * the end.  Frames are latent frames: 17 frames of video are 5.
 */
#ifndef STDIT_STRATEGY_H
#define STDIT_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>

struct stdit_strategy {
    int64_t loop;      /* the segment, from 0 */
    int64_t reference; /* of its clip, from 0 */
    int64_t from, to, length;
    double edit; /* 0: the frames stay; up to 1: sampling restarts at this noise level */
};

struct stdit_strategies {
    struct stdit_strategy *list;
    int64_t n;
};

/* Parses a text; NULL or empty: no strategies.  Returns 0, or -1 after a sentence with the prefix
 * what. */
int stdit_strategies_read(struct stdit_strategies *s, const char *what, const char *text);
/* Appends one strategy.  Returns 0, or -1 after a sentence. */
int stdit_strategies_add(struct stdit_strategies *s, const struct stdit_strategy *one);
void stdit_strategies_free(struct stdit_strategies *s);

/* The position of a strategy in frames. */
struct stdit_span {
    int64_t from, to, length;
    bool cut; /* shorter than requested */
};

/* Resolves starts below 0 from the end of the reference and of the clip, moves both to the nearest
 * multiple of align (0: unchanged), and limits the length to the end of both.  Returns 0, or -1
 * after a sentence: a start is outside the frames. */
int stdit_strategy_place(const struct stdit_strategy *s, const char *what, int64_t reference,
                         int64_t clip, int64_t align, struct stdit_span *span);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What stages.c and stages_play.c share. */
#ifndef CKPT_PLAN_STAGES_INSIDE_H
#define CKPT_PLAN_STAGES_INSIDE_H

#include "plan/search/stages.h"

/* What a stage touches, how many ops it runs and what they take, and how far its bytes rise above
 * those it begins with. */
struct stage {
    int32_t *touched;
    int64_t capacity;
    int32_t n, n_ops;
    int64_t rise, ticks;
};

struct list {
    int32_t *data;
    int64_t capacity;
    int32_t n;
};

/* A level of the stages from, ..., to that changed. */
struct raised {
    int32_t from, to;
    int64_t bytes;
};

/* A life or a stage as it was before the move: where the journal has its numbers. */
struct former {
    int32_t index, n, n_ops;
    int64_t at, rise, ticks;
};

/* What is known of a storage while a stage is played, each where its number is that of the batch;
 * together, since they are looked at together. */
struct mark {
    int32_t wanted, noted, old, met;
    int32_t first, last; /* steps of the stage, if it is noted */
    int32_t saved;       /* the last move that changed its life */
    bool begins, ends;   /* whether it is there when the stage does, if it is met */
    bool tracked;
};

struct formers {
    struct former *data;
    int64_t capacity;
    int32_t n;
};

struct stages_inside {
    struct stage *stages;
    struct list dirty, wanted, ops, noted, journal;
    bool *is_dirty;
    int32_t batch, move;
    struct mark *marks;         /* per storage */
    int32_t *ran, *stage_saved; /* per op */
    int64_t *change;            /* per step of the running stage */
    struct formers lives, formers;
    struct {
        struct raised *data;
        int64_t capacity;
    } raised;
    int32_t n_raised;
};

/* The journal: a life or a stage about to change, as it is. */
void stages_save_life(struct stages *x, int32_t s);
void stages_save(struct stages *x, int32_t t);
/* Adds to the bytes alive in the stages from, ..., to; and in the journal too, for a storage that
 * comes to, or leaves, their beginning. */
void stages_lift(struct stages *x, int32_t from, int32_t to, int64_t bytes);
void stages_raise(struct stages *x, int32_t s, int32_t from, int32_t to, int sign);
/* A new touch of s, before the i-th. */
void stages_insert(struct stages *x, int32_t s, int32_t i, int32_t t, bool kept);
/* Stage t has to be played anew; plays all of these. */
void stages_soil(struct stages *x, int32_t t);
void stages_settle(struct stages *x);

#endif

/* What stages.c and stages_play.c share. */
#ifndef CKPT_PLAN_STAGES_INSIDE_H
#define CKPT_PLAN_STAGES_INSIDE_H

#include "plan/stages.h"

/* What a stage touches, what it runs again, and how far its bytes rise above those it begins with.
 */
struct stage {
    int32_t *touched;
    int64_t capacity;
    int32_t n;
    int64_t rise;
    double seconds;
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
    int32_t index, n;
    int64_t at, rise;
    double seconds;
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
    /* per storage: marks of a batch or a move, steps of the running stage */
    int32_t *want, *note, *old, *saved, *first, *last;
    int32_t *ran, *stage_saved; /* per op */
    int64_t *change;            /* per step of the running stage */
    bool *tracked;              /* per storage */
    struct formers lives, formers;
    struct {
        struct raised *data;
        int64_t capacity;
    } raised;
    int32_t n_raised;
};

static inline int64_t stages_above(const struct stages *x, int64_t bytes)
{
    return bytes > x->target ? bytes - x->target : 0;
}

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

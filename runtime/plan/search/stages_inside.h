/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by stages.c and stages_play.c. */
#ifndef CKPT_PLAN_STAGES_INSIDE_H
#define CKPT_PLAN_STAGES_INSIDE_H

#include "plan/search/stages.h"
#include "plan/search/fixed.h"

struct list {
    int32_t *data;
    int64_t capacity;
    int32_t n;
};

/* A stage: the storages it uses, the number of its ops, the ticks of its reruns, and the peak of
 * its bytes above those at its begin (rise). */
struct stage {
    struct list touched;
    int32_t n_ops;
    int64_t rise, ticks;
};

/* A change of the live bytes of stages from, ..., to. */
struct raised {
    int32_t from, to;
    int64_t bytes;
};

/* The uses of a storage, or a stage, before the move; at: its n numbers in the journal. */
struct undo {
    int32_t index, n, n_ops;
    int64_t at, rise, ticks;
};

/* The state of a storage while a stage is evaluated.  A field is valid if its number is the current
 * batch.  Facts that are read most often are here too, in the same cache line. */
struct mark {
    int64_t bytes;
    int32_t wanted, noted, old, met;
    int32_t first, last;       /* its first and last step in the stage, if noted */
    int32_t saved;             /* the last move that changed its uses */
    int32_t writer, n_writers; /* its writers in program.writers */
    bool begins, ends;         /* resident at the begin and at the end of the stage, if met */
    bool droppable;
};

struct undo_log {
    struct undo *data;
    int64_t capacity;
    int32_t n;
};

struct stages_inside {
    struct fixed fixed; /* storages without uses; their bytes are the baseline */
    struct baseline baseline;
    struct stage *stages;
    struct list dirty, wanted, ops, noted, journal;
    struct list retention; /* of stages_retention */
    bool *is_dirty;
    int32_t batch, move;
    struct mark *marks;         /* per storage */
    int32_t *ran, *stage_saved; /* per op */
    int64_t *change;            /* of bytes, per step of the current stage */
    struct undo_log uses, undo_log;
    LIST(struct raised) raised;
    int32_t n_raised;
};

/* Saves uses or a stage in the journal before a change. */
void stages_save_uses(struct stages *x, int32_t s);
void stages_save(struct stages *x, int32_t t);
/* Adds bytes to the live bytes of stages from, ..., to.  stages_raise does so for storage s (sign:
 * 1 or -1) and records it for undo. */
void stages_lift(struct stages *x, int32_t from, int32_t to, int64_t bytes);
void stages_raise(struct stages *x, int32_t s, int32_t from, int32_t to, int sign);
/* Inserts a use of s at stage t before use i. */
void stages_insert(struct stages *x, int32_t s, int32_t i, int32_t t, bool kept);
/* Marks stage t for evaluation; evaluates all marked stages until nothing changes. */
void stages_mark_dirty(struct stages *x, int32_t t);
void stages_propagate(struct stages *x);
void stages_push(struct stages *x, struct list *l, int32_t value);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What stages.c and stages_play.c share. */
#ifndef CKPT_PLAN_STAGES_INSIDE_H
#define CKPT_PLAN_STAGES_INSIDE_H

#include "plan/search/stages.h"
#include "plan/search/fixed.h"

/* What a stage uses, how many ops it runs and what they take, and how far its bytes rise above
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

/* A uses or a stage as it was before the move: where the journal has its numbers. */
struct undo {
    int32_t index, n, n_ops;
    int64_t at, rise, ticks;
};

/* What is known of a storage while a stage is played, each where its number is that of the batch;
 * together with what is asked of it most, in a line of the cache. */
struct mark {
    int64_t bytes;
    int32_t wanted, noted, old, met;
    int32_t first, last;       /* steps of the stage, if it is noted */
    int32_t saved;             /* the last move that changed its uses */
    int32_t writer, n_writers; /* the first of program.writers, and how many there are */
    bool begins, ends;         /* whether it is there when the stage does, if it is met */
    bool told;                 /* its hold, and its uses did not change since */
    bool droppable;
};

/* The storages of an op that have uses, those it reads first. */
struct tracked_op {
    int64_t ticks, workspace;
    int32_t refs, n_reads, n_writes;
    bool strays; /* it writes several: those nobody wants take a place where it runs again */
};

struct undo_log {
    struct undo *data;
    int64_t capacity;
    int32_t n;
};

struct stages_inside {
    struct fixed fixed; /* what no stage looks at: its bytes are the baseline */
    struct baseline baseline;
    struct stage *stages;
    struct list dirty, wanted, ops, noted, journal;
    struct list untold; /* storages */
    bool *is_dirty;
    int32_t batch, move;
    struct mark *marks;         /* per storage */
    struct tracked_op *tracked; /* per op: where its storages are in refs */
    int32_t *refs;
    int32_t *hold;              /* per storage: of its uses, when it was told last */
    int32_t *ran, *stage_saved; /* per op */
    int64_t *change;            /* per step of the running stage */
    struct undo_log uses, undo_log;
    struct {
        struct raised *data;
        int64_t capacity;
    } raised;
    int32_t n_raised;
};

/* The journal: a uses or a stage about to change, as it is. */
void stages_save_uses(struct stages *x, int32_t s);
void stages_save(struct stages *x, int32_t t);
void stages_untell(struct stages *x, int32_t s);
/* Adds to the bytes alive in the stages from, ..., to; and in the journal too, for a storage that
 * comes to, or leaves, their beginning. */
void stages_lift(struct stages *x, int32_t from, int32_t to, int64_t bytes);
void stages_raise(struct stages *x, int32_t s, int32_t from, int32_t to, int sign);
/* A new use of s, before the i-th. */
void stages_insert(struct stages *x, int32_t s, int32_t i, int32_t t, bool kept);
/* Stage t has to be played anew; plays all of these. */
void stages_mark_dirty(struct stages *x, int32_t t);
void stages_propagate(struct stages *x);
/* The same of stages in which it matters whether s is there: an op of several outputs runs again
 * for another of them. */
void stages_mark_strays_dirty(struct stages *x, int32_t s, int32_t from, int32_t to);

/* What stage t runs is found in a batch: stages_start, then stages_list. */
void stages_start(struct stages *x);
/* The mark of a storage in this batch, with its presence, which is found once.  Uses that come
 * and go with this stage do not change that. */
void stages_find(const struct stages *x, struct mark *m, int32_t s, int32_t t);

static inline struct mark *stages_meet(const struct stages *x, int32_t s, int32_t t)
{
    struct mark *m = &x->in->marks[s];
    if (m->met != x->in->batch)
        stages_find(x, m, s, t);
    return m;
}

void stages_want(struct stages *x, struct mark *m, int32_t s);
/* Lists in in->ops all that runs again before base op t, in no order; or only the writers of what
 * is wanted so far, and of what these want. */
void stages_list(struct stages *x, int32_t t);
void stages_list_writers(struct stages *x, int32_t t);
/* Notes what the ops of the list use, of which the last is the base op.  Returns the ticks of the
 * others. */
int64_t stages_note(struct stages *x);
void stages_push(struct stages *x, struct list *l, int32_t value);

#endif

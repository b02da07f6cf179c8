/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: a schedule that is evaluated incrementally.
 *
 * Stage t is base op t with the reruns before it.  A schedule lists, for every storage, the stages
 * that use it and whether it is kept from each use to the next.  The reruns of a stage, their ticks
 * and its rise in bytes follow from the storages that are resident at its begin and at its end.  So
 * keeping or dropping a storage between two stages changes only these two stages, and the live
 * bytes of the stages between them.
 */
#ifndef CKPT_PLAN_STAGES_H
#define CKPT_PLAN_STAGES_H

#include "plan/offload/range_max.h"
#include "plan/search/search.h"

/* Uses of a storage in order: 2 * stage, plus 1 if it is kept until the next use. */
struct uses {
    int32_t *data;
    int64_t capacity;
    int32_t n;
};

static inline int32_t use_stage(const struct uses *l, int32_t i)
{
    return l->data[i] >> 1;
}

static inline bool use_kept(const struct uses *l, int32_t i)
{
    return l->data[i] & 1;
}

/* The first use at stage t or later. */
int32_t uses_find(const struct uses *l, int32_t t);

struct stages {
    const struct program *p;
    struct uses *uses;    /* of storages that are not fixed (fixed.h) */
    struct range_max top; /* per stage: the peak of live bytes; and the excess over the target */
    int64_t ticks;        /* of recompute in one body */
    int64_t n_steps;      /* of the schedule */
    int64_t work;         /* steps evaluated */
    struct pool memory;
    struct stages_inside *in;
};

int stages_new(const struct program *p, struct stages **x);
void stages_free(struct stages *x);
/* Loads a simulated schedule. */
int stages_load(struct stages *x, const struct schedule *s);
int64_t stages_peak(const struct stages *x);
/* Whether it is short enough to be simulated. */
bool stages_playable(const struct stages *x);

/* Whether s must be kept after use i: it is not droppable, or some of its writers are still to run.
 */
bool stages_fixed(const struct stages *x, int32_t s, int32_t i);
/*
 * Moves between uses i and i + 1 of s.  stages_toggle keeps s if it was dropped, or drops it if it
 * was kept.  stages_shift makes s resident from stage t on and not before.
 */
void stages_toggle(struct stages *x, int32_t s, int32_t i);
void stages_shift(struct stages *x, int32_t s, int32_t i, int32_t t);
/* Estimates of stages_toggle without making the move: the least change of ticks; and the change of
 * the excess if no stage reran other ops, of which it may return a part that is at least enough. */
int64_t stages_toggle_ticks(const struct stages *x, int32_t s, int32_t i);
int64_t stages_toggle_excess(const struct stages *x, int32_t s, int32_t i, int64_t enough);
/* Undoes all moves since the last of these two calls. */
void stages_undo(struct stages *x);
void stages_accept(struct stages *x);
/* The array of retention intervals of the same schedule, valid until the next call; NULL: out of
 * memory. */
const int32_t *stages_retention(struct stages *x);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: a schedule that changes a little at a time.
 *
 * Stage t is base op t with whatever runs again before it.  A schedule is, for every storage, the
 * stages that use it and whether it is kept from each of them to the next.  What a stage runs
 * again, what that takes and how its bytes rise and fall inside of it follow from what is there
 * when it begins and when it ends.  So a storage kept or dropped between two stages changes only
 * those two, and the level of the stages between them.
 */
#ifndef CKPT_PLAN_STAGES_H
#define CKPT_PLAN_STAGES_H

#include "plan/offload/range_max.h"
#include "plan/search/spans.h"

/* Uses of a storage in order: twice the stage, and one if it is kept until the next use. */
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

/* The first use at stage t or behind it. */
int32_t uses_find(const struct uses *l, int32_t t);

struct stages {
    const struct program *p;
    struct uses *uses;    /* of storages that are neither fixed (fixed.h) nor carried */
    struct range_max top; /* per stage: the most bytes alive; and what is above the target */
    int64_t ticks;        /* of recompute, of one body */
    int64_t n_steps;      /* of the schedule */
    int64_t work;         /* steps looked at */
    bool failed;          /* out of memory */
    struct stages_inside *in;
};

int stages_new(const struct program *p, struct stages **x);
void stages_free(struct stages *x);
/* Takes over a schedule. */
int stages_load(struct stages *x, const struct schedule *s);
void stages_aim(struct stages *x, int64_t target);
int64_t stages_peak(const struct stages *x);
/* Whether it is short enough to be simulated. */
bool stages_playable(const struct stages *x);

/* Whether what follows use i is no choice: what is made in parts stays until all are there. */
bool stages_fixed(const struct stages *x, int32_t s, int32_t i);
/*
 * Moves.  The first keeps what is dropped, or the other way round, between uses i and i + 1 of
 * s. The second has s there from stage t on, between these two uses, and not before.
 */
void stages_toggle(struct stages *x, int32_t s, int32_t i);
void stages_shift(struct stages *x, int32_t s, int32_t i, int32_t t);
/* What the first move adds to the ticks at least, and to the excess if no stage ran anything else,
 * or a part of that which is enough: known without making it. */
int64_t stages_toggle_ticks(const struct stages *x, int32_t s, int32_t i);
int64_t stages_toggle_excess(const struct stages *x, int32_t s, int32_t i, int64_t enough);
/*
 * What a move comes to that is not made: one that drops what is kept behind use i of s and has it
 * again from stage t on; or that has what is dropped there from stage t on, up to use i + 1.
 * Returns false where that is not known without making it, for other stages would run something
 * else.
 */
struct foresight {
    int64_t ticks;
    int64_t excess; /* at least */
    int64_t work;   /* of making the move and taking it back */
};
bool stages_foresee(struct stages *x, int32_t s, int32_t i, int32_t t, struct foresight *f);
/* Takes back all moves since the last of these two calls. */
void stages_undo(struct stages *x);
void stages_accept(struct stages *x);
/* The holds that play the same schedule.  Returns 0 or CKPT_ENOMEM. */
int stages_hold(const struct stages *x, struct spans *spans, int32_t *hold);

#endif

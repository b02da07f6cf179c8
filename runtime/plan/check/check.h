/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the checker, which shares only types with the search.  check.c checks steps and residences
 * one by one, check_copies.c copies and their order; check_replay.c replays the step and checks the
 * contents of every read; check_space.c proves that no two residences share bytes, and the totals.
 */
#ifndef CKPT_PLAN_CHECK_H
#define CKPT_PLAN_CHECK_H

#include "plan/plan.h"
#include "plan/pool.h"

struct checker {
    const struct graph *g;
    const struct plan *p;
    int32_t *backing; /* per storage: the residence that is its backing residence, or -1 */
    bool *crosses; /* per storage: a deferred update uses it, so it may stay into the next step */
    struct pool memory;
};

const char *check_storage(const struct checker *c, int32_t s);
const char *check_op(const struct checker *c, int32_t step);
int64_t check_bytes(const struct checker *c, const struct residence *r);

/* Residences of each tier are within bounds and disjoint; peaks and budgets are as the plan says.
 * Returns 0, CKPT_ENOMEM or CKPT_EPLAN, like all below. */
int check_space(struct checker *c);
/* Every copy connects residences of one storage, within their steps; the copies of a queue are in
 * the order in which they are submitted. */
int check_copies(struct checker *c);
/* Steps in order: every read sees the right version. */
int check_replay(struct checker *c);

#endif

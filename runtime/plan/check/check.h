/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the checker, which shares nothing with the search but the types.  check.c proves steps and
 * residences by themselves and replays them; check_space.c proves that no two residences share
 * bytes, and the totals; check_clock.c proves the order of copies and the forecast.
 */
#ifndef CKPT_PLAN_CHECK_H
#define CKPT_PLAN_CHECK_H

#include "plan/plan.h"

struct checker {
    const struct graph *g;
    const struct plan *p;
    struct error *error;
    int32_t *backing; /* per storage: the residence that is its backing residence, or -1 */
    /* Of a collective, per step, set by the replay: the step from which on its output has an
     * address, and the first last step of its operands' residences; else 0 and INT32_MAX. */
    int32_t *room, *leaves;
};

const char *check_storage(const struct checker *c, int32_t s);
const char *check_op(const struct checker *c, int32_t step);
/* A residence of a storage that is not its backing residence on the device: it has an address of
 * the plan's. */
static inline bool check_is_placed(const struct residence *r)
{
    return r->tier != TIER_DEVICE || r->offset != -1;
}
int64_t check_bytes(const struct checker *c, const struct residence *r);

/* Residences of each tier inside their bounds and disjoint, peaks and budgets as the plan says.
 * Returns 0, CKPT_ENOMEM or CKPT_EPLAN, as those below do. */
int check_space(struct checker *c);
/* Copies of each queue one after the other; for the seconds that the plan was made with, a step
 * takes as long as the plan says with all waiting. */
int check_clock(struct checker *c);
/* Every copy by itself: between residences of one storage, in their steps. */
int check_copies(struct checker *c);
/* Steps in order: every read sees the version that is due. */
int check_replay(struct checker *c);

#endif

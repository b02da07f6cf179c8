/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: bytes per step that change over stretches of steps, from where on they leave
 * room, and how much of them is above a target.  Steps are kept in parts that know their most and
 * their excess, so no question has to look at every step: a part below the target has none.
 */
#ifndef CKPT_PLAN_LEDGER_H
#define CKPT_PLAN_LEDGER_H

#include "core/base.h"

#define LEDGER_PART 64

struct ledger {
    int64_t *bytes; /* per step, without what its part has for all of its steps */
    int64_t *all;   /* per part: that */
    int64_t *most;  /* per part: the most of its bytes, with that */
    int64_t *above; /* per part: bytes above the target, summed over its steps */
    int64_t target; /* INT64_MAX until ledger_aim */
    int64_t excess; /* bytes above the target, summed over all steps */
    int32_t n;
};

int ledger_new(struct ledger *l, int32_t n);
void ledger_free(struct ledger *l);
void ledger_set(struct ledger *l, const int64_t *bytes);
void ledger_aim(struct ledger *l, int64_t target);
/* The most bytes of any step. */
int64_t ledger_most(const struct ledger *l);

static inline int64_t ledger_at(const struct ledger *l, int32_t k)
{
    return l->bytes[k] + l->all[k / LEDGER_PART];
}

/* Adds bytes to the steps [from, to). */
void ledger_add(struct ledger *l, int32_t from, int32_t to, int64_t bytes);
/* What that would add to the excess. */
int64_t ledger_gain(const struct ledger *l, int32_t from, int32_t to, int64_t bytes);
/* The least step from which on all up to to have no more than limit; but not below from. */
int32_t ledger_clear_from(const struct ledger *l, int32_t from, int32_t to, int64_t limit);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: bytes per step that change over stretches of steps, from where on they leave
 * room, and how much of them is above a target.  Steps are kept in parts that know their most and
 * their excess, so no question has to look at every step: a part below the target has none.
 */
#ifndef CKPT_PLAN_RANGE_MAX_H
#define CKPT_PLAN_RANGE_MAX_H

#include "core/base.h"

#define RANGE_MAX_PART 64

struct range_max {
    int64_t *bytes; /* per step, without what its part has for all of its steps */
    int64_t *all;   /* per part: that */
    int64_t *most;  /* per part: the most of its bytes, with that */
    int64_t *above; /* per part: bytes above the target, summed over its steps */
    int64_t target; /* INT64_MAX until range_max_aim */
    int64_t excess; /* bytes above the target, summed over all steps */
    int32_t n;
};

int range_max_new(struct range_max *l, int32_t n);
void range_max_free(struct range_max *l);
void range_max_set(struct range_max *l, const int64_t *bytes);
void range_max_aim(struct range_max *l, int64_t target);
/* The most bytes of any step. */
int64_t range_max_most(const struct range_max *l);

static inline int64_t range_max_at(const struct range_max *l, int32_t k)
{
    return l->bytes[k] + l->all[k / RANGE_MAX_PART];
}

/* Adds bytes to the steps [from, to). */
void range_max_add(struct range_max *l, int32_t from, int32_t to, int64_t bytes);
/* The excess of these steps. */
int64_t range_max_above(const struct range_max *l, int32_t from, int32_t to);
/* What that would add to the excess; or a part of it that is enough. */
int64_t range_max_gain(const struct range_max *l, int32_t from, int32_t to, int64_t bytes,
                       int64_t enough);
/* The least step from which on all up to to have no more than limit; but not below from. */
int32_t range_max_clear_from(const struct range_max *l, int32_t from, int32_t to, int64_t limit);

#endif

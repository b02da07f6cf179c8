/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: an array of bytes per step with updates of intervals, queries for the maximum
 * and for the excess, the sum of bytes above a target.  Steps are grouped in parts that know their
 * maximum and excess, so a query does not look at every step: a part below the target has no
 * excess.
 */
#ifndef CKPT_PLAN_RANGE_MAX_H
#define CKPT_PLAN_RANGE_MAX_H

#include "plan/pool.h"

struct range_max {
    int64_t *bytes; /* per step, without the bytes common to its part */
    int64_t *all;   /* per part: bytes added to all of its steps */
    int64_t *most;  /* per part: the maximum, with the common bytes */
    int64_t *above; /* per part: bytes above the target, summed over its steps */
    int64_t target; /* INT64_MAX until range_max_aim sets it */
    int64_t excess; /* bytes above the target, summed over all steps */
    int32_t n;      /* steps */
    int bits;       /* a part has 2^bits steps */
};

/* n steps of 0 bytes, without a target, in pool m.  Returns 0 or CKPT_ENOMEM. */
int range_max_new(struct range_max *l, int32_t n, struct pool *m);
void range_max_set(struct range_max *l, const int64_t *bytes);
void range_max_aim(struct range_max *l, int64_t target);
/* The first step with the maximum over all steps. */
int32_t range_max_peak(const struct range_max *l);

static inline int64_t range_max_at(const struct range_max *l, int32_t k)
{
    return l->bytes[k] + l->all[k >> l->bits];
}

/* Adds bytes to the steps [from, to). */
void range_max_add(struct range_max *l, int32_t from, int32_t to, int64_t bytes);
/* How much range_max_add would add to the excess; may stop once the sum reaches `enough`. */
int64_t range_max_gain(const struct range_max *l, int32_t from, int32_t to, int64_t bytes,
                       int64_t enough);
/* The first step k >= from such that all steps [k, to) have at most limit bytes. */
int32_t range_max_clear_from(const struct range_max *l, int32_t from, int32_t to, int64_t limit);

#endif

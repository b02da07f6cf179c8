/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement: static addresses for items, each alive for an interval of steps.  Two items that share
 * a step must not share a byte.  The goal is a low peak, the highest end address of any item.  No
 * peak is below the load, the maximum over all steps of the bytes alive.
 */
#ifndef CKPT_PLAN_PLACE_H
#define CKPT_PLAN_PLACE_H

#include "plan/place/place_item.h"

/*
 * Gives every item an offset; *peak is the highest end address.  Stops once the peak is at most
 * goal, or within 1/2048 of the load if goal is not above the load.  Fast, for use inside the
 * planner.  Returns 0 or CKPT_ENOMEM.
 */
int place_items(struct place_item *items, int32_t n, int64_t goal, int64_t *peak);
/* The same; *looks counts tree nodes and extents inspected to find holes: the measure of work. */
int place_counted(struct place_item *items, int32_t n, int64_t goal, int64_t *peak, int64_t *looks);
/*
 * The same on a cycle of `period` steps, around fixed items, which keep the offsets they have; no
 * two of them may overlap.  fixed may be NULL.  If an item is fixed or wraps, the goal is raised to
 * the load and to the highest end of a fixed item.  A first peak far above most is the result.
 */
int place_cycle(struct place_item *items, int32_t n, const bool *fixed, int32_t period,
                int64_t goal, int64_t most, int64_t *peak);

/* The lower bound of any peak: the most bytes alive at one step.  Returns 0 or CKPT_ENOMEM. */
int place_load(const struct place_item *items, int32_t n, int64_t *load);

struct place_request {
    int64_t capacity; /* a peak that is low enough, or 0: as low as possible */
    int64_t work;     /* limit of counted search work after the heuristics, or 0: the default */
    double seconds;   /* limit of processor time, or 0: none; with a limit the result depends on
                         the machine */
};

struct place_result {
    int64_t peak, load;
    int64_t work; /* counted search work done */
    bool proved;  /* the peak is optimal; or, with a capacity that was missed, none meets it */
};

/*
 * Thorough placement: heuristics, then a local search, then a tree search that ends with a
 * placement or with the proof that there is none.  Offsets are valid whether or not the capacity is
 * met.
 * Returns 0 or CKPT_ENOMEM.
 */
int plan_place(struct place_item *items, int32_t n, const struct place_request *request,
               struct place_result *result);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of placement share. */
#ifndef TESTS_PLAN_PLACES_H
#define TESTS_PLAN_PLACES_H

#include "plan/place/place.h"

/* The same numbers everywhere. */
uint32_t places_draw(uint32_t *state, uint32_t n);

/* In all of these, period is the number of steps of a cycle (place_cycle), or 0 for a line. */

/* Most bytes alive at one step, counted step by step. */
int64_t places_load(const struct place_item *items, int32_t n, int32_t period);

/* Looks at every pair: no two share a step and a byte, nothing is below 0, the highest end is
 * peak. */
bool places_valid(const struct place_item *items, int32_t n, int32_t period, int64_t peak);

/* The lowest peak there is, by trying every offset; for few items of few bytes, best by start. */
int64_t places_lowest(struct place_item *items, int32_t n, int32_t period);

#endif

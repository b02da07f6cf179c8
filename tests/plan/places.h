/* SPDX-License-Identifier: Apache-2.0 */
/* Shared code of the tests of placement. */
#ifndef TESTS_PLAN_PLACES_H
#define TESTS_PLAN_PLACES_H

#include "plan/place/place.h"

/* The same random numbers on every machine. */
uint32_t places_draw(uint32_t *state, uint32_t n);

/* In all of these, period is the number of steps of a cycle (place_cycle), or 0 for a line. */

/* Most bytes alive at one step, counted step by step. */
int64_t places_load(const struct place_item *items, int32_t n, int32_t period);

/* Checks every pair: no two items share a step and a byte, no address is negative, the highest end
 * is peak. */
bool places_valid(const struct place_item *items, int32_t n, int32_t period, int64_t peak);

/* The lowest possible peak, by trying every offset; for few items of few bytes, sorted by start. */
int64_t places_lowest(struct place_item *items, int32_t n, int32_t period);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the quick placement: many items. */
#ifndef CKPT_PLAN_PLACE_MANY_H
#define CKPT_PLAN_PLACE_MANY_H

#include "plan/place/place_item.h"

/*
 * As place_items.  Tries no more once the peak is within goal, or close to the load where goal is
 * not above it.  *looks counts what was looked at to find holes: the measure of the work.
 */
int place_many(struct place_item *items, int32_t n, int64_t goal, int64_t *peak, int64_t *looks);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: items to place, and keys to sort them by. */
#ifndef CKPT_PLAN_PLACE_ITEM_H
#define CKPT_PLAN_PLACE_ITEM_H

#include "core/base.h"

struct place_item {
    int32_t first, last; /* alive from step first to step last, both included; on a cycle of n
                            steps last may be n or more: the item then lives into the next turn, up
                            to step last - n < first */
    int64_t bytes, offset;
};

/* The position of an item in a packing order; equal keys are ordered by item. */
struct place_key {
    double major, minor;
    int32_t item;
};
/* Sorts keys.  The planner sorts as much as it simulates: qsort took a fifth of its time. */
void place_sort_keys(struct place_key *keys, int32_t n);

/* Size class: twice the floor of log2(x), plus 1 from 1.5 times that power of two on. */
uint8_t half_octaves(int64_t x);

#endif

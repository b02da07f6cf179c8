/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: what is placed, and where it stands in an order. */
#ifndef CKPT_PLAN_PLACE_ITEM_H
#define CKPT_PLAN_PLACE_ITEM_H

#include "core/base.h"

struct place_item {
    int32_t first, last; /* alive at both steps and between; on a circle of n steps last may be n or
                            more: it lives on in the next turn, up to last - n < first */
    int64_t bytes, offset;
};

/* Where an item stands in an order to pack in; ties end at the lower item. */
struct place_key {
    double major, minor;
    int32_t item;
};
int place_compare_keys(const void *a, const void *b);

/* The binary logarithm in halves; one half is added from the middle between two powers. */
uint8_t half_octaves(int64_t x);

#endif

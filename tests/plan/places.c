/* SPDX-License-Identifier: Apache-2.0 */
/* An independent check of placements. */
#include "places.h"

uint32_t places_draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 10) % n;
}

static bool share_steps(const struct place_item *a, const struct place_item *b, int32_t shift)
{
    return a->first <= b->last + shift && b->first + shift <= a->last;
}

/* Whether two items are alive at the same time, in the same turn of the cycle or one turn apart. */
static bool meet(const struct place_item *a, const struct place_item *b, int32_t period)
{
    return share_steps(a, b, 0) || share_steps(a, b, period) || share_steps(a, b, -period);
}

int64_t places_load(const struct place_item *items, int32_t n, int32_t period)
{
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        struct place_item step = {.first = items[i].first, .last = items[i].first};
        int64_t now = 0;
        for (int32_t j = 0; j < n; j++)
            now += meet(&items[j], &step, period) ? items[j].bytes : 0;
        most = max_i64(most, now);
    }
    return most;
}

static bool apart(const struct place_item *a, const struct place_item *b, int32_t period)
{
    return a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset ||
           !meet(a, b, period);
}

bool places_valid(const struct place_item *items, int32_t n, int32_t period, int64_t peak)
{
    int64_t end = 0;
    for (int32_t i = 0; i < n; i++) {
        if (items[i].offset < 0)
            return false;
        end = max_i64(end, items[i].offset + items[i].bytes);
        for (int32_t j = 0; j < i; j++)
            if (!apart(&items[i], &items[j], period))
                return false;
    }
    return end == peak;
}

/* Tries every offset for one item after the other. */
static bool fits(struct place_item *items, int32_t n, int32_t period, int32_t i, int64_t capacity)
{
    if (i == n)
        return true;
    for (int64_t at = 0; at + items[i].bytes <= capacity; at++) {
        bool clear = true;
        items[i].offset = at;
        for (int32_t j = 0; j < i && clear; j++)
            clear = apart(&items[i], &items[j], period);
        if (clear && fits(items, n, period, i + 1, capacity))
            return true;
    }
    return false;
}

int64_t places_lowest(struct place_item *items, int32_t n, int32_t period)
{
    int64_t capacity = places_load(items, n, period);
    while (!fits(items, n, period, 0, capacity))
        capacity++;
    return capacity;
}

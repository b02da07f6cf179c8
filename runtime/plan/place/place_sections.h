/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time cut into sections: the largest sets of items that are alive together.  Two items overlap if
 * and only if they share a section, so nothing else of time matters to placement.  On a circle of
 * steps an item that wraps is alive in the last sections and again in the first ones.
 */
#ifndef CKPT_PLAN_PLACE_SECTIONS_H
#define CKPT_PLAN_PLACE_SECTIONS_H

#include "plan/place/place_item.h"

/* Rows of numbers: row r is data[start[r] .. start[r + 1]). */
struct rows {
    int32_t *start, *data;
};

struct sections {
    int32_t n_items, n;
    int32_t *lower, *upper; /* per item: alive in sections [lower, upper) */
    int32_t *again;         /* and in [0, again), which is empty unless it wraps */
    bool wraps;             /* any of them does */
    int64_t load;
};

/* period: steps of the circle, or 0 for a line, where nothing wraps. */
int sections_build(const struct place_item *items, int32_t n, int32_t period, struct sections *s);
void sections_free(struct sections *s);
/* Adds up what is alive: loads[0 .. n), and loads[n], which is 0. */
void sections_loads(const struct sections *s, const int64_t *bytes, int64_t *loads);

/* A section is hot where at least `least` bytes are alive; with least 0 none is.  count[k] is the
 * number of hot sections before section k; count has n + 1 entries. */
void sections_heat(const struct sections *s, const int64_t *loads, double least, int32_t *count);
/* Whether an item is alive in a hot section. */
static inline bool sections_hot(const struct sections *s, const int32_t *count, int32_t item)
{
    return count[s->upper[item]] > count[s->lower[item]] || count[s->again[item]] > 0;
}

/* Items by section: those alive in it, those whose first it is, those whose end it is. */
int sections_alive(const struct sections *s, struct rows *r);
int sections_starting(const struct sections *s, struct rows *r);
int sections_ending(const struct sections *s, struct rows *r);
void rows_free(struct rows *r);

#endif

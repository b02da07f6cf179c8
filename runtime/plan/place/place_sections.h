/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time as sections: the maximal sets of items that are alive together.  Two items overlap in time
 * if and only if they share a section, so placement needs no other notion of time.  On a cycle of
 * steps an item that wraps is alive in the last sections and again in the first ones.
 */
#ifndef CKPT_PLAN_PLACE_SECTIONS_H
#define CKPT_PLAN_PLACE_SECTIONS_H

#include "plan/place/place_item.h"
#include "plan/pool.h"

/* A jagged array: row r is data[start[r] .. start[r + 1]). */
struct rows {
    int32_t *start, *data;
};

struct sections {
    int32_t n_items, n;
    int32_t *lower, *upper; /* per item: alive in sections [lower, upper) */
    int32_t *again;         /* per item: also alive in [0, again); 0 unless it wraps */
    int64_t load;           /* the most bytes alive in a section */
};

/* period: the number of steps of the cycle, or 0: a line, where no item wraps.  Returns 0 or
 * CKPT_ENOMEM. */
int sections_build(const struct place_item *items, int32_t n, int32_t period, struct pool *m,
                   struct sections *s);
/* Sets loads[k] to the bytes alive in section k; loads has n + 1 zeros before, and loads[n] is 0.
 */
void sections_loads(const struct sections *s, const int64_t *bytes, int64_t *loads);

/* A section is hot where at least `least` bytes are alive; with least 0 none is.  count[k] is the
 * number of hot sections before section k; count has n + 1 entries. */
void sections_heat(const struct sections *s, const int64_t *loads, double least, int32_t *count);
/* Whether an item is alive in a hot section. */
static inline bool sections_hot(const struct sections *s, const int32_t *count, int32_t item)
{
    return count[s->upper[item]] > count[s->lower[item]] || count[s->again[item]] > 0;
}

/* Rows of items by section: alive in it, beginning with it, ending with it. */
int sections_alive(const struct sections *s, struct pool *m, struct rows *r);
int sections_starting(const struct sections *s, struct pool *m, struct rows *r);
int sections_ending(const struct sections *s, struct pool *m, struct rows *r);

#endif

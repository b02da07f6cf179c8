/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quick placement on a cycle of steps.  A storage whose copy out is under way when a step ends
 * keeps its address into the next step: its lifetime wraps.
 *
 * Lifetimes are nested around two points of the cycle: activations around the end of the forward
 * pass, and the storages of the update around the end of the step.  So items that wrap go to the
 * high end of the arena and all others to the low end, which leaves one hole between them.  A few
 * orders are tried, then the best is repaired.  Work is counted, not timed, so a placement is the
 * same on every machine.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/place/place.h"
#include "plan/place/place_pack.h"

#define WORK      120000000 /* limit of a placement, about 0.1 s */
#define WORK_EACH 20000     /* limit per item, which binds below 6,000 items */
#define GAIN      512       /* a repair must lower the peak by load / GAIN */
#define SLACK     100       /* the high end starts load / SLACK above the load */
#define LONG      20        /* an item alive for more than period / LONG steps is long */

enum by { BY_SIZE, BY_AREA, BY_START, BY_END, BY_SPAN, BY_LATE };

/* An item is hot if it is alive where at least permille thousandths of the load are alive. */
static const struct recipe {
    int32_t permille;
    bool wrapped_first; /* items that wrap are packed first: they are the hardest to place */
    bool high;          /* items that wrap go to the high end */
    enum by hot, cold;
} recipes[] = {
    {990, true, false, BY_SIZE, BY_SIZE},  {990, false, true, BY_SPAN, BY_SPAN},
    {990, false, true, BY_END, BY_END},    {0, true, true, BY_START, BY_START},
    {970, false, false, BY_SIZE, BY_SIZE}, {900, true, false, BY_SIZE, BY_AREA},
    {0, true, false, BY_LATE, BY_LATE},    {0, true, true, BY_SPAN, BY_SPAN},
};
enum { N_RECIPES = sizeof(recipes) / sizeof(recipes[0]) };

struct cycle {
    const struct place_item *items;
    const bool *fixed; /* per item, or NULL */
    int32_t n, period;
    struct sections sections;
    struct packing pack;
    struct placement best;
    int64_t fixed_end; /* the highest end of a fixed item */
    int64_t cap;       /* the initial high end */
    int64_t *bytes;
    int64_t *loads; /* per section: bytes alive */
    int32_t *hot;   /* per section: number of hot sections before it */
    struct place_key *keys;
    struct pool memory;
};

static struct place_key key_of(const struct cycle *c, int32_t i, enum by by)
{
    const struct place_item *a = &c->items[i];
    double life = (double)a->last - a->first + 1;
    switch (by) {
    case BY_SIZE: /* by class, so that items alive together stay side by side */
        return (struct place_key){-(double)half_octaves(a->bytes), a->first, i};
    case BY_AREA:
        return (struct place_key){-(double)a->bytes * life, a->first, i};
    case BY_END:
        return (struct place_key){-(double)a->last, a->first, i};
    case BY_SPAN:
        return (struct place_key){a->first + (life * LONG > c->period ? 0 : 2. * c->period), -life,
                                  i};
    case BY_LATE:
        return (struct place_key){life * LONG > c->period ? -(double)a->first : 1, -life, i};
    default:
        return (struct place_key){a->first, -life, i};
    }
}

static bool is_fixed(const struct cycle *c, int32_t i)
{
    return c->fixed && c->fixed[i];
}

static void sort_order(struct cycle *c, const struct recipe *r)
{
    int32_t n = 0, first = 0;
    sections_heat(&c->sections, c->loads, 0.001 * r->permille * (double)c->sections.load, c->hot);
    for (int pass = 0; pass < 4; pass++) {
        for (int32_t i = 0; i < c->n; i++) {
            bool early = r->wrapped_first && c->sections.again[i] > 0;
            int group = is_fixed(c, i)                          ? 0
                        : early                                 ? 1
                        : sections_hot(&c->sections, c->hot, i) ? 2
                                                                : 3;
            if (group == pass)
                c->keys[n++] = key_of(c, i, pass < 3 ? r->hot : r->cold);
        }
        qsort(c->keys + first, (size_t)(n - first), sizeof(*c->keys), place_compare_keys);
        first = n;
    }
    for (int32_t j = 0; j < c->n; j++) {
        c->pack.order[j] = c->keys[j].item;
        c->pack.high[j] = r->high && c->sections.again[j] > 0;
    }
}

static void try_recipe(struct cycle *c, const struct recipe *r)
{
    int32_t stop;
    sort_order(c, r);
    packing_set_cap(&c->pack, r->high ? c->cap : 0);
    packing_attempt(&c->pack, 0, c->best.peak - 1, &c->best, &stop);
}

static int cycle_init(struct cycle *c)
{
    struct pool *m = &c->memory;
    struct sections *s = &c->sections;
    int rc = sections_build(c->items, c->n, c->period, m, s);
    POOL_ARRAY(m, c->bytes, c->n);
    POOL_ARRAY(m, c->keys, c->n);
    POOL_ARRAY(m, c->loads, s->n);
    POOL_ARRAY(m, c->hot, s->n);
    if (rc || m->failed || placement_init(&c->best, c->n, m))
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < c->n; i++)
        c->bytes[i] = c->items[i].bytes;
    sections_loads(s, c->bytes, c->loads);
    c->cap = s->load + s->load / SLACK;
    rc = packing_init(&c->pack, s, c->bytes, m);
    for (int32_t i = 0; i < c->n && !rc; i++)
        if (is_fixed(c, i)) {
            c->pack.offsets[i] = c->items[i].offset;
            c->fixed_end = max_i64(c->fixed_end, c->items[i].offset + c->bytes[i]);
            c->pack.fixed++;
        }
    c->cap = max_i64(c->cap, c->fixed_end);
    return rc;
}

int place_around(struct place_item *items, int32_t n, const bool *fixed, int32_t period,
                 int64_t goal, int64_t *peak)
{
    struct cycle c = {.items = items, .fixed = fixed, .n = n, .period = period};
    *peak = 0;
    goal = min_i64(goal, INT64_MAX / 2); /* above any peak */
    int rc = cycle_init(&c);
    goal = max_i64(goal, rc ? 0 : max_i64(c.sections.load, c.fixed_end));
    for (int r = 0; r < N_RECIPES && !rc && c.best.peak > goal; r++)
        try_recipe(&c, &recipes[r]);
    if (!rc)
        rc = packing_repair(&c.pack, &c.best, goal, c.sections.load / GAIN,
                            min_i64(WORK, WORK_EACH * (100 + (int64_t)n)));
    for (int32_t i = 0; i < n && !rc; i++)
        items[i].offset = c.best.offsets[i];
    *peak = rc ? 0 : c.best.peak;
    pool_free(&c.memory);
    return rc;
}

int place_cycle(struct place_item *items, int32_t n, int32_t period, int64_t goal, int64_t *peak)
{
    bool wraps = false;
    for (int32_t i = 0; i < n; i++)
        wraps |= items[i].last >= period;
    return wraps ? place_around(items, n, NULL, period, goal, peak)
                 : place_items(items, n, min_i64(goal, INT64_MAX / 2), peak);
}
